package upstream

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/mark3labs/mcp-go/server/servertest"

	"coffer/jsonrpc"
)

// newMCPGo returns a real server with one tool, which reports progress and
// answers when that has been heard: it sends notices beside the answer, which
// may overtake them.
func newMCPGo(heard <-chan struct{}) *server.MCPServer {
	s := server.NewMCPServer("real", "1", server.WithToolCapabilities(true), server.WithLogging())
	s.AddTool(mcp.NewTool("echo", mcp.WithString("text")), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.Params.Meta != nil && r.Params.Meta.ProgressToken != nil {
			if err := s.SendNotificationToClient(ctx, "notifications/progress", map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": 1}); err != nil {
				return nil, err
			}
			select {
			case <-heard:
			case <-time.After(patience):
			}
		}
		return mcp.NewToolResultText(r.GetString("text", "")), nil
	})
	return s
}

// echo calls the tool with a progress token and returns its answer. heard is
// newMCPGo's.
func echo(t *testing.T, s *Server, heard chan<- struct{}) (a jsonrpc.Answer, progress string) {
	t.Helper()
	steps := make(chan string, 10)
	answers := make(chan jsonrpc.Answer, 1)
	token := `{"name":"echo","arguments":{"text":"hi"},"_meta":{"progressToken":"tok"}}`
	at := strings.Index(token, `"tok"`)
	params := []byte(token)
	r := &Request{
		Method: "tools/call", Params: params, Token: params[at : at+5],
		Progress: func(params []byte) {
			steps <- string(params)
			heard <- struct{}{}
		},
		Done: func(a jsonrpc.Answer) { answers <- a },
	}
	if c := s.Start(r); c != nil {
		c.Flush()
	}
	a = soon(t, answers, "answer")
	select {
	case progress = <-steps:
	default:
	}
	return a, progress
}

func TestMCPGoStreamable(t *testing.T) {
	heard := make(chan struct{}, 10)
	real := newMCPGo(heard)
	handler := server.NewStreamableHTTPServer(real, server.WithEndpointPath("/mcp"))
	front := httptest.NewServer(handler)
	p := newProxy()
	s := reach(t, Spec{Transport: TransportHTTP, URL: front.URL + "/mcp"}, p)
	a, progress := echo(t, s, heard)
	if !strings.Contains(string(a.Result), `"text":"hi"`) || !strings.Contains(progress, `"progressToken":"tok"`) {
		t.Fatalf("got %s %s %v and progress %s", a.Result, a.Error, a.Err, progress)
	}
	// Its GET stream brings what belongs to no call. The server drops what it
	// sends before the stream is there, so it says so until it is heard.
	for n := 0; len(p.notified) == 0 && n < 100; n++ {
		real.AddTool(mcp.NewTool("another"), nil)
		time.Sleep(20 * time.Millisecond)
	}
	if got := soon(t, p.notified, "notification"); !strings.HasPrefix(got, "notifications/tools/list_changed") {
		t.Errorf("got %s", got)
	}
	l, err := connected(t, s).List(t.Context(), Tools)
	if err != nil || len(l.Items) != 2 {
		t.Errorf("got %+v, %v", l, err)
	}

	// The server is restarted: the session is gone, the next call heals it.
	address := front.Listener.Addr().String()
	front.CloseClientConnections()
	front.Close()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err) // somebody else took the port
	}
	again := &httptest.Server{Listener: listener, Config: &http.Server{Handler: server.NewStreamableHTTPServer(newMCPGo(heard), server.WithEndpointPath("/mcp"))}}
	again.Start()
	t.Cleanup(again.Close)
	a, _ = echo(t, s, heard)
	for n := 0; n < 10 && a.Err != nil && strings.Contains(a.Err.Error(), "may have run"); n++ {
		a, _ = echo(t, s, heard) // the one before went out on a connection that was just dying
	}
	if a.Result == nil {
		t.Errorf("after a restart: %s %v", a.Error, a.Err)
	}
}

func TestMCPGoSSE(t *testing.T) {
	heard := make(chan struct{}, 10)
	real := servertest.NewTestServer(newMCPGo(heard))
	t.Cleanup(real.Close)
	for _, transport := range []Transport{TransportSSE, TransportHTTP} {
		s := reach(t, Spec{Transport: transport, URL: real.URL + "/sse"}, newProxy())
		a, progress := echo(t, s, heard)
		if !strings.Contains(string(a.Result), `"text":"hi"`) || !strings.Contains(progress, `"progressToken":"tok"`) {
			t.Errorf("got %s %s %v and progress %s", a.Result, a.Error, a.Err, progress)
		}
		l, err := connected(t, s).List(t.Context(), Tools)
		if err != nil || len(l.Items) != 1 {
			t.Errorf("got %+v, %v", l, err)
		}
	}
}
