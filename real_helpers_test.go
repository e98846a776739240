package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// realLimit ends one run of a real program that hangs. The programs need a
// second or two; the rest is for a machine that does many things at once.
const realLimit = 3 * time.Minute

// markVar is the environment variable that marks every process of one run, so
// that a process that outlives its run can be found.
const markVar = "COFFER_TEST_RUN"

// cofferBinary returns a program that is coffer.
func cofferBinary(t *testing.T) string {
	t.Helper()
	return testCommand(t, "coffer")
}

// testCommand returns a program that is one of TestMain's commands: this test
// binary under another name, first on PATH (so the race detector watches the
// command too).
func testCommand(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil || !strings.Contains(path, "testscript-main") {
		t.Fatalf("%s on PATH is %q (%v): TestMain has to register it", name, path, err)
	}
	return path
}

// npmPart returns the absolute path of a script in the pinned npm packages
// under testdata/dir.
func npmPart(t *testing.T, dir string, elem ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", dir, "node_modules", filepath.Join(elem...)))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("a part that this test needs is not installed: run ./test.sh, which installs it (%v)", err)
	}
	return path
}

// realWorld is what the real servers see: files, a database that all runs of
// coffer share as siblings do, and one server that is reached over HTTP.
type realWorld struct {
	files    string // the folder that the filesystem server may read
	memory   string // the memory server's file, copied for each run
	db       string
	home     string
	notesURL string
}

func newRealWorld(t *testing.T) realWorld {
	t.Helper()
	dir := t.TempDir()
	w := realWorld{
		files:    filepath.Join(dir, "files"),
		memory:   filepath.Join(dir, "memory.jsonl"),
		db:       filepath.Join(dir, "coffer.db"),
		home:     filepath.Join(dir, "home"),
		notesURL: startNotes(t),
	}
	for _, sub := range []string{w.files, w.home} {
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(w.files, "a.txt"), "first line\nzweite Zeile <&> \u2028 \"quoted\" \\ 😀\n")
	writeFile(t, filepath.Join(w.files, "big.txt"), strings.Repeat("sixteen bytes é\n", 1<<17))
	writeFile(t, w.memory, `{"type":"entity","name":"Ada","entityType":"person","observations":["wrote the first program"]}`+"\n")
	return w
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// realServer is one entry of an mcpServers object.
type realServer struct {
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Type    string            `json:"type,omitempty"`
	URL     string            `json:"url,omitempty"`
	patience
}

// patience is for a busy machine, which may take long to start five programs:
// that is not what is tested. The first two are coffer's keys, the third is the
// inspector's.
type patience struct {
	ListTimeout       string `json:"list_timeout,omitempty"`
	ConnectTimeout    string `json:"connect_timeout,omitempty"`
	ConnectionTimeout int    `json:"connectionTimeout,omitempty"` // milliseconds
}

// realRun is one run: the servers, each marked and with a memory of its own,
// and coffer before them.
type realRun struct {
	world   realWorld
	mark    string
	servers map[string]realServer // by key; JSON sorts the keys, so config order is this order
	coffer  realServer
	log     string
	// config has the servers and, under the name "coffer", coffer itself: the
	// inspector's file. coffer's own file is beside it.
	config, inspector string
}

func (w realWorld) run(t *testing.T) realRun {
	t.Helper()
	dir := t.TempDir()
	memory, err := os.ReadFile(w.memory)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "memory.jsonl"), string(memory))
	r := realRun{
		world:     w,
		mark:      rand.Text(),
		log:       filepath.Join(dir, "coffer.log"),
		config:    filepath.Join(dir, "inspector.json"),
		inspector: npmPart(t, "npm", ".bin", "mcp-inspector"),
	}
	node := func(env map[string]string, pkg string, args ...string) realServer {
		env[markVar] = r.mark
		script := npmPart(t, "npm", "@modelcontextprotocol", pkg, "dist", "index.js")
		return realServer{Command: "node", Args: append([]string{script}, args...), Env: env}
	}
	r.servers = map[string]realServer{
		"everything": node(map[string]string{}, "server-everything"),
		"filesystem": node(map[string]string{}, "server-filesystem", w.files),
		"memory":     node(map[string]string{"MEMORY_FILE_PATH": filepath.Join(dir, "memory.jsonl")}, "server-memory"),
		"notes":      {Type: "streamable-http", URL: w.notesURL},
	}
	own := filepath.Join(dir, "coffer.json")
	patient := func(servers map[string]realServer, p patience) map[string]realServer {
		servers = maps.Clone(servers)
		for name, entry := range servers {
			entry.patience = p
			servers[name] = entry
		}
		return servers
	}
	writeServers(t, own, patient(r.servers, patience{ListTimeout: "80s", ConnectTimeout: "80s"}))
	r.coffer = realServer{
		Command: cofferBinary(t),
		Args:    []string{"serve", "--config", own, "--db", w.db, "--log-file", r.log},
		Env:     map[string]string{markVar: r.mark},
	}
	all := maps.Clone(r.servers)
	all["coffer"] = r.coffer
	writeServers(t, r.config, patient(all, patience{ConnectionTimeout: 80_000}))
	return r
}

func writeServers(t *testing.T, path string, servers map[string]realServer) {
	t.Helper()
	text, err := json.MarshalIndent(map[string]any{"mcpServers": servers}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, string(text))
}

// names returns the servers' keys in config order.
func (r realRun) names() []string { return slices.Sorted(maps.Keys(r.servers)) }

// inspection is what a run of the inspector tells.
type inspection struct {
	Result json.RawMessage // the result that it got, if any
	Err    string          // its error's text, if any
	Exit   int
	stderr string
}

// inspect runs the official inspector once, as the client of the server of
// that name in the run's file, and sees to it that no process is left. It may
// be called from any goroutine of the test.
func (r realRun) inspect(t *testing.T, era, name string, args ...string) inspection {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realLimit)
	defer cancel()
	args = append([]string{r.inspector, "--cli",
		"--config", r.config, "--server", name, "--protocol-era", era, "--format", "json"}, args...)
	cmd := exec.CommandContext(ctx, "node", args...)
	cmd.Env = append(os.Environ(), "HOME="+r.world.home, "MCP_INSPECTOR_SECRET_STORE=memory")
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Errorf("inspector of %s: %v (%v)\n%s", name, err, ctx.Err(), r.explain(stderr.String()))
	}
	got := inspection{Exit: cmd.ProcessState.ExitCode(), stderr: stderr.String()}
	for line := range strings.Lines(got.stderr) {
		var said struct{ Error struct{ Message string } }
		if json.Unmarshal([]byte(line), &said) == nil && said.Error.Message != "" {
			got.Err = said.Error.Message
		}
	}
	if stdout.Len() > 0 {
		var said struct{ Result json.RawMessage }
		if err := json.Unmarshal(stdout.Bytes(), &said); err != nil {
			t.Errorf("inspector of %s: stdout %q: %v", name, stdout.String(), err)
		}
		got.Result = said.Result
	}
	if name == "coffer" { // the inspector itself leaves a server that ignores the end of its stdin
		r.checkNothingLeft(t)
	}
	return got
}

// checkNothingLeft fails the test if a marked process outlives its run by more
// than coffer may take to go (design: 3.5 s after its stdin closed).
func (r realRun) checkNothingLeft(t *testing.T) {
	t.Helper()
	if left := waitForMarked(t, markVar+"="+r.mark, 4*time.Second); len(left) > 0 {
		t.Errorf("still running after the client went:\n%s", strings.Join(left, "\n"))
	}
}

// explain adds coffer's log to what a program said.
func (r realRun) explain(stderr string) string {
	log, _ := os.ReadFile(r.log)
	return fmt.Sprintf("stderr:\n%s\ncoffer's log:\n%s", stderr, log)
}

// startNotes starts the server that is reached over streamable HTTP: mcp-go's,
// with something of each kind.
func startNotes(t *testing.T) string {
	t.Helper()
	s := server.NewMCPServer("notes", "1.0.0",
		server.WithToolCapabilities(true), server.WithResourceCapabilities(true, true), server.WithPromptCapabilities(true))
	s.AddTool(mcp.NewTool("shout",
		mcp.WithDescription("Says it loudly"),
		mcp.WithTitleAnnotation("Shout"), mcp.WithReadOnlyHintAnnotation(true),
		mcp.WithString("text", mcp.Required(), mcp.Description("what to shout"), mcp.MinLength(1))),
		func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text := strings.ToUpper(req.GetString("text", ""))
			return mcp.NewToolResultStructured(map[string]any{"text": text, "letters": len(text)}, text), nil
		})
	s.AddTool(mcp.NewTool("grumble", mcp.WithDescription("Fails, as a tool may")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError("not today"), nil
		})
	text := func(uri, text string) []mcp.ResourceContents {
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: uri, MIMEType: "text/plain", Text: text}}
	}
	s.AddResource(mcp.NewResource("note://today", "today", mcp.WithMIMEType("text/plain")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return text("note://today", "buy <milk> & bread"), nil
		})
	s.AddResourceTemplate(mcp.NewResourceTemplate("note://by-id/{id}", "note", mcp.WithTemplateDescription("one note")),
		func(_ context.Context, req mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return text(req.Params.URI, "note at "+req.Params.URI), nil
		})
	s.AddPrompt(mcp.NewPrompt("greet", mcp.WithPromptDescription("A greeting"),
		mcp.WithArgument("name", mcp.RequiredArgument(), mcp.ArgumentDescription("whom"))),
		func(_ context.Context, req mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			message := mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent("Greet "+req.Params.Arguments["name"]))
			return mcp.NewGetPromptResult("A greeting", []mcp.PromptMessage{message}), nil
		})
	ts := httptest.NewServer(server.NewStreamableHTTPServer(s))
	t.Cleanup(ts.Close)
	return ts.URL + "/mcp"
}
