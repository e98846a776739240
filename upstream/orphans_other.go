//go:build !linux

package upstream

import (
	"os/exec"

	"github.com/rs/zerolog"
)

// Adopt does nothing where orphans always go to the system's first process.
func Adopt(zerolog.Logger) (end func()) { return func() {} }

func ownStart(cmd *exec.Cmd) error { return cmd.Start() }

func ownWait(cmd *exec.Cmd) error { return cmd.Wait() }

// outside finds nobody: a job keeps all of them on Windows, and on other
// systems there is no cheap way to tell.
func (group) outside() (kill func()) { return func() {} }
