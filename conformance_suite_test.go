package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// suiteResult has the checks of each scenario.
type suiteResult map[string]scenarioResult

// scenarioResult has a scenario's checks by id, the worst where an id recurs.
type scenarioResult map[string]suiteCheck

type suiteCheck struct {
	ID, Status, ErrorMessage string
}

// severity orders the statuses of checks: one that recurs is as good as its
// worst.
var severity = []string{"", "INFO", "SKIPPED", "SUCCESS", "WARNING", "FAILURE"}

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
// checks to: server-<scenario>-<time>, or without "server-" for a client's.
var scenarioDir = regexp.MustCompile(`^(?:server-)?(.+)-\d{4}-\d\d-\d\dT[-\d]+Z$`)

// suiteTries is how often a scenario may run before it has failed: the suite
// gives some answers half a second, and a busy machine may need longer.
const suiteTries = 3

// runSuite runs one of the suite's commands, server or client, and returns
// what it found and said, and the error of a run that is not all well.
func runSuite(t *testing.T, args ...string) (result suiteResult, said string, err error) {
	t.Helper()
	script := npmPart(t, "conformance", "@modelcontextprotocol", "conformance", "dist", "index.js")
	shim, err := filepath.Abs(filepath.Join("testdata", "conformance", "node20.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", slices.Concat([]string{"--import", "file://" + shim, script}, args, []string{"-o", dir})...)
	cmd.Env = append(os.Environ(), "GORACE="+atOnce)
	cmd.WaitDelay = 5 * time.Second
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError // it exits 1 when a scenario fails
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("the suite: %v (%v)\n%s", err, ctx.Err(), output)
	}
	if result = readSuite(t, dir); len(result) == 0 {
		t.Fatalf("the suite ran no scenario:\n%s", output)
	}
	return result, string(output), err
}

// suiteTarget is a server at a URL, and the revision that it is judged by.
type suiteTarget struct{ url, revision string }

// run runs all of the revision's scenarios.
func (s suiteTarget) run(t *testing.T) suiteResult {
	t.Helper()
	result, _, _ := runSuite(t, "server", "--url", s.url, "--requirements", s.revision)
	return result
}

// again runs some scenarios another time, and has result say what they give now.
func (s suiteTarget) again(t *testing.T, result suiteResult, scenarios []string) {
	t.Helper()
	for _, scenario := range scenarios {
		now, _, _ := runSuite(t, "server", "--url", s.url, "--scenario", scenario, "--spec-version", s.revision)
		result[scenario] = now[scenario]
	}
}

// readSuite reads what the suite wrote to a folder.
func readSuite(t *testing.T, dir string) suiteResult {
	t.Helper()
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
		scenario := make(scenarioResult)
		for _, c := range checks {
			if slices.Index(severity, c.Status) > slices.Index(severity, scenario[c.ID].Status) {
				scenario[c.ID] = c
			}
		}
		result[name[1]] = scenario
	}
	return result
}

// scored returns the scenarios that a revision requires of a role, "server" or
// "client".
func scored(t *testing.T, revision, role string) []string {
	t.Helper()
	text, err := os.ReadFile(npmPart(t, "conformance", "@modelcontextprotocol", "conformance", "requirements", revision+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if name, isItem := strings.CutPrefix(line, "  - "); isItem && section == role+":" {
			names = append(names, name)
		} else if line != "" && line[0] != ' ' {
			section = line
		}
	}
	if len(names) == 0 {
		t.Fatalf("the suite's requirements of %s name no scenario for a %s", revision, role)
	}
	return names
}
