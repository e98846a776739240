package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// mcpgoLimit is how long anything that has to come may take.
const mcpgoLimit = 30 * time.Second

// atOnce is the setting of the race detector by which a process ends when it
// ends: else a watched one stays for another second, and a chain of them for
// longer than mcp-go's client has patience.
const atOnce = "atexit_sleep_ms=0"

// mcpgoServers are the keys of the two upstreams, in config order: "pipe" is a
// process, "web" is reached over streamable HTTP. Both are an mcpgoUpstream.
var mcpgoServers = []string{"pipe", "web"}

// handshakeEra has mcp-go's client begin with initialize.
var handshakeEra = client.WithProtocolVersion("2025-11-25")

// mcpgoSession is mcp-go's client with coffer as its server.
type mcpgoSession struct {
	*client.Client
	t     *testing.T
	ctx   context.Context
	web   *mcpgoUpstream
	asked chan question // what the client was asked, not yet answered
	inbox *inbox
}

// inbox has the notifications that the client received, in their order.
type inbox struct {
	mu    sync.Mutex                // guards the fields below
	all   []mcp.JSONRPCNotification // not yet taken
	added chan struct{}             // closed by add, which then makes a new one
}

func (b *inbox) add(n mcp.JSONRPCNotification) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, n)
	close(b.added)
	b.added = make(chan struct{})
}

// take removes and returns those that match.
func (b *inbox) take(match func(mcp.JSONRPCNotification) bool) (taken []mcp.JSONRPCNotification, added <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []mcp.JSONRPCNotification
	for _, n := range b.all {
		if match(n) {
			taken = append(taken, n)
		} else {
			left = append(left, n)
		}
	}
	b.all = left
	return taken, b.added
}

// mcpgoCommand returns the environment and arguments of a coffer with both
// upstreams, whose processes are marked.
func mcpgoCommand(t *testing.T) (env, args []string, web *mcpgoUpstream, mark string) {
	t.Helper()
	dir, mark := t.TempDir(), markVar+"="+rand.Text()
	trace := filepath.Join(dir, "trace")
	web, url := serveMCPGo(t, "web", trace)
	config := filepath.Join(dir, "coffer.json")
	writeServers(t, config, map[string]realServer{ // JSON sorts the keys
		"pipe": {Command: testCommand(t, "mcpgoserver"), Args: []string{"pipe", trace}, Env: map[string]string{
			markVar: strings.TrimPrefix(mark, markVar+"="), "GORACE": atOnce,
		}},
		"web": {Type: "streamable-http", URL: url},
	})
	args = []string{"serve", "--config", config, "--db", filepath.Join(dir, "coffer.db"), "--log-level", "debug"}
	return []string{mark, "GORACE=" + atOnce}, args, web, mark
}

// endMCPGo closes the client. Coffer must end well and leave neither process nor
// session, and have told both upstreams nothing that breaks the schema.
func endMCPGo(t *testing.T, c *client.Client, web *mcpgoUpstream, mark string) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("coffer ended with: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), mcpgoLimit)
	defer cancel()
	if err := web.notes.wait(ctx, "session deleted", 1); err != nil {
		t.Errorf("after coffer's end: %v", err)
	}
	if left := waitForMarked(t, mark, 4*time.Second); len(left) > 0 {
		t.Errorf("still running after the client went:\n%s", strings.Join(left, "\n"))
	}
	for _, fault := range upstreamFaults(t, web.trace.file.Name()) {
		t.Errorf("coffer sends what breaks the schema: %s", fault)
	}
}

// startMCPGo starts coffer with both upstreams and shakes hands; the test's end
// ends it.
func startMCPGo(t *testing.T) *mcpgoSession {
	t.Helper()
	env, args, web, mark := mcpgoCommand(t)
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	run := func(ctx context.Context, command string, env, args []string) (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, command, args...)
		cmd.Env, cmd.Stderr = append(os.Environ(), env...), stderr
		return cmd, nil
	}
	pipes := transport.NewStdioWithOptions(cofferBinary(t), env, args, transport.WithCommandFunc(run))

	// The context of Start is the process's life, and t.Context ends before
	// the process may.
	life, end := context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(t.Context(), 4*mcpgoLimit)
	s := &mcpgoSession{t: t, ctx: ctx, web: web, asked: make(chan question), inbox: &inbox{added: make(chan struct{})}}
	answers := answerer{s.asked}
	s.Client = client.NewClient(pipes, handshakeEra,
		client.WithSamplingHandler(answers), client.WithElicitationHandler(answers), client.WithRootsHandler(answers))
	s.OnNotification(s.inbox.add)
	t.Cleanup(func() {
		cancel()
		endMCPGo(t, s.Client, web, mark)
		end()
		if t.Failed() {
			log, _ := os.ReadFile(stderr.Name())
			t.Logf("coffer's stderr:\n%s", log)
		}
		stderr.Close()
	})
	if err := s.Start(life); err != nil {
		t.Fatal(err)
	}
	var hello mcp.InitializeRequest
	hello.Params.ClientInfo = mcp.Implementation{Name: "mcp-go's client", Version: "1.2.1"}
	got, err := s.Initialize(ctx, hello)
	if err != nil {
		t.Fatal(err)
	}
	if got.ProtocolVersion != "2025-11-25" || got.ServerInfo.Name != "coffer" {
		t.Errorf("initialize: %+v", got)
	}
	return s
}

// pairs makes the arguments of a tool from names and values by turns.
func pairs(list ...any) map[string]any {
	all := make(map[string]any)
	for pair := range slices.Chunk(list, 2) {
		all[pair[0].(string)] = pair[1]
	}
	return all
}

// outcome is what came of a call: the text of its result, or its error.
type outcome struct{ text, err string }

// try calls a tool and may be used from any goroutine. token, if not nil, is
// the progress token.
func (s *mcpgoSession) try(ctx context.Context, tool string, arguments map[string]any, token any) outcome {
	var r mcp.CallToolRequest
	r.Params.Name = tool
	if arguments != nil { // else it would say null, which the schema does not allow
		r.Params.Arguments = arguments
	}
	if token != nil {
		r.Params.Meta = &mcp.Meta{ProgressToken: token}
	}
	got, err := s.CallTool(ctx, r)
	if err != nil {
		return outcome{err: err.Error()}
	}
	text := got.Content[0].(mcp.TextContent).Text
	if got.IsError {
		return outcome{err: text}
	}
	return outcome{text: text}
}

// start calls a tool beside the test.
func (s *mcpgoSession) start(tool string, arguments map[string]any, token any) <-chan outcome {
	done := make(chan outcome, 1)
	go func() { done <- s.try(s.ctx, tool, arguments, token) }()
	return done
}

// call calls a tool that must succeed.
func (s *mcpgoSession) call(tool string, arguments map[string]any) string {
	s.t.Helper()
	got := s.try(s.ctx, tool, arguments, nil)
	if got.err != "" {
		s.t.Fatalf("%s %v: %s", tool, arguments, got.err)
	}
	return got.text
}

// await returns when the upstream has noted what n times.
func (s *mcpgoSession) await(name, what string, n int) {
	s.t.Helper()
	s.call(name+"__await", pairs("what", what, "n", n))
}

// receive takes a value from a channel that must give one in time.
func receive[T any](s *mcpgoSession, from <-chan T) T {
	s.t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(mcpgoLimit):
		s.t.Fatalf("nothing came within %v", mcpgoLimit)
		panic("not reached")
	}
}

// notice waits for a notification of the method with the given params, and
// takes it.
func (s *mcpgoSession) notice(method string, params map[string]any) {
	s.t.Helper()
	late := time.After(mcpgoLimit)
	for {
		taken, added := s.inbox.take(func(n mcp.JSONRPCNotification) bool {
			return n.Method == method && maps.EqualFunc(n.Params.AdditionalFields, params, reflect.DeepEqual)
		})
		if len(taken) > 0 {
			return
		}
		select {
		case <-added:
		case <-late:
			rest, _ := s.inbox.take(func(mcp.JSONRPCNotification) bool { return true })
			s.t.Fatalf("no %s %v within %v, only %+v", method, params, mcpgoLimit, rest)
		}
	}
}

// noNotice fails the test if a notification of the method has come.
func (s *mcpgoSession) noNotice(method string) {
	s.t.Helper()
	if got, _ := s.inbox.take(func(n mcp.JSONRPCNotification) bool { return n.Method == method }); len(got) > 0 {
		s.t.Errorf("%+v came, and nobody asked for it", got)
	}
}

// tools returns the names of the tools that coffer lists now.
func (s *mcpgoSession) tools() (names []string) {
	s.t.Helper()
	got, err := s.ListTools(s.ctx, mcp.ListToolsRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, tool := range got.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// prompts returns the names of the prompts that coffer lists now.
func (s *mcpgoSession) prompts() (names []string) {
	s.t.Helper()
	got, err := s.ListPrompts(s.ctx, mcp.ListPromptsRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, prompt := range got.Prompts {
		names = append(names, prompt.Name)
	}
	return names
}

// resources returns the URIs of the resources that coffer lists now.
func (s *mcpgoSession) resources() (uris []string) {
	s.t.Helper()
	got, err := s.ListResources(s.ctx, mcp.ListResourcesRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, resource := range got.Resources {
		uris = append(uris, resource.URI)
	}
	return uris
}

// toJSON writes v as the upstreams do.
func toJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func ask(text string) map[string]any { return pairs("text", text) }

// want compares the outcome of a call that was started with what it must be.
func (s *mcpgoSession) want(what string, done <-chan outcome, want outcome) {
	s.t.Helper()
	if got := receive(s, done); got != want {
		s.t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}
