//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
)

// TestStatusStopped: a coffer that is stopped is told of, and keeps its socket.
func TestStatusStopped(t *testing.T) {
	ownRuntimeFolder(t)
	client := serveDemo(t, t.TempDir())
	defer client.close()
	coffers(t, func(all []running) bool { return len(all) == 1 })
	if err := client.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	all := coffers(t, func(all []running) bool { return len(all) == 1 })
	client.cmd.Process.Signal(syscall.SIGCONT)
	if all[0].PID != client.cmd.Process.Pid || all[0].Error == nil || !strings.Contains(*all[0].Error, "does not answer") {
		t.Errorf("got %s", asJSON(t, all[0]))
	}
	coffers(t, func(all []running) bool { return len(all) == 1 && all[0].Error == nil })
}
