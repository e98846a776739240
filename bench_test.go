package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"runtime"
	"slices"
	"testing"
)

// TestBench runs the benchmark, as briefly as it goes: it checks each answer
// that it gets. How long they took here says nothing.
func TestBench(t *testing.T) {
	var stdout, stderr bytes.Buffer
	t.Setenv("GORACE", atOnce)
	cmd := exec.CommandContext(t.Context(), "go", "run", "./testdata/bench", "-quick", "-json", "-coffer", cofferBinary(t))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var report struct {
		Rows []struct {
			Name  string
			Value float64
			Limit *struct{}
			Met   *bool
		}
	}
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatal(err, stdout.String())
	}
	var names []string
	for _, row := range report.Rows {
		names = append(names, row.Name)
		if (row.Limit == nil) != (row.Met == nil) {
			t.Errorf("%s: has a limit: %v, says whether it is met: %v", row.Name, row.Limit != nil, row.Met != nil)
		}
		if row.Name == "growth of open files over 2000 calls" && row.Value > 0 {
			t.Errorf("%v files were left open", row.Value)
		}
	}
	wanted := []string{
		"start to initialize answered", "start to all 100 tools listed", "tools/list, warm, p50", "tools/call, one upstream, p50",
		"calls per second, 64 in flight", "worst fast call beside a slow one", "result of 10 MB, p50", "tools/call over HTTP, p50",
	}
	if runtime.GOOS == "linux" {
		wanted = append(wanted, "idle CPU", "idle RSS", "CPU per call, 64 in flight", "growth of open files over 2000 calls")
	}
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			t.Errorf("no row %q in %q", name, names)
		}
	}
}
