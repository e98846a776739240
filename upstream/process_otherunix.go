//go:build unix && !linux

package upstream

import (
	"os/exec"
	"syscall"

	"github.com/rs/zerolog"
)

// childAttr puts a child in a group of its own. There is no parent-death
// signal here: if we are killed, the guard kills it.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// forker starts children.
type forker struct{ guard guard }

func newForker(log zerolog.Logger) *forker { return &forker{guard{log: log}} }

func (f *forker) start(cmd *exec.Cmd) (group, error) {
	g, err := startGroup(cmd)
	if err == nil {
		f.guard.watch(g)
		f.guard.start()
	}
	return g, err
}

// ended says that a group is empty, or will be by no doing of ours.
func (f *forker) ended(g group) { f.guard.unwatch(g) }

func (f *forker) close() { f.guard.close() }
