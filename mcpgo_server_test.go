package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// mcpgoMain is the command "mcpgoserver NAME TRACE": an mcpgoUpstream on stdin
// and stdout.
func mcpgoMain() {
	u := newMCPGoUpstream(os.Args[1], os.Args[2])
	stdio := server.NewStdioServer(u.server)
	server.WithWorkerPoolSize(30)(stdio) // tools wait for one another
	stdin := &tracedStdin{Reader: os.Stdin, trace: u.trace}
	if err := stdio.Listen(context.Background(), stdin, &mcpgoWire{os.Stdout, u}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "leaving")
}

// serveMCPGo starts an mcpgoUpstream that is reached over streamable HTTP, and
// traced at path.
func serveMCPGo(t *testing.T, name, path string) (*mcpgoUpstream, string) {
	t.Helper()
	u := newMCPGoUpstream(name, path)
	t.Cleanup(func() { u.trace.file.Close() })
	handler := server.NewStreamableHTTPServer(u.server, server.WithStateful(true),
		server.WithHeartbeatInterval(50*time.Millisecond), server.WithStreamableHTTPLogger(slog.New(slog.DiscardHandler)))
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		u.trace.said('<', body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var m struct {
			Method string
			Result json.RawMessage
		}
		if json.Unmarshal(body, &m) == nil && m.Method == "" && string(m.Result) == "{}" {
			u.notes.add("ping answered") // of the heart beat
		}
		if r.Method == http.MethodDelete {
			u.notes.add("session deleted")
		}
		handler.ServeHTTP(tracedResponse{w, u.trace}, r)
	}))
	t.Cleanup(ts.Close)
	return u, ts.URL
}

// mcpgoWire is a stdout that notes which notifications have left the process:
// mcp-go writes them from a goroutine of their own, after the result of the
// tool that sent them if it can.
type mcpgoWire struct {
	io.Writer
	of *mcpgoUpstream
}

func (w *mcpgoWire) Write(line []byte) (int, error) {
	w.of.trace.said('>', line)
	n, err := w.Writer.Write(line)
	var m struct {
		Method string
		Params struct {
			ProgressToken json.RawMessage
			URI           string
			Data          string
		}
	}
	if json.Unmarshal(line, &m) == nil && strings.HasPrefix(m.Method, "notifications/") {
		w.of.notes.add(fmt.Sprint(m.Method, " ", string(m.Params.ProgressToken), m.Params.URI, m.Params.Data))
	}
	return n, err
}

// noteBook counts what has happened, by what it is, so that it can be waited for.
type noteBook struct {
	mu    sync.Mutex     // guards the fields below
	count map[string]int // by note
	added chan struct{}  // closed by add, which then makes a new one
}

func newNoteBook() *noteBook {
	return &noteBook{count: make(map[string]int), added: make(chan struct{})}
}

func (b *noteBook) add(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count[what]++
	close(b.added)
	b.added = make(chan struct{})
}

// wait returns when what has happened n times.
func (b *noteBook) wait(ctx context.Context, what string, n int) error {
	for {
		b.mu.Lock()
		got, added := b.count[what], b.added
		b.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-added:
		case <-ctx.Done():
			return fmt.Errorf("%q has happened %d times, waiting for %d: %w", what, got, n, ctx.Err())
		}
	}
}

// mcpgoUpstream is one of mcp-go's servers, with tools that make it do all that
// a server may do, and a note of what the client does.
type mcpgoUpstream struct {
	name   string
	server *server.MCPServer
	notes  *noteBook
	trace  *mcpgoTrace
}

// newMCPGoUpstream returns one whose trace is the file at path.
func newMCPGoUpstream(name, path string) *mcpgoUpstream {
	u := &mcpgoUpstream{name: name, notes: newNoteBook(), trace: newMCPGoTrace(name, path)}
	hooks := &server.Hooks{}
	hooks.AddAfterSetLevel(func(_ context.Context, _ any, r *mcp.SetLevelRequest, _ *mcp.EmptyResult) {
		u.notes.add("level " + string(r.Params.Level))
	})
	hooks.AddAfterSubscribe(func(_ context.Context, _ any, r *mcp.SubscribeRequest, _ *mcp.EmptyResult) {
		u.notes.add("subscribed " + r.Params.URI)
	})
	hooks.AddAfterUnsubscribe(func(_ context.Context, _ any, r *mcp.UnsubscribeRequest, _ *mcp.EmptyResult) {
		u.notes.add("unsubscribed " + r.Params.URI)
	})
	u.server = server.NewMCPServer("mcp-go "+name, "1.0.0", server.WithHooks(hooks),
		server.WithToolCapabilities(true), server.WithPromptCapabilities(true), server.WithResourceCapabilities(true, true),
		server.WithLogging(), server.WithCompletions(), server.WithElicitation(), server.WithRoots(),
		server.WithPromptCompletionProvider(u), server.WithResourceCompletionProvider(u))
	u.server.EnableSampling()
	u.server.AddNotificationHandler("notifications/roots/list_changed", func(context.Context, mcp.JSONRPCNotification) {
		u.notes.add("roots changed")
	})
	for tool, handler := range map[string]func(context.Context, mcp.CallToolRequest) (any, error){
		"sample": u.sample, "elicit": u.elicit, "roots": u.roots, "client": u.client,
		"count": u.countUp, "block": u.block, "log": u.log, "touch": u.touch, "grow": u.grow,
		"note": u.note, "await": u.await,
	} {
		u.server.AddTool(mcp.NewTool(tool), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			result, err := handler(ctx, r)
			if err != nil {
				return mcp.NewToolResultError(err.Error()), nil
			}
			text, err := json.Marshal(result)
			return mcp.NewToolResultText(string(text)), err
		})
	}
	for _, uri := range []string{name + "://state", "shared://board"} {
		u.server.AddResource(mcp.NewResource(uri, uri), u.read)
	}
	u.server.AddResourceTemplate(mcp.NewResourceTemplate(name+"://item/{id}", "item"), u.read)
	u.server.AddPrompt(mcp.NewPrompt("greet", mcp.WithArgument("whom")), u.greet)
	return u
}

func (u *mcpgoUpstream) sample(ctx context.Context, r mcp.CallToolRequest) (any, error) {
	//lint:ignore SA1019 sampling belongs to the handshake era
	got, err := u.server.RequestSampling(ctx, mcp.CreateMessageRequest{CreateMessageParams: mcp.CreateMessageParams{
		Messages:     []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent(r.GetString("text", ""))}},
		SystemPrompt: "you are " + u.name,
		MaxTokens:    7,
	}})
	if err != nil {
		return nil, err
	}
	return []any{got.Role, got.Content, got.Model, got.StopReason}, nil
}

func (u *mcpgoUpstream) elicit(ctx context.Context, r mcp.CallToolRequest) (any, error) {
	got, err := u.server.RequestElicitation(ctx, mcp.ElicitationRequest{Params: mcp.ElicitationParams{
		Message: r.GetString("text", ""),
		RequestedSchema: map[string]any{
			"type":       "object",
			"properties": map[string]any{u.name: map[string]any{"type": "string"}},
		},
	}})
	if err != nil {
		return nil, err
	}
	return []any{got.Action, got.Content}, nil
}

func (u *mcpgoUpstream) roots(ctx context.Context, _ mcp.CallToolRequest) (any, error) {
	got, err := u.server.RequestRoots(ctx, mcp.ListRootsRequest{})
	if err != nil {
		return nil, err
	}
	return got.Roots, nil
}

// client tells what the client has said of itself.
func (u *mcpgoUpstream) client(ctx context.Context, _ mcp.CallToolRequest) (any, error) {
	session := server.ClientSessionFromContext(ctx).(server.SessionWithClientInfo)
	return []any{session.GetClientInfo(), session.GetClientCapabilities()}, nil
}

// countUp sends progress up to the number "to". With a "gate" each notice
// waits until the gate has been noted once more.
func (u *mcpgoUpstream) countUp(ctx context.Context, r mcp.CallToolRequest) (any, error) {
	to, gate := r.GetInt("to", 0), r.GetString("gate", "")
	token := r.Params.Meta.ProgressToken
	raw, err := json.Marshal(token)
	if err != nil {
		return nil, err
	}
	written := "notifications/progress " + string(raw)
	const most = 20 // under way at once: mcp-go throws away what does not fit its queue
	for i := 1; i <= to && err == nil; i++ {
		if gate == "" {
			err = u.notes.wait(ctx, written, i-most)
		} else {
			err = u.notes.wait(ctx, gate, i)
		}
		if err == nil {
			err = u.server.SendNotificationToClient(ctx, "notifications/progress", map[string]any{
				"progressToken": token, "progress": i, "total": to, "message": fmt.Sprint(u.name, " ", i),
			})
		}
	}
	if err == nil && gate == "" {
		err = u.notes.wait(ctx, written, to)
	} else if err == nil {
		err = u.notes.wait(ctx, gate, to+1)
	}
	return to, err
}

// block runs until it is cancelled.
func (u *mcpgoUpstream) block(ctx context.Context, r mcp.CallToolRequest) (any, error) {
	name := r.GetString("as", "")
	u.notes.add("started " + name)
	<-ctx.Done()
	u.notes.add("cancelled " + name)
	return nil, ctx.Err()
}

// log sends a log message, with "rude" without a look at the level that was set.
func (u *mcpgoUpstream) log(ctx context.Context, r mcp.CallToolRequest) (any, error) {
	level, logger, text := r.GetString("level", ""), r.GetString("logger", ""), r.GetString("text", "")
	if r.GetBool("rude", false) {
		params := map[string]any{"level": level, "logger": logger, "data": text}
		return nil, u.server.SendNotificationToClient(ctx, "notifications/message", params)
	}
	return nil, u.server.SendLogMessageToClient(ctx, mcp.NewLoggingMessageNotification(mcp.LoggingLevel(level), logger, text))
}

// touch says that a resource has changed, whether anybody asked or not.
func (u *mcpgoUpstream) touch(ctx context.Context, r mcp.CallToolRequest) (any, error) {
	const method = "notifications/resources/updated"
	err := u.server.SendNotificationToClient(ctx, method, map[string]any{"uri": r.GetString("uri", "")})
	return nil, err
}

// grow adds something of the given kind.
func (u *mcpgoUpstream) grow(_ context.Context, r mcp.CallToolRequest) (any, error) {
	switch kind := r.GetString("kind", ""); kind {
	case "tools":
		u.server.AddTool(mcp.NewTool("late"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("late tool of " + u.name), nil
		})
	case "prompts":
		u.server.AddPrompt(mcp.NewPrompt("late"), u.greet)
	case "resources":
		u.server.AddResource(mcp.NewResource(u.name+"://late", "late"), u.read)
		u.server.AddResourceTemplate(mcp.NewResourceTemplate(u.name+"://late/{id}", "late"), u.read)
	default:
		return nil, fmt.Errorf("what is %q?", kind)
	}
	return nil, nil
}

func (u *mcpgoUpstream) note(_ context.Context, r mcp.CallToolRequest) (any, error) {
	u.notes.add(r.GetString("what", ""))
	return nil, nil
}

func (u *mcpgoUpstream) await(ctx context.Context, r mcp.CallToolRequest) (any, error) {
	return nil, u.notes.wait(ctx, r.GetString("what", ""), r.GetInt("n", 1))
}

func (u *mcpgoUpstream) read(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	return []mcp.ResourceContents{mcp.TextResourceContents{
		URI: r.Params.URI, MIMEType: "text/plain", Text: u.name + " has " + r.Params.URI,
	}}, nil
}

func (u *mcpgoUpstream) greet(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	text := fmt.Sprintf("%s: %s %s", u.name, r.Params.Name, r.Params.Arguments["whom"])
	return mcp.NewGetPromptResult("from "+u.name, []mcp.PromptMessage{
		mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent(text)),
	}), nil
}

// CompletePromptArgument implements server.PromptCompletionProvider.
func (u *mcpgoUpstream) CompletePromptArgument(_ context.Context, prompt string, a mcp.CompleteArgument, c mcp.CompleteContext) (*mcp.Completion, error) {
	return u.complete(prompt, a, c), nil
}

// CompleteResourceArgument implements server.ResourceCompletionProvider.
func (u *mcpgoUpstream) CompleteResourceArgument(_ context.Context, uri string, a mcp.CompleteArgument, c mcp.CompleteContext) (*mcp.Completion, error) {
	return u.complete(uri, a, c), nil
}

func (u *mcpgoUpstream) complete(of string, a mcp.CompleteArgument, c mcp.CompleteContext) *mcp.Completion {
	return &mcp.Completion{Values: []string{u.name, of, a.Name, a.Value, c.Arguments["before"]}, Total: 1000, HasMore: true}
}
