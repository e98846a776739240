package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"coffer/jsonrpc"
	"coffer/upstream/upstreamtest"
)

// TestQuestionBelongsToItsStream: over HTTP the stream tells which call an
// upstream of the handshake era asks for. Bug: the newest open call was taken,
// here the prompt.
func TestQuestionBelongsToItsStream(t *testing.T) {
	p := startPairing(t, statelessVersion, func(trace string) realServer {
		return pairedUpstream(t, "http", upstreamtest.Script{
			Versions: []string{handshakeVersion}, SSE: true, Trace: trace,
			Tools: raws(pairingTool("ask")), Prompts: raws([]byte(`{"name":"late"}`)),
			Rules: []upstreamtest.Rule{
				{Method: "tools/call", After: "prompts/get", Ask: []upstreamtest.Question{{Method: "roots/list"}}, Result: []byte(`{"content":[]}`)},
				{Method: "prompts/get", After: "completion/complete"},
			},
		})
	})
	p.result(p.request("tools/list", `{}`)) // so that nothing is asked before what follows
	p.result(p.request("prompts/list", `{}`))
	call := p.request("tools/call", `{"name":"up__ask"}`)
	prompt := p.request("prompts/get", `{"name":"up__late"}`)
	asked := p.result(call)
	state := jsonrpc.Lookup(asked, "requestState")
	if jsonrpc.Lookup(asked, "inputRequests", "q1") == nil || state == nil {
		t.Fatalf("got %s, want the question", asked)
	}
	p.result(p.request("tools/call", `{"name":"up__ask","inputResponses":{"q1":{"roots":[]}},"requestState":`+string(state)+`}`))
	complete := p.request("completion/complete", `{"ref":{"type":"ref/prompt","name":"up__late"},"argument":{"name":"a","value":""}}`)
	for range 2 {
		if m := p.next(); m.Result == nil || string(m.ID) != prompt && string(m.ID) != complete {
			t.Errorf("got id %s, %s %s, error %s", m.ID, m.Method, m.Params, m.Error)
		}
	}
	p.end(t)
}

// TestHeaderMismatchRenewsTheList: a call that was refused for its headers tells
// that the list of tools is old. Bug: it was read again for the headers only,
// and the client was given the old one until its time was up.
func TestHeaderMismatchRenewsTheList(t *testing.T) {
	const schema = `{"type":"object","properties":{"region":{"type":"string"%s}}}`
	tool := func(annotation string) []json.RawMessage {
		return raws([]byte(`{"name":"run","inputSchema":` + fmt.Sprintf(schema, annotation) + `}`))
	}
	var server *upstreamtest.Server
	p := startPairing(t, statelessVersion, func(trace string) realServer {
		server = upstreamtest.NewServer(upstreamtest.Script{Versions: []string{statelessVersion}, Trace: trace, Tools: tool("")})
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			m, err := jsonrpc.Parse(body)
			if err == nil && m.Method == "tools/call" && r.Header.Get("Mcp-Param-Region") == "" {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				w.Write((&jsonrpc.Message{ID: m.ID, Error: jsonrpc.ErrorObject(-32020, "Mcp-Param-Region", nil)}).Append(nil))
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			server.ServeHTTP(w, r)
		}))
		t.Cleanup(web.Close)
		return realServer{Type: "streamable-http", URL: web.URL}
	})
	p.listen = p.request("subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
	p.notification("notifications/subscriptions/acknowledged")
	p.result(p.request("tools/list", `{}`))
	server.Change(func(s *upstreamtest.Script) { s.Tools = tool(`,"x-mcp-header":"Region"`) })

	call := p.request("tools/call", `{"name":"up__run","arguments":{"region":"eu"}}`)
	for range 2 { // in either order
		switch m := p.next(); {
		case m.Method == "notifications/tools/list_changed":
			p.tagged(m)
		case string(m.ID) != call || m.Result == nil:
			t.Fatalf("got id %s, %s %s, error %s", m.ID, m.Method, m.Params, m.Error)
		}
	}
	list := p.result(p.request("tools/list", `{}`))
	tools, _ := jsonrpc.Elements(jsonrpc.Lookup(list, "tools"))
	if got, want := string(jsonrpc.Lookup(tools[0], "inputSchema")), fmt.Sprintf(schema, `,"x-mcp-header":"Region"`); got != want {
		t.Errorf("the list has %s, want %s", got, want)
	}
	p.end(t)
}
