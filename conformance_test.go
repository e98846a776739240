package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// conformanceRuns are the suite's sets of scenarios, by revision, and what
// stands between the suite and the fixture.
var conformanceRuns = []struct {
	revision, way string
}{
	// The bridge and the adapter alone: what fails here is not coffer's fault.
	{"2025-11-25", "without coffer"},
	{"2026-07-28", "without coffer"},
	{"2025-11-25", "http"},
	{"2025-11-25", "stdio"},
	{"2026-07-28", "http"},
	{"2026-07-28", "stdio"},
}

// conformanceFailures are the scenarios that may fail through coffer though
// they pass without it, each with the reason.
var conformanceFailures = map[string]string{}

// TestConformanceServer runs the official suite's server scenarios against
// mcp-go's conformance server, directly and through coffer: what passes
// directly may not fail through coffer. The suite reaches its server by URL
// only, so a bridge stands before coffer.
func TestConformanceServer(t *testing.T) {
	fixture := startFixture(t)
	direct := make(map[string]suiteResult)
	for _, run := range conformanceRuns {
		if direct[run.revision] == nil {
			direct[run.revision] = runSuite(t, fixture, run.revision)
		}
	}
	for _, run := range conformanceRuns {
		t.Run(run.revision+"/"+run.way, func(t *testing.T) {
			t.Parallel()
			adapter := realServer{Command: testCommand(t, "httpadapter"), Args: []string{fixture}}
			excuses := conformanceFailures
			var url string
			switch run.way {
			case "http":
				url = bridgeCoffer(t, realServer{Type: "streamable-http", URL: fixture})
			case "stdio":
				url = bridgeCoffer(t, adapter)
			default:
				excuses = nil
				url = serveBridge(t, os.DevNull, func() *exec.Cmd { return exec.Command(adapter.Command, adapter.Args...) })
			}
			compareSuites(t, runSuite(t, url, run.revision), direct[run.revision], excuses)
		})
	}
}

// compareSuites fails the test for each check that is worse through coffer,
// and for each excuse that is not needed.
func compareSuites(t *testing.T, through, direct suiteResult, excuses map[string]string) {
	t.Helper()
	passed, excused := 0, 0
	for _, scenario := range slices.Sorted(maps.Keys(direct)) {
		var worse []string
		for id, want := range direct[scenario] {
			got, ran := through[scenario][id]
			if want.Status == "SUCCESS" && (!ran || got.Status != "SUCCESS") {
				worse = append(worse, fmt.Sprintf("%s: %s, %s", id, got.Status, got.ErrorMessage))
			}
		}
		// A check that fails may have another id than the one that passes.
		for id, got := range through[scenario] {
			if _, known := direct[scenario][id]; !known && got.Status == "FAILURE" && direct[scenario].passes() {
				worse = append(worse, fmt.Sprintf("%s: FAILURE, %s", id, got.ErrorMessage))
			}
		}
		reason := excuses[scenario]
		switch {
		case len(worse) == 0 && reason != "":
			t.Errorf("%s passes: its excuse is out of date (%s)", scenario, reason)
		case len(worse) == 0 && direct[scenario].passes():
			passed++
		case len(worse) > 0 && reason != "":
			excused++
		case len(worse) > 0:
			slices.Sort(worse)
			t.Errorf("%s passes directly, but not so: %q", scenario, worse)
		}
	}
	t.Logf("%d scenarios pass as they do directly, of %d that ran; %d excused", passed, len(direct), excused)
	if passed == 0 {
		t.Error("no scenario passes: nothing is tested")
	}
}

// suiteResult has the checks of each scenario.
type suiteResult map[string]scenarioResult

// scenarioResult has a scenario's checks by id, the worst where an id recurs.
type scenarioResult map[string]suiteCheck

type suiteCheck struct {
	ID, Status, ErrorMessage string
}

func (s scenarioResult) passes() bool {
	some := false
	for _, c := range s {
		if c.Status == "FAILURE" {
			return false
		}
		some = some || c.Status == "SUCCESS"
	}
	return some
}

// scenarioDir is the name of the folder that the suite writes a scenario's
// checks to: server-<scenario>-<time>.
var scenarioDir = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[-\d]+Z$`)

// runSuite runs the server scenarios of a revision against a URL.
func runSuite(t *testing.T, url, revision string) suiteResult {
	t.Helper()
	script := npmPart(t, "conformance", "@modelcontextprotocol", "conformance", "dist", "index.js")
	shim, err := filepath.Abs(filepath.Join("testdata", "conformance", "node20.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--import", "file://"+shim, script, "server", "--url", url, "--requirements", revision, "-o", dir)
	cmd.WaitDelay = 5 * time.Second
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError // it exits 1 when a scenario fails
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("the suite: %v (%v)\n%s", err, ctx.Err(), said)
	}
	result := make(suiteResult)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := scenarioDir.FindStringSubmatch(entry.Name())
		if name == nil {
			t.Fatalf("the suite wrote %q, which is no scenario's folder", entry.Name())
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name(), "checks.json"))
		if err != nil {
			t.Fatal(err)
		}
		var checks []suiteCheck
		if err := json.Unmarshal(text, &checks); err != nil {
			t.Fatalf("%s: %v", entry.Name(), err)
		}
		result[name[1]] = make(scenarioResult)
		for _, c := range checks {
			if result[name[1]][c.ID].Status != "FAILURE" {
				result[name[1]][c.ID] = c
			}
		}
	}
	if len(result) == 0 {
		t.Fatalf("the suite ran no scenario:\n%s", said)
	}
	return result
}

// bridgeCoffer returns the URL of a bridge before coffer with one upstream,
// whose names stay as they are.
func bridgeCoffer(t *testing.T, upstream realServer) string {
	t.Helper()
	dir := t.TempDir()
	config, log := filepath.Join(dir, "coffer.json"), filepath.Join(dir, "coffer.log")
	entry, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"fixture": struct {
		realServer
		Prefix string `json:"prefix"`
	}{upstream, ""}}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, config, string(entry))
	coffer := cofferBinary(t)
	return serveBridge(t, log, func() *exec.Cmd {
		return exec.Command(coffer, "serve", "--config", config, "--db", filepath.Join(dir, "coffer.db"), "--log-file", log)
	})
}

// serveBridge serves a bridge before the command until the test ends, and then
// sees to it that all children go well.
func serveBridge(t *testing.T, log string, start func() *exec.Cmd) string {
	t.Helper()
	bridge := newHTTPBridge(start)
	ts := httptest.NewServer(bridge)
	t.Cleanup(func() {
		ts.CloseClientConnections()
		ts.Close()
		if err := bridge.close(10 * time.Second); err != nil {
			t.Errorf("children of the bridge: %v", err)
		}
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("coffer's log ends with\n%s", text[max(0, len(text)-8000):])
		}
	})
	return ts.URL + "/mcp"
}

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
