package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lastWords are the returns of the fixture's tools that notify the client just
// before. mcp-go 1.2.1 sends notifications from another goroutine than results
// and loses the last one if the result is quicker, with the suite directly
// before it too, so the fixture waits there as it does between notifications.
var lastWords = []string{
	`return mcp.NewToolResultText("progress reported"), nil`,
	`return mcp.NewToolResultText("Tool with logging executed successfully"), nil`,
}

// buildFixture builds mcp-go's conformance server, which its module has as an
// example, with that one change.
func buildFixture(t *testing.T) (program string) {
	t.Helper()
	run := func(args ...string) string {
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Stderr = &stderr
		said, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %q: %v\n%s", args, err, &stderr)
		}
		return strings.TrimSpace(string(said))
	}
	source, err := os.ReadFile(filepath.Join(run("list", "-f", "{{.Dir}}", "github.com/mark3labs/mcp-go/examples/conformance"), "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	for _, words := range lastWords {
		if strings.Count(text, words) != 1 {
			t.Fatalf("mcp-go's conformance server has changed: no single %q", words)
		}
		text = strings.Replace(text, words, "time.Sleep(50 * time.Millisecond)\n"+words, 1)
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "main.go"), text)
	program = filepath.Join(dir, "fixture")
	run("build", "-o", program, filepath.Join(dir, "main.go"))
	return program
}

// startFixture starts mcp-go's conformance server and returns its URL.
func startFixture(t *testing.T) string {
	t.Helper()
	program := buildFixture(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	var said bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), "CONFORMANCE_ADDR="+address)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		cmd.Wait()
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		if resp, err := http.Get("http://" + address + "/health"); err == nil {
			resp.Body.Close()
			return "http://" + address + "/mcp"
		}
	}
	t.Fatalf("mcp-go's conformance server does not answer at %s", address)
	return ""
}
