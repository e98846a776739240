package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// waitForMarked waits until no process has setting ("NAME=value") in its
// environment, at most limit long, and returns the command lines of those that
// are left then.
func waitForMarked(t *testing.T, setting string, limit time.Duration) []string {
	t.Helper()
	end := time.Now().Add(limit)
	for {
		marked := markedProcesses(t, setting)
		if len(marked) == 0 {
			return nil
		}
		if time.Now().After(end) {
			var left []string
			for pid, line := range marked {
				left = append(left, fmt.Sprintf("%d %s", pid, line))
			}
			return left
		}
		for pid := range marked {
			waitForExit(t, pid, time.Until(end))
		}
	}
}

// markedProcesses returns the command lines of the marked processes, by pid.
func markedProcesses(t *testing.T, setting string) map[int]string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	marked := make(map[int]string)
	for _, path := range paths {
		environ, err := os.ReadFile(path) // fails for a process that is gone, and is empty for a zombie
		if err != nil || !bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+setting+"\x00")) {
			continue
		}
		dir := filepath.Dir(path)
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		marked[pid] = strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
	}
	return marked
}

// waitForExit returns when the process, which need not be a child, is gone, or
// after limit.
func waitForExit(t *testing.T, pid int, limit time.Duration) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for end := time.Now().Add(limit); ; {
		_, err := unix.Poll(fds, int(max(0, time.Until(end)).Milliseconds()))
		if err != unix.EINTR {
			return
		}
	}
}
