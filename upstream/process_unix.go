//go:build unix

package upstream

import (
	"errors"
	"os/exec"
	"syscall"
)

// group is the process group of a child, which is its leader. Whatever the
// child starts belongs to it too, unless it leaves on purpose (setsid).
type group int

// startGroup starts cmd as the leader of a new group.
func startGroup(cmd *exec.Cmd) (group, error) {
	cmd.SysProcAttr = childAttr()
	if err := ownStart(cmd); err != nil {
		return 0, err
	}
	return group(cmd.Process.Pid), nil
}

func (g group) terminate() { _ = syscall.Kill(-int(g), syscall.SIGTERM) } // ESRCH: it is gone, as wished
func (g group) kill()      { _ = syscall.Kill(-int(g), syscall.SIGKILL) } // likewise

// alive reports whether the group has a member, be it a zombie.
func (g group) alive() bool {
	return !errors.Is(syscall.Kill(-int(g), 0), syscall.ESRCH)
}
