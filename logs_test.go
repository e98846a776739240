package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestLogs: what servers of several coffers write to stderr is kept, told
// together, and followed.
func TestLogs(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"one", "two"} {
		client := serveFake(t, folder, `"`+name+`": {"command": "fakeserver", "args": ["{\"stderr\":[\"`+name+` says\\thello <&>\",\"bye\"]}"]}`)
		if _, err := client.tools(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := client.close(); err != nil {
			t.Errorf("exit: %v", err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		stdout, err := runDemo(t.Context(), cofferBinary(t), append(args, "--db", filepath.Join(folder, "coffer.db")))
		if err != nil {
			t.Fatal(err)
		}
		return stdout
	}
	var said struct{ Lines []stderrLine }
	if err := json.Unmarshal([]byte(run("logs", "--json")), &said); err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, l := range said.Lines {
		got += l.Server + ": " + l.Line + "\n"
		if since := time.Since(time.Time(l.At)); since < 0 || since > liveLimit || l.PID == 0 {
			t.Errorf("line %+v", l)
		}
	}
	if want := "one: one says\thello <&>\none: bye\ntwo: two says\thello <&>\ntwo: bye\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := run("logs", "two"); !regexp.MustCompile(`^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} two\[\d+\] two says\thello <&>\n20.* two\[\d+\] bye\n$`).MatchString(got) {
		t.Errorf("logs two: %q", got)
	}
	if got := run("logs", "-n", "1"); !strings.HasSuffix(got, "bye\n") || strings.Count(got, "\n") != 1 {
		t.Errorf("logs -n 1: %q", got)
	}

	follower := exec.Command(cofferBinary(t), "logs", "-f", "--db", filepath.Join(folder, "coffer.db"), "three")
	// three must be in a config: nothing of it is in the log yet.
	follower.Args = append(follower.Args, "--config", filepath.Join(folder, "config.json"))
	writeFile(t, filepath.Join(folder, "config.json"), `{"mcpServers": {"three": {"command": "x"}}}`)
	stdout, err := follower.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	client := serveFake(t, folder, `"three": {"command": "fakeserver", "args": ["{\"stderr\":[\"here\"]}"]}, "four": {"command": "fakeserver", "args": ["{\"stderr\":[\"not\"]}"]}`)
	if _, err := client.tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 200)
	n, err := stdout.Read(line)
	if err != nil || !strings.HasSuffix(string(line[:n]), "here\n") {
		t.Errorf("followed %q, %v", line[:n], err)
	}
	follower.Process.Signal(os.Interrupt)
	rest, _ := io.ReadAll(stdout)
	if err := waitFor(t, follower); len(rest) > 0 || err != nil && runtime.GOOS != "windows" {
		t.Errorf("at the end %q, %v", rest, err)
	}
	if info, err := os.Stat(filepath.Join(folder, "coffer.upstreams.log")); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// TestLogFileRotates: the bound holds for --log-file, too.
func TestLogFileRotates(t *testing.T) {
	folder := t.TempDir()
	log, config := filepath.Join(folder, "coffer.log"), filepath.Join(folder, "config.json")
	writeFile(t, config, `{"mcpServers": {"notes": {"command": "coffer", "args": ["demo-server", "notes"]}}}`)
	writeFile(t, log, "")
	const full = 10 << 20
	if err := os.Truncate(log, full); err != nil {
		t.Fatal(err)
	}
	if _, err := runDemo(t.Context(), cofferBinary(t), []string{"mcp", "test", "notes", "--config", config, "--log-file", log, "--log-level", "info"}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]func(int64) bool{
		log:        func(size int64) bool { return size > 0 && size < 1<<20 },
		log + ".1": func(size int64) bool { return size == full },
	} {
		if info, err := os.Stat(path); err != nil || !want(info.Size()) {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}
