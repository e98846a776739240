package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestUnblockRestores: a pipe that others go on using is as it was before.
func TestUnblockRestores(t *testing.T) {
	folder := t.TempDir()
	config := filepath.Join(folder, "config.json")
	writeFile(t, config, `{"mcpServers": {}}`)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fd := r.Fd() // puts the pipe's end into blocking mode
	answers, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer answers.Close()
	cmd := exec.Command(cofferBinary(t), "serve", "--config", config, "--db", filepath.Join(folder, "coffer.db"), "--log-level", "off")
	cmd.Stdin, cmd.Stdout = r, stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	w.WriteString(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n")
	answers.Read(make([]byte, 1)) // so serve is reading
	if !nonBlocking(t, fd) {
		t.Error("serve reads its stdin in blocking mode")
	}
	w.Close()
	if err := waitFor(t, cmd); err != nil {
		t.Error(err)
	}
	if nonBlocking(t, fd) {
		t.Error("serve has left the pipe in non-blocking mode")
	}
}

func nonBlocking(t *testing.T, fd uintptr) bool {
	t.Helper()
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	return flags&syscall.O_NONBLOCK != 0
}
