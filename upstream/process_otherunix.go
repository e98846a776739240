//go:build unix && !linux

package upstream

import (
	"os/exec"
	"syscall"
)

// childAttr puts a child in a group of its own. There is no parent-death
// signal here: if we are killed, children see their stdin close.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// forker starts children.
type forker struct{}

func newForker() *forker { return &forker{} }

func (*forker) start(cmd *exec.Cmd) (group, error) { return startGroup(cmd) }

func (*forker) close() {}
