package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"coffer/jsonrpc"
)

var updateWalkthrough = flag.Bool("update", false, "rewrite the outputs in "+walkthrough)

const walkthrough = "WALKTHROUGH.md"

// What the page calls the places that a test has elsewhere.
const (
	pageHome   = "/home/ada"
	pageCoffer = "/usr/local/bin/coffer"
)

// variable is what differs from run to run, and what the page's line and the run's
// both become before they are compared.
var variable = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d`), "TIME"},
	{regexp.MustCompile(`\d{8}T\d{6}Z`), "STAMP"},
	{regexp.MustCompile(`pid \d+`), "pid PID"},
	{regexp.MustCompile(`\d+(\.\d)? ms`), "TOOK"},
	{regexp.MustCompile(`(?m) +$`), ""},
	{regexp.MustCompile(` +`), " "}, // a column is as wide as what is in it
}

// alike is text with what differs from run to run taken out.
func alike(text string) string {
	for _, v := range variable {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	return text
}

// walk is one walk through the page, in a home folder of its own.
type walk struct {
	t      *testing.T
	home   string
	toPage *strings.Replacer // of what is printed
	client *demoClient       // nil while none runs
}

// namesFile is the line above a block that is a file.
var namesFile = regexp.MustCompile("`~/([^`]+)`:$")

// TestWalkthrough does what the page shows, in its order, and gets what it shows.
// Blocks are of three kinds: a file (the line above names it), console (commands
// behind $, each with what it prints) and client (what a client that starts coffer
// by its own file sends behind >, and what comes back).
func TestWalkthrough(t *testing.T) {
	ownRuntimeFolder(t)
	w := &walk{t: t, home: t.TempDir()}
	w.toPage = strings.NewReplacer(w.home, pageHome, cofferBinary(t), pageCoffer)
	for name, value := range map[string]string{"HOME": w.home, "PATH": filepath.Join(w.home, "bin") + ":" + os.Getenv("PATH"),
		"NO_COLOR": "1", "GORACE": atOnce, "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": "", "COFFER_CONFIG": "", "COFFER_DB": ""} {
		t.Setenv(name, value)
	}
	page, err := os.ReadFile(walkthrough)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if w.client != nil {
			w.client.close()
		}
	}()
	now := w.page(strings.Split(string(page), "\n"))
	if *updateWalkthrough {
		writeFile(t, walkthrough, strings.Join(now, "\n"))
	}
}

// page runs the blocks of the page's lines and returns the lines as they should be.
func (w *walk) page(lines []string) (now []string) {
	above, ran := "", 0
	for len(lines) > 0 {
		line := lines[0]
		now, lines = append(now, line), lines[1:]
		kind, opens := strings.CutPrefix(line, "```")
		if !opens {
			if line != "" {
				above = line
			}
			continue
		}
		end := slices.Index(lines, "```")
		if end < 0 {
			w.t.Fatalf("%s: the block below %q does not end", walkthrough, above)
		}
		block := lines[:end:end]
		lines = lines[end+1:]
		switch file := namesFile.FindStringSubmatch(above); {
		case kind == "console":
			block, ran = w.steps(block, "$ ", w.shell), ran+1
		case kind == "client":
			block, ran = w.steps(block, "> ", w.ask), ran+1
		case file != nil:
			path := filepath.Join(w.home, file[1])
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				w.t.Fatal(err)
			}
			writeFile(w.t, path, strings.Join(block, "\n")+"\n")
		default:
			w.t.Fatalf("%s: a block of no kind below %q", walkthrough, above)
		}
		now = append(append(now, block...), "```")
	}
	if ran == 0 {
		w.t.Fatalf("%s has no blocks to run", walkthrough)
	}
	return now
}

// steps runs what stands behind prompt in a block, one after the other, and returns
// the block with what each printed, where that is not what the page has.
func (w *walk) steps(block []string, prompt string, run func(string) string) (now []string) {
	for len(block) > 0 {
		step, ok := strings.CutPrefix(block[0], prompt)
		if !ok {
			w.t.Fatalf("%s: %q is behind no %q", walkthrough, block[0], prompt)
		}
		end := 1
		for end < len(block) && !strings.HasPrefix(block[end], prompt) {
			end++
		}
		want := strings.Join(block[1:end], "\n")
		got := strings.TrimSuffix(w.toPage.Replace(run(step)), "\n")
		now = append(now, block[0])
		if alike(got) == alike(want) {
			got = want
		} else if !*updateWalkthrough {
			w.t.Errorf("%s: %s\n-- prints:\n%s\n-- and the page has:\n%s", walkthrough, block[0], got, want)
		}
		if got != "" {
			now = append(now, got)
		}
		block = block[end:]
	}
	return now
}

// shell runs a command line in the home folder and returns what a person sees.
func (w *walk) shell(line string) string {
	if w.client != nil {
		select { // a notice that comes later is about this command
		case <-w.client.changed:
		default:
		}
	}
	cmd := exec.CommandContext(w.t.Context(), "sh", "-c", line)
	cmd.Dir = w.home
	out, err := cmd.CombinedOutput()
	if failed := bytes.Contains(out, []byte("coffer: error: ")); failed != (err != nil) {
		w.t.Errorf("%s: %s: %v, which is not what it says:\n%s", walkthrough, line, err, out)
	}
	return string(out)
}

// ask is one step of the client: a method with its arguments, or what it does.
func (w *walk) ask(step string) string {
	method, arguments, _ := strings.Cut(step, " ")
	if method == "initialize" {
		return w.start()
	}
	if w.client == nil {
		w.t.Fatalf("%s: no client for %s", walkthrough, step)
	}
	switch method {
	case "tools/list":
		tools, err := w.client.tools(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		return strings.Join(namesOf(tools), "\n")
	case "tools/call":
		name, arguments, _ := strings.Cut(arguments, " ")
		result, err := w.client.callTool(w.t.Context(), name, arguments)
		if refused, ok := errors.AsType[*jsonrpc.Error](err); ok {
			code, _ := jsonrpc.TextAt(refused.Raw, "data", "code")
			return fmt.Sprintf("error %d %s: %s", refused.Code, code, refused.Message)
		} else if err != nil {
			w.t.Fatal(err)
		}
		content, _ := jsonrpc.Elements(jsonrpc.Lookup(result, "content"))
		text, _ := jsonrpc.TextAt(content[0], "text")
		return text
	case "wait": // for a notice
		select {
		case <-w.client.changed:
			return "notifications/tools/list_changed"
		case <-time.After(liveLimit):
			return "nothing"
		}
	case "leave":
		if err := w.client.close(); err != nil {
			w.t.Errorf("coffer, when its client left: %v\n%s", err, w.client.log.String())
		}
		w.client = nil
		return ""
	}
	w.t.Fatalf("%s: the client cannot %s", walkthrough, step)
	return ""
}

// start starts coffer as Cursor does: by what its file says.
func (w *walk) start() string {
	text, err := os.ReadFile(filepath.Join(w.home, ".cursor", "mcp.json"))
	if err != nil {
		w.t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^\s*//.*$`).ReplaceAll(text, nil)
	var file struct {
		MCPServers map[string]struct {
			Command string
			Args    []string
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		w.t.Fatalf("%v in %s", err, text)
	}
	own := file.MCPServers[ownName]
	if w.client, err = startDemoClient(w.t.Context(), own.Command, own.Args); err != nil {
		w.t.Fatal(err)
	}
	result, err := w.client.call(w.t.Context(), "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"cursor-vscode","version":"1.0.0"}}`)
	if err != nil {
		w.t.Fatal(err)
	}
	w.client.notify("notifications/initialized")
	name, _ := jsonrpc.TextAt(result, "serverInfo", "name")
	version, _ := jsonrpc.TextAt(result, "protocolVersion")
	return name + ", protocol " + version
}
