package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestConformanceClient runs the official suite's client scenarios: the suite
// is a server, and coffer, with a client of ours before it, is its client. Of
// the scored ones all but authorization, which coffer leaves to its user, and
// the one that was added later.
func TestConformanceClient(t *testing.T) {
	for _, revision := range conformanceRevisions {
		scenarios := append(scored(t, revision, "client"), "json-schema-2020-12-preservation")
		for _, scenario := range scenarios {
			if strings.HasPrefix(scenario, "auth/") {
				continue
			}
			t.Run(revision+"/"+scenario, func(t *testing.T) {
				t.Parallel()
				var bad []string
				for range suiteTries {
					result, said, err := runSuite(t, "client", "--command", testCommand(t, "suiteclient"), "--scenario", scenario, "--spec-version", revision, "--timeout", "120000")
					if bad = clientFaults(result[scenario]); err != nil && bad == nil {
						bad = []string{fmt.Sprintf("%v: %s", err, said)}
					}
					if bad == nil {
						return
					}
					t.Logf("try: %q", bad)
				}
				t.Errorf("as the suite's client, coffer fails %q", bad)
			})
		}
	}
}

// clientFaults returns what the suite holds against a client. A warning counts,
// but for one about a wait that was a little long on a busy machine.
func clientFaults(result scenarioResult) []string {
	var bad []string
	for _, id := range slices.Sorted(maps.Keys(result)) {
		c := result[id]
		if c.Status == "FAILURE" || c.Status == "WARNING" && id != "client-sse-retry-timing" {
			bad = append(bad, fmt.Sprintf("%s: %s, %s", id, c.Status, c.ErrorMessage))
		}
	}
	if bad == nil && !result.passes() {
		return []string{"no check passes"}
	}
	return bad
}

// suiteClientMain is the command "suiteclient URL", which the suite runs: a
// client on stdio of a coffer whose upstream is at that URL. The suite says in
// the environment what is to be done.
func suiteClientMain() {
	if err := runSuiteClient(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, "suiteclient:", err)
		os.Exit(1)
	}
}

func runSuiteClient(url string) (err error) {
	dir, err := os.MkdirTemp("", "suiteclient")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"suite": map[string]any{"url": url, "prefix": "", "list_timeout": "80s"}}})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "coffer.json")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return err
	}
	cmd := exec.Command("coffer", "--log-level", "debug", "serve", "--config", path, "--db", filepath.Join(dir, "coffer.db"))
	cmd.Stderr = os.Stderr // which the suite shows if this fails
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c := &suiteClient{in: stdin, out: bufio.NewReader(stdout), modern: os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION") == "2026-07-28"}
	err = c.drive(os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Getenv("MCP_CONFORMANCE_CONTEXT"))
	stdin.Close()
	io.Copy(io.Discard, stdout)
	return errors.Join(err, cmd.Wait())
}

// suiteClient is a client of either era with all capabilities.
type suiteClient struct {
	in     io.Writer
	out    *bufio.Reader
	modern bool
	next   int
}

var suiteCapabilities = fixtureObject{"elicitation": fixtureObject{}, "sampling": fixtureObject{}, "roots": fixtureObject{}}

// suiteCall is a tools/call of a scenario's context.
type suiteCall struct {
	Name      string        `json:"name"`
	Arguments fixtureObject `json:"arguments"`
}

// drive does what a scenario needs a client to do.
func (c *suiteClient) drive(scenario, context string) error {
	if !c.modern {
		params := fixtureObject{"protocolVersion": "2025-11-25", "capabilities": suiteCapabilities, "clientInfo": fixtureInfo}
		if _, err := c.request("initialize", params); err != nil {
			return err
		}
		if err := c.send(fixtureObject{"method": "notifications/initialized"}); err != nil {
			return err
		}
	}
	tools, err := c.list("tools")
	if err != nil {
		return err
	}
	switch scenario {
	case "initialize", "request-metadata", "json-schema-ref-no-deref":
		return nil // to be connected is all
	case "sep-2322-client-request-state":
		return c.rounds()
	case "http-custom-headers":
		var given struct{ ToolCalls []suiteCall }
		if err := json.Unmarshal([]byte(context), &given); err != nil {
			return err
		}
		return c.callAll(given.ToolCalls)
	case "http-standard-headers":
		if err := c.useRest(); err != nil {
			return err
		}
	}
	var calls []suiteCall
	for _, tool := range tools {
		arguments := fixtureObject{}
		switch tool["name"] {
		case "add_numbers":
			arguments = fixtureObject{"a": 2, "b": 3}
		case "json_schema_echo":
			arguments["schema"] = tools[0]["inputSchema"]
		}
		calls = append(calls, suiteCall{tool["name"].(string), arguments})
	}
	return c.callAll(calls)
}

func (c *suiteClient) callAll(calls []suiteCall) error {
	if len(calls) == 0 {
		return errors.New("no tool to call")
	}
	for _, call := range calls {
		if _, err := c.request("tools/call", fixtureObject{"name": call.Name, "arguments": call.Arguments}); err != nil {
			return err
		}
	}
	return nil
}

func (c *suiteClient) list(kind string) ([]fixtureObject, error) {
	result, err := c.request(kind+"/list", fixtureObject{})
	if err != nil {
		return nil, err
	}
	listed, _ := result[kind].([]any)
	var items []fixtureObject
	for _, item := range listed {
		items = append(items, item.(fixtureObject))
	}
	return items, nil
}

// useRest reads each resource and gets each prompt.
func (c *suiteClient) useRest() error {
	for kind, use := range map[string]struct{ method, key string }{"resources": {"resources/read", "uri"}, "prompts": {"prompts/get", "name"}} {
		items, err := c.list(kind)
		if err != nil || len(items) == 0 {
			return fmt.Errorf("%s: %d, %v", kind, len(items), err)
		}
		for _, item := range items {
			if _, err := c.request(use.method, fixtureObject{use.key: item[use.key]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// rounds calls tools that ask for input first, with another call between.
func (c *suiteClient) rounds() error {
	for _, name := range []string{"test_mrtr_echo_state", "test_mrtr_no_state"} {
		asked, err := c.request("tools/call", fixtureObject{"name": name, "arguments": fixtureObject{}})
		if err != nil {
			return err
		}
		if asked["resultType"] != "input_required" {
			return fmt.Errorf("%s: %v, want a question", name, asked)
		}
		if err := c.callAll([]suiteCall{{Name: "test_mrtr_unrelated"}}); err != nil {
			return err
		}
		retry := fixtureObject{"name": name, "arguments": fixtureObject{}}
		answers := fixtureObject{}
		for key := range asked["inputRequests"].(fixtureObject) {
			answers[key] = fixtureObject{"action": "accept", "content": fixtureObject{"confirmed": true}}
		}
		retry["inputResponses"] = answers
		if state, given := asked["requestState"]; given {
			retry["requestState"] = state
		}
		if _, err := c.request("tools/call", retry); err != nil {
			return err
		}
	}
	return c.callAll([]suiteCall{{Name: "test_mrtr_no_result_type"}})
}

func (c *suiteClient) send(message fixtureObject) error {
	message["jsonrpc"] = "2.0"
	text, err := json.Marshal(message)
	if err == nil {
		_, err = c.in.Write(append(text, '\n'))
	}
	return err
}

// request sends a request and reads up to its answer. What is asked meanwhile
// is answered.
func (c *suiteClient) request(method string, params fixtureObject) (fixtureObject, error) {
	c.next++
	if c.modern {
		params["_meta"] = fixtureObject{
			"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
			"io.modelcontextprotocol/clientInfo":         fixtureInfo,
			"io.modelcontextprotocol/clientCapabilities": suiteCapabilities,
		}
	}
	if err := c.send(fixtureObject{"id": c.next, "method": method, "params": params}); err != nil {
		return nil, err
	}
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		var m struct {
			ID            any
			Method        string
			Params        struct{ RequestedSchema fixtureObject }
			Result, Error fixtureObject
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", method, line, err)
		}
		switch {
		case m.Method == "elicitation/create":
			err = c.send(fixtureObject{"id": m.ID, "result": fixtureObject{"action": "accept", "content": defaults(m.Params.RequestedSchema)}})
			if err != nil {
				return nil, err
			}
		case m.Method != "":
		case m.Error != nil:
			return nil, fmt.Errorf("%s %v: %v", method, params["name"], m.Error)
		default:
			return m.Result, nil
		}
	}
}

// defaults fills a form in as one does who just says yes.
func defaults(schema fixtureObject) fixtureObject {
	content := fixtureObject{}
	properties, _ := schema["properties"].(fixtureObject)
	for name, property := range properties {
		if value, has := property.(fixtureObject)["default"]; has {
			content[name] = value
		}
	}
	return content
}
