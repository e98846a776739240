package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// conformanceRevisions are the suite's sets of scenarios, one of each era.
var conformanceRevisions = []string{"2025-11-25", "2026-07-28"}

// conformanceServers are the upstreams that coffer is put before. What the
// suite finds through coffer is compared with what it finds without coffer in
// front of the server named in direct.
var conformanceServers = []struct {
	name, direct string
	eras         []string // that our own fixture speaks; nil for mcp-go's, which speaks both
	revisions    []string
}{
	{name: "mcp-go", direct: "mcp-go", revisions: conformanceRevisions},
	{name: "both", direct: "both", eras: []string{"legacy", "modern"}, revisions: []string{"2026-07-28"}}, // mcp-go's has all of 2025-11-25
	// Of one era only: coffer has to translate.
	{name: "legacy", direct: "both", eras: []string{"legacy"}, revisions: []string{"2026-07-28"}},
	{name: "modern", direct: "both", eras: []string{"modern"}, revisions: []string{"2025-11-25"}},
}

// TestConformanceServer runs the official suite's server scenarios against
// mcp-go's conformance server and one of our own, directly and through coffer:
// what passes directly may not fail through coffer, unless the list of expected
// failures says why. The suite reaches its server by URL only, so a bridge
// stands before coffer.
func TestConformanceServer(t *testing.T) {
	mcpgo := startFixture(t)
	direct := make(map[string]suiteResult)
	for _, revision := range conformanceRevisions {
		direct["mcp-go "+revision] = suiteTarget{mcpgo, revision}.run(t)
		direct["both "+revision] = runOwn(t, revision)
	}
	expected := readExpected(t)
	for _, server := range conformanceServers {
		for _, revision := range server.revisions {
			for _, way := range []string{"http", "stdio"} {
				t.Run(revision+"/"+server.name+"/"+way, func(t *testing.T) {
					t.Parallel()
					upstream := realServer{Type: "streamable-http", URL: mcpgo}
					switch {
					case server.eras == nil && way == "stdio":
						upstream = realServer{Command: testCommand(t, "httpadapter"), Args: []string{mcpgo}}
					case way == "stdio":
						upstream = realServer{Command: testCommand(t, "fixtureserver"), Args: server.eras}
					case server.eras != nil:
						upstream.URL = bridgeFixture(t, server.eras...)
					}
					url := bridgeCoffer(t, upstream)
					if server.name == "legacy" {
						introduce(t, url)
					}
					compareSuites(t, suiteTarget{url, revision}, direct[server.direct+" "+revision], expected[revision+" "+server.name])
				})
			}
		}
	}
	t.Run("without coffer", func(t *testing.T) {
		// The bridge and the adapter alone: what fails here is not coffer's fault.
		for _, revision := range conformanceRevisions {
			t.Run(revision, func(t *testing.T) {
				t.Parallel()
				program := testCommand(t, "httpadapter")
				url := serveBridge(t, os.DevNull, func() *exec.Cmd { return exec.Command(program, mcpgo) })
				compareSuites(t, suiteTarget{url, revision}, direct["mcp-go "+revision], nil)
			})
		}
	})
}

// runOwn runs the suite directly against our own fixture, which has to pass
// every scored scenario.
func runOwn(t *testing.T, revision string) suiteResult {
	t.Helper()
	target := suiteTarget{bridgeFixture(t, "legacy", "modern"), revision}
	result := target.run(t)
	for try := 1; ; try++ {
		fails := slices.DeleteFunc(scored(t, revision, "server"), func(scenario string) bool { return result[scenario].passes() })
		if len(fails) == 0 {
			return result
		}
		if try == suiteTries {
			t.Fatalf("our own fixture fails %q of %s", fails, revision)
		}
		target.again(t, result, fails)
	}
}

// introduce sends a request with all capabilities before the suite does. A
// server of the handshake era is told of them once; the suite's first requests
// have none, and real clients do not change.
func introduce(t *testing.T, url string) {
	t.Helper()
	message := `{"jsonrpc":"2.0","id":"introduction","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
		"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"sampling":{},"roots":{}}}}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
	req.Header.Set("Mcp-Method", "tools/list")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || !bytes.Contains(body, []byte("test_simple_text")) {
		t.Fatalf("tools/list: %s %v", body, err)
	}
}

// readExpected reads the list of expected failures: for each "revision server"
// the reasons by "scenario:check".
func readExpected(t *testing.T) map[string]map[string]string {
	t.Helper()
	path := filepath.Join("testdata", "conformance", "expected-failures.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	expected := make(map[string]map[string]string)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 4 {
			t.Fatalf("%s: %q has no reason", path, line)
		}
		run := fields[0] + " " + fields[1]
		if expected[run] == nil {
			expected[run] = make(map[string]string)
		}
		expected[run][fields[2]] = strings.Join(fields[3:], " ")
	}
	return expected
}

// compareSuites runs the suite against a target and fails the test for each
// check that is worse there than directly and not expected to be, and for each
// that was expected to be and is not.
func compareSuites(t *testing.T, target suiteTarget, direct suiteResult, expected map[string]string) {
	t.Helper()
	through := target.run(t)
	worse, stale := worseThan(through, direct, expected)
	for try := 1; len(worse) > 0 && try < suiteTries; try++ {
		t.Logf("again, since worse than directly: %q", worse)
		target.again(t, through, slices.Sorted(maps.Keys(worse)))
		worse, stale = worseThan(through, direct, expected)
	}
	for scenario, checks := range worse {
		t.Errorf("%s passes directly, but not so: %q", scenario, checks)
	}
	for _, check := range stale {
		t.Errorf("%s passes: its entry in the list of expected failures is out of date (%s)", check, expected[check])
	}
	passed := 0
	for scenario := range direct {
		if direct[scenario].passes() && through[scenario].passes() {
			passed++
		}
	}
	t.Logf("%d scenarios pass as they do directly, of %d that ran; %d checks are expected to fail", passed, len(direct), len(expected))
	if passed == 0 {
		t.Error("no scenario passes: nothing is tested")
	}
}

// worseThan returns, by scenario, the checks that are worse than directly,
// less those that are expected to be, "scenario:check"; and which of these are
// not worse.
func worseThan(through, direct suiteResult, expected map[string]string) (worse map[string][]string, stale []string) {
	worse = make(map[string][]string)
	left := maps.Clone(expected)
	note := func(scenario, id string, got suiteCheck) {
		if _, known := expected[scenario+":"+id]; known {
			delete(left, scenario+":"+id)
		} else {
			worse[scenario] = append(worse[scenario], fmt.Sprintf("%s: %s, %s", id, got.Status, got.ErrorMessage))
		}
	}
	for scenario, checks := range direct {
		for id, want := range checks {
			if got := through[scenario][id]; want.Status == "SUCCESS" && got.Status != "SUCCESS" {
				note(scenario, id, got)
			}
		}
		// A check that fails may have another id than the one that passes.
		for id, got := range through[scenario] {
			if _, known := checks[id]; !known && got.Status == "FAILURE" && checks.passes() {
				note(scenario, id, got)
			}
		}
	}
	return worse, slices.Sorted(maps.Keys(left))
}

func TestWorseThan(t *testing.T) {
	checks := func(statuses ...string) scenarioResult { // of a, b and c
		result := make(scenarioResult)
		for i, id := range []string{"a", "b", "c"}[:len(statuses)] {
			if statuses[i] != "" {
				result[id] = suiteCheck{ID: id, Status: statuses[i]}
			}
		}
		return result
	}
	for _, test := range []struct {
		name            string
		through, direct scenarioResult
		expected        string
		worse, stale    string
	}{
		{"as directly", checks("SUCCESS", "FAILURE"), checks("SUCCESS", "FAILURE"), "", "map[]", "[]"},
		{"better", checks("SUCCESS", "SUCCESS"), checks("SUCCESS", "FAILURE"), "", "map[]", "[]"},
		{"worse", checks("WARNING", "SUCCESS"), checks("SUCCESS", "SUCCESS"), "", "map[s:[a: WARNING, ]]", "[]"},
		{"not there", checks("", "SUCCESS"), checks("SUCCESS", "SUCCESS"), "", "map[s:[a: , ]]", "[]"},
		{"did not run", nil, checks("SUCCESS"), "", "map[s:[a: , ]]", "[]"},
		{"fails under another id", checks("SUCCESS", "", "FAILURE"), checks("SUCCESS"), "", "map[s:[c: FAILURE, ]]", "[]"},
		{"expected", checks("FAILURE", "SUCCESS"), checks("SUCCESS", "SUCCESS"), "s:a", "map[]", "[]"},
		{"expected, and another", checks("FAILURE", "FAILURE"), checks("SUCCESS", "SUCCESS"), "s:a", "map[s:[b: FAILURE, ]]", "[]"},
		{"no more to be expected", checks("SUCCESS", "SUCCESS"), checks("SUCCESS", "SUCCESS"), "s:a", "map[]", "[s:a]"},
		{"of no scenario", checks("SUCCESS"), checks("SUCCESS"), "x:a", "map[]", "[x:a]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			expected := map[string]string{}
			if test.expected != "" {
				expected[test.expected] = "because"
			}
			worse, stale := worseThan(suiteResult{"s": test.through}, suiteResult{"s": test.direct}, expected)
			if fmt.Sprint(worse) != test.worse || fmt.Sprint(stale) != test.stale {
				t.Errorf("got %v, %v, want %s, %s", worse, stale, test.worse, test.stale)
			}
		})
	}
}

// bridgeFixture returns the URL of a bridge before our own fixture.
func bridgeFixture(t *testing.T, eras ...string) string {
	t.Helper()
	program := testCommand(t, "fixtureserver")
	return serveBridge(t, os.DevNull, func() *exec.Cmd { return exec.Command(program, eras...) })
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
