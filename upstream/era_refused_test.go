package upstream

import (
	"errors"
	"net/http"
	"testing"

	"coffer/jsonrpc"
)

// TestModernHeaderMismatch: the list is read once more, and the call is sent
// once more, not oftener.
func TestModernHeaderMismatch(t *testing.T) {
	f := newModern(t, `[{"name":"run"}]`)
	f.when("tools/call", func(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) {
		if r.Header.Get("Mcp-Param-Region") != "eu" {
			refuse(w, m, http.StatusBadRequest, `{"code":-32020,"message":"header"}`)
			return
		}
		reply(w, m, `{"content":[]}`)
	})
	p := newProxy()
	s := asModern(reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, p))
	_, answers := call(s, "tools/call", `{"name":"run","arguments":{"region":"eu"}}`)
	soon(t, p.missed, "Missed: the list that others keep is as old")
	a := soon(t, answers, "answer")
	if e, ok := a.Err.(*Error); !ok || e.Upstream != "u" || !errors.Is(e, ErrUnavailable) || e.Hint == "" {
		t.Fatalf("got %+v, want an *Error", a)
	}
	says(t, a.Err, "headers", "header (code -32020)")
	f.count(t, "tools/list", 2)
	f.count(t, "tools/call", 2)
	f.has(`[` + regionTool + `]`)
	_, answers = call(s, "tools/call", `{"name":"run","arguments":{"region":"eu"}}`)
	if a := soon(t, answers, "answer"); string(a.Result) != `{"content":[]}` {
		t.Errorf("got %+v", a)
	}
	f.count(t, "tools/list", 3)
	f.count(t, "tools/call", 4)
}

// TestVersionRefusedLater: another server has come to the same place: a call that
// it refuses for its version is made anew, once, in a version that it speaks.
// Bug: the client got an internal error, for ever.
func TestVersionRefusedLater(t *testing.T) {
	f := newModern(t, `[]`)
	s := asModern(reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy()))
	works(t, s)
	refused := func(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) {
		if m.Method == "tools/call" && r.Header.Get("Mcp-Protocol-Version") == "2025-11-25" {
			reply(w, m, `{"content":[]}`)
			return
		}
		refuse(w, m, http.StatusBadRequest, `{"code":-32022,"message":"not that one","data":{"supported":["2025-11-25"]}}`)
	}
	f.when("tools/call", refused)
	f.when("server/discover", refused)
	f.when("initialize", nil)
	works(t, s)
	f.count(t, "tools/call", 3)
	if connected(t, s).Modern() {
		t.Error("the connection is still that of 2026-07-28")
	}
	// One that refuses what it has just agreed to.
	f.when("tools/call", func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) {
		refuse(w, m, http.StatusBadRequest, `{"code":-32022,"message":"nor that","data":{"supported":["2025-11-25"]}}`)
	})
	says(t, fails(t, s), "2025-11-25", "nor that (code -32022)")
	f.count(t, "tools/call", 5)
}
