package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestStoppedInAWait: a command that waits in the system, where nothing reaches
// it, leaves when it is told to all the same: for the writer of a pipe that is its
// config, and for the reader of its own output.
func TestStoppedInAWait(t *testing.T) {
	coffer := cofferBinary(t)
	dir := t.TempDir()
	config, full := filepath.Join(dir, "config.json"), filepath.Join(dir, "full")
	for _, path := range []string{config, full} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unread, err := os.OpenFile(full, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	fill := make([]byte, 1<<16)
	for unread.SetWriteDeadline(time.Now().Add(100*time.Millisecond)) == nil {
		if _, err := unread.Write(fill); err != nil {
			break
		}
	}
	for _, args := range [][]string{{"--config", config, "serve"}, {"--config", config, "mcp", "list"}, {"--help"}} {
		cmd := exec.Command(coffer, args...)
		cmd.Dir, cmd.Stdout = dir, unread
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for caught := false; !caught; time.Sleep(5 * time.Millisecond) { // else the signal kills it, which shows nothing
			caught = catchesTerm(t, cmd.Process.Pid)
		}
		select {
		case err := <-ended:
			t.Errorf("coffer %v did not wait: %v", args, err)
			continue
		case <-time.After(200 * time.Millisecond):
		}
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(liveLimit):
			t.Errorf("coffer %v does not heed SIGTERM", args)
			cmd.Process.Kill()
			<-ended
		}
	}
}

// catchesTerm reports whether the process does not leave SIGTERM to the system.
func catchesTerm(t *testing.T, pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	mask := regexp.MustCompile(`SigCgt:\s*([0-9a-f]+)`).FindSubmatch(status)
	if mask == nil {
		return false
	}
	caught, err := strconv.ParseUint(string(mask[1]), 16, 64)
	return err == nil && caught>>(syscall.SIGTERM-1)&1 == 1
}
