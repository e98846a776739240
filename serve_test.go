package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// busy is how many times the contract's limits a machine that does many things
// at once may take. What hangs takes longer.
const busy = 4

// serveDemo starts coffer serve in front of the demo's servers, as a client
// does, with the handshake done. The preferences are in the folder, coffer.db.
func serveDemo(t *testing.T, folder string) *demoClient {
	t.Helper()
	t.Setenv("GORACE", atOnce)
	coffer := cofferBinary(t)
	var entries []string
	for _, name := range demoOrder {
		entries = append(entries, `"`+name+`": {"command": "coffer", "args": ["demo-server", "`+name+`"]}`)
	}
	config := filepath.Join(folder, "config.json")
	writeFile(t, config, `{"mcpServers": {`+strings.Join(entries, ",")+`}}`)
	client, err := startDemoClient(t.Context(), coffer, []string{"serve", "--config", config, "--db", filepath.Join(folder, "coffer.db")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.call(t.Context(), "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`); err != nil {
		t.Fatal(err, client.close(), client.log.String())
	}
	client.notify("notifications/initialized")
	if _, err := client.tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	return client
}

// TestServeEnds: coffer is gone soon after its client, however that leaves.
func TestServeEnds(t *testing.T) {
	for _, test := range []struct {
		name  string
		leave func(*demoClient) error
		limit time.Duration
	}{
		{"stdin closed", func(d *demoClient) error { return d.hangUp() }, 3500 * time.Millisecond},
		{"SIGTERM", func(d *demoClient) error { return d.cmd.Process.Signal(syscall.SIGTERM) }, 1500 * time.Millisecond},
		{"SIGINT", func(d *demoClient) error { return d.cmd.Process.Signal(os.Interrupt) }, 1500 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.HasPrefix(test.name, "SIG") {
				t.Skip("Windows has no signals")
			}
			client := serveDemo(t, t.TempDir())
			began := time.Now()
			if err := test.leave(client); err != nil {
				t.Fatal(err)
			}
			select {
			case <-client.ended:
			case <-time.After(10 * time.Second):
				t.Error("coffer did not end")
				client.cmd.Process.Kill()
			}
			if err := client.close(); err != nil {
				t.Errorf("exit: %v\n%s", err, client.log.String())
			}
			if took := time.Since(began); took > busy*test.limit {
				t.Errorf("took %v, want at most %v", took, test.limit)
			}
		})
	}
}

// TestServeClosedStdout: a client that does not read any more ends the session
// quietly, although its end of stdin is still open.
func TestServeClosedStdout(t *testing.T) {
	folder := t.TempDir()
	config := filepath.Join(folder, "config.json")
	writeFile(t, config, `{"mcpServers": {}}`)
	cmd := exec.Command(cofferBinary(t), "serve", "--config", config, "--db", filepath.Join(folder, "coffer.db"))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Close()
	stdin.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"))
	if err := waitFor(t, cmd); err != nil {
		t.Errorf("exit: %v", err)
	}
	if strings.Contains(stderr.String(), "coffer: error") {
		t.Errorf("stderr: %s", stderr.String())
	}
}

// TestServeDamagedDatabase: it is left alone, and coffer ends with an error.
func TestServeDamagedDatabase(t *testing.T) {
	folder := t.TempDir()
	config, db := filepath.Join(folder, "config.json"), filepath.Join(folder, "coffer.db")
	const damage = "this is no database, but long enough to be one"
	writeFile(t, config, `{"mcpServers": {}}`)
	writeFile(t, db, damage)
	cmd := exec.Command(cofferBinary(t), "serve", "--config", config, "--db", db)
	stdin, err := cmd.StdinPipe() // stays open
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err = waitFor(t, cmd)
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != exitError {
		t.Errorf("exit: %v, want %d", err, exitError)
	}
	if stdout.Len() > 0 || !strings.Contains(stderr.String(), "coffer: error: preferences "+db+": damaged") || !strings.Contains(stderr.String(), "coffer: hint: ") {
		t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
	}
	if text, _ := os.ReadFile(db); string(text) != damage {
		t.Errorf("the file was changed: %q", text)
	}
}

// waitFor waits for cmd, which must end soon.
func waitFor(t *testing.T, cmd *exec.Cmd) error {
	t.Helper()
	kill := time.AfterFunc(10*time.Second, func() {
		t.Error("it does not end")
		cmd.Process.Kill()
	})
	defer kill.Stop()
	return cmd.Wait()
}

// TestServeRefreshReconnect: a refresh by another process reaches a running
// coffer; with --reconnect the server is started anew, so that what it kept in
// memory is gone.
func TestServeRefreshReconnect(t *testing.T) {
	folder := t.TempDir()
	client := serveDemo(t, folder)
	defer client.close()
	notes := func() string {
		t.Helper()
		result, err := client.callTool(t.Context(), "notes__list", `{}`)
		if err != nil {
			t.Fatal(err)
		}
		return string(result)
	}
	if _, err := client.callTool(t.Context(), "notes__add", `{"text":"kept in memory"}`); err != nil {
		t.Fatal(err)
	}
	files := []string{"--config", filepath.Join(folder, "config.json"), "--db", filepath.Join(folder, "coffer.db")}
	refresh := func(args ...string) {
		t.Helper()
		if _, err := runDemo(t.Context(), cofferBinary(t), append(append([]string{"mcp", "refresh"}, args...), files...)); err != nil {
			t.Fatal(err)
		}
	}
	refresh("notes")
	if got := notes(); !strings.Contains(got, "kept in memory") {
		t.Errorf("after a refresh: %s", got)
	}
	refresh("notes", "--reconnect")
	deadline := time.Now().Add(5 * time.Second)
	for strings.Contains(notes(), "kept in memory") {
		if time.Now().After(deadline) {
			t.Fatal("after a refresh with --reconnect the server is the same")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestDemoInterrupted: whoever ends the demo leaves nothing behind.
func TestDemoInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signals")
	}
	tmp := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := demoCommand(ctx, cofferBinary(t), []string{"demo"})
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdout.Read(make([]byte, 1)) // it is under way
	cancel()                     // SIGTERM
	for buf := make([]byte, 1<<10); ; {
		if _, err := stdout.Read(buf); err != nil {
			break
		}
	}
	err = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitError {
		t.Errorf("exit %d (%v), want %d; stderr: %s", code, err, exitError, stderr.String())
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
