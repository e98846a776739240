//go:build unix

package main

import (
	"os"
	"syscall"
	"testing"
)

// TestConfigBecomesAPipe: a pipe that nobody writes to, where the config file
// was, does not hold the session up at its end.
func TestConfigBecomesAPipe(t *testing.T) {
	a := demoEntry("a", "notes", "")
	w, c := editedWorld(t, a)
	c.note(t, "a")
	if err := syscall.Mkfifo(w.config+".new", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(w.config+".new", w.config); err != nil {
		t.Fatal(err)
	}
	c.awaitLog(t, "the config file is gone: what it said stays", 1)
	if !c.keeps(t, "a") {
		t.Error("a server was lost")
	}
	if err := c.leave(); err != nil {
		t.Error(err)
	}
}
