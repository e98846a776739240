package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"coffer/upstream"
)

// serversIn reads the names of the servers of a config file.
func serversIn(t *testing.T, path string) map[string]bool {
	t.Helper()
	config, err := upstream.ReadConfig(path, true, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, spec := range config.Servers {
		all[spec.Name] = true
	}
	return all
}

// TestEditsAtOnce: processes that edit one file at the same time lose none of
// their edits, even where nobody made the file or its folder before.
func TestEditsAtOnce(t *testing.T) {
	const processes = 12
	path := filepath.Join(t.TempDir(), "new", "config.json")
	binary := cofferBinary(t)
	var all sync.WaitGroup
	for i := range processes {
		all.Go(func() {
			out, err := exec.CommandContext(t.Context(), binary, "--config", path, "mcp", "add", fmt.Sprintf("s%d", i), "--", "x").CombinedOutput()
			if err != nil {
				t.Errorf("add: %v: %s", err, out)
			}
		})
	}
	all.Wait()
	if got := serversIn(t, path); len(got) != processes {
		t.Errorf("%d of %d servers are there: %v", len(got), processes, got)
	}
}

// configWriterMain is the command configwriter FILE: it switches server a of the
// config file off and on without an end, and prints a line each time.
func configWriterMain() {
	for n := 0; ; n++ {
		err := upstream.Locked(context.Background(), os.Args[1], func() error {
			old, err := upstream.ReadFile(os.Args[1])
			if err != nil {
				return err
			}
			d, err := upstream.ParseDocument(os.Args[1], old)
			if err != nil {
				return err
			}
			servers, err := d.ConfigServers()
			if err != nil {
				return err
			}
			servers.Set("a", "disabled", upstream.JSON(n%2 == 0))
			return upstream.ReplaceFile(os.Args[1], old, d.Text())
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "configwriter:", err)
			os.Exit(1)
		}
		fmt.Println("written")
	}
}

// TestEditKilled: whoever reads the file at any moment of an edit, and whoever
// looks after the writer was killed, finds the old file or the new one; and nobody
// waits for a lock of the dead.
func TestEditKilled(t *testing.T) {
	const rounds, edits = 4, 10
	path := filepath.Join(t.TempDir(), "config.json")
	padding := strings.Repeat("// a comment that makes the file larger than one write\n", 10_000)
	const end = "// the end\n"
	if err := os.WriteFile(path, []byte(padding+"{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}\n"+end), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := func() {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(text), padding) || !strings.HasSuffix(string(text), end) {
			t.Fatalf("the file is not whole: %d bytes (%v)", len(text), err)
		}
	}
	for range rounds {
		cmd := exec.Command(testCommand(t, "configwriter"), path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() }) // where the test fails first
		enough := make(chan bool, 1)
		go func() {
			lines := bufio.NewScanner(out)
			n := 0
			for n < edits && lines.Scan() {
				n++
			}
			enough <- n == edits
		}()
		for done := false; !done; {
			select {
			case all := <-enough:
				if done = true; !all {
					t.Fatal("configwriter ended too soon")
				}
			default:
				whole()
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
		whole()
		if !serversIn(t, path)["a"] {
			t.Fatal("the server is lost")
		}
	}
}
