//go:build unix

package upstream

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// loginShellTimeout bounds the user's start-up files. Most take well under
	// a second, and a list has ten for everything.
	loginShellTimeout = 3 * time.Second
	// loginShellGrace is how long a process that left the shell's group may
	// hold its stdout open after the end.
	loginShellGrace = 200 * time.Millisecond
	// loginShellOutput bounds what start-up files may print.
	loginShellOutput = 1 << 20
)

// askLoginShell asks the user's login shell for its PATH.
func askLoginShell(ctx context.Context) (string, error) {
	shell := os.Getenv("SHELL")
	if !filepath.IsAbs(shell) {
		shell = "/bin/sh"
		if runtime.GOOS == "darwin" {
			shell = "/bin/zsh"
		}
	}
	return shellPath(ctx, shell, loginShellTimeout)
}

// shellPath starts shell as a login and interactive one, since people set PATH
// in the files of either kind, and returns the PATH that it exports. The shell
// is a session of its own with no terminal, which it could otherwise take from
// us or be stopped by; nothing of its process group outlives the call.
func shellPath(ctx context.Context, shell string, timeout time.Duration) (string, error) {
	limit := fmt.Errorf("%s took more than %v", shell, timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, limit)
	defer cancel()
	// The words mean the same to sh, bash, zsh, ksh, fish and nu.
	mark := rand.Text()
	cmd := exec.CommandContext(ctx, shell, "-l", "-i", "-c", "echo "+mark+"; printenv PATH; echo "+mark)
	answer := &marked{mark: []byte(mark), done: cancel}
	cmd.Stdout = answer
	cmd.SysProcAttr = childAttr()
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Setsid = false, true // a session is a group too
	cmd.WaitDelay = loginShellGrace
	killGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = killGroup

	// Linux sends the parent-death signal when the thread that forked ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := ownStart(cmd)
	if err == nil {
		err = ownWait(cmd)
	}
	if cmd.Process != nil {
		killGroup() // what the shell left behind, if it ended by itself
	}
	path, cause := answer.text(), context.Cause(ctx)
	switch {
	case path != "":
		return path, nil
	case errors.Is(cause, limit):
		return "", limit
	case cause == nil && err != nil: // it ended by itself
		return "", fmt.Errorf("%s: %w", shell, err)
	}
	return "", fmt.Errorf("%s printed no PATH", shell)
}

// marked is a writer that keeps what comes, and calls done once it has seen
// mark twice, or too much. What stands between the marks is the answer,
// whatever start-up files print around it.
type marked struct {
	mark []byte
	done func()
	buf  []byte
}

// Write keeps p, unless that passes the bound.
func (m *marked) Write(p []byte) (int, error) {
	if len(m.buf)+len(p) > loginShellOutput {
		m.done()
		return len(p), nil
	}
	m.buf = append(m.buf, p...)
	if bytes.Count(m.buf, m.mark) >= 2 {
		m.done()
	}
	return len(p), nil
}

// text returns the answer, or "" if there is none.
func (m *marked) text() string {
	_, after, _ := bytes.Cut(m.buf, m.mark)
	between, _, closed := bytes.Cut(after, m.mark)
	if !closed {
		return ""
	}
	return strings.TrimSpace(string(between))
}
