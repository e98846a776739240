package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"coffer/jsonrpc"
	"coffer/upstream/upstreamtest"
)

// asModern makes the client of a test one of 2026-07-28.
func asModern(s *Server) *Server {
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	s.set.client.Modern = true
	return s
}

// refuse answers m with an HTTP status and a JSON-RPC error.
func refuse(w http.ResponseWriter, m *jsonrpc.Message, status int, object string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, object)
}

// newModern returns a server of 2026-07-28 alone, which has these tools.
func newModern(t *testing.T, tools string) *fakeServer {
	f := newFake(t)
	f.session = ""
	f.when("server/discover", func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) {
		reply(w, m, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}}}`)
	})
	f.when("initialize", func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) {
		refuse(w, m, http.StatusBadRequest, `{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}`)
	})
	f.has(tools)
	return f
}

func (f *fakeServer) has(tools string) {
	f.when("tools/list", func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) {
		reply(w, m, `{"resultType":"complete","ttlMs":0,"tools":`+tools+`}`)
	})
}

const regionTool = `{"name":"run","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}}`

// wants fails the test unless the newest request for a method had the headers.
func (f *fakeServer) wants(t *testing.T, what string, want map[string]string) {
	t.Helper()
	seen := f.all(what)
	if len(seen) == 0 {
		t.Fatalf("%s was not sent", what)
	}
	header := seen[len(seen)-1].header
	for name, value := range want {
		if got := strings.Join(header.Values(name), "|"); got != value {
			t.Errorf("%s: %s is %q, want %q", what, name, got, value)
		}
	}
}

func TestModernHeaders(t *testing.T) {
	f := newModern(t, `[`+regionTool+`,{"name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}]`)
	s := asModern(reach(t, Spec{Transport: TransportHTTP, URL: f.URL, Headers: map[string]string{"Mcp-Param-Region": "mine", "Mcp-Name": "mine", "X-Own": "o"}}, newProxy()))
	c := connected(t, s)
	if !c.Modern() || !s.Modern() {
		t.Fatalf("version %q", c.Version())
	}
	f.wants(t, "server/discover", map[string]string{"Mcp-Protocol-Version": ModernVersion, "Mcp-Method": "server/discover", "Mcp-Name": "", "Mcp-Session-Id": "", "Accept": "application/json, text/event-stream", "X-Own": "o"})
	// The first call finds no list of tools yet.
	_, answers := call(s, "tools/call", `{"name":"run","arguments":{"region":"Zürich","deep":{"n":7}}}`)
	if a := soon(t, answers, "answer"); string(a.Result) != `{"content":[]}` {
		t.Fatalf("got %+v", a)
	}
	f.count(t, "tools/list", 1)
	f.wants(t, "tools/call", map[string]string{
		"Mcp-Protocol-Version": ModernVersion, "Mcp-Method": "tools/call", "Mcp-Name": "run",
		"Mcp-Param-Region": "=?base64?WsO8cmljaA==?=", "Mcp-Param-N": "7",
	})
	_, answers = call(s, "tools/call", `{"name":"wörk","arguments":{"region":null}}`)
	soon(t, answers, "answer")
	f.count(t, "tools/list", 1)
	f.wants(t, "tools/call", map[string]string{"Mcp-Name": "=?base64?d8O2cms=?=", "Mcp-Param-Region": ""})
	_, answers = call(s, "resources/read", `{"uri":"file:///a b"}`)
	soon(t, answers, "answer")
	f.wants(t, "resources/read", map[string]string{"Mcp-Method": "resources/read", "Mcp-Name": "file:///a b"})
	_, answers = call(s, "prompts/get", `{"name":"=?base64?x?="}`)
	soon(t, answers, "answer")
	f.wants(t, "prompts/get", map[string]string{"Mcp-Name": "=?base64?PT9iYXNlNjQ/eD89?="})
	// A tool with an invalid annotation is left out, the others are not.
	l, err := c.List(t.Context(), Tools)
	if err != nil || len(l.Items) != 1 || l.Items[0].Key != "run" || l.TTL != 0 {
		t.Errorf("got %+v, %v", l, err)
	}
	for _, g := range f.all("POST") {
		if jsonrpc.Lookup([]byte(g.body), "params", "_meta", MetaVersion) == nil {
			t.Errorf("without its metadata: %s", g.body)
		}
	}
	f.count(t, "GET", 0)
	f.count(t, "initialize", 0)
}

// TestModernListCannotBeHad: bug: a call ended with the error of the list that
// its headers need, as if it had run.
func TestModernListCannotBeHad(t *testing.T) {
	f := newModern(t, `[]`)
	f.when("tools/list", func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) {
		refuse(w, m, http.StatusInternalServerError, `{"code":-1,"message":"no"}`)
	})
	s := asModern(reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy()))
	works(t, s)
}

func TestModernListen(t *testing.T) {
	f := newModern(t, `[]`)
	opened, end := make(chan *jsonrpc.Message, 10), make(chan struct{})
	f.when("subscriptions/listen", func(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) {
		say := stream(w)
		say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":{%q:%s},\"notifications\":{\"toolsListChanged\":true}}}\n\n", MetaSubscription, m.ID)
		say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\",\"params\":{\"_meta\":{%q:%s}}}\n\n", MetaSubscription, m.ID)
		opened <- m
		select {
		case <-end:
		case <-r.Context().Done():
		}
	})
	p := newProxy()
	s := asModern(reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, p))
	c := connected(t, s)
	agreed := make(chan []string, 1)
	c.Watch(func() []string { return []string{"a:b"} }, func(uris []string) { agreed <- uris })
	m := soon(t, opened, "stream")
	if got := string(jsonrpc.Lookup(m.Params, "notifications")); got != `{"toolsListChanged":true,"resourceSubscriptions":["a:b"]}` {
		t.Errorf("asked for %s", got)
	}
	if got := soon(t, agreed, "acknowledgement"); got == nil || len(got) != 0 {
		t.Errorf("agreed to %v", got)
	}
	if got := soon(t, p.notified, "notification"); !strings.HasPrefix(got, "notifications/tools/list_changed") {
		t.Errorf("got %s", got)
	}
	// It breaks off: another is made, and what was missed is said.
	end <- struct{}{}
	soon(t, opened, "second stream")
	soon(t, p.missed, "notice of what was missed")
	// Another is in its place: the one before is closed, and not by a message.
	c.Watch(func() []string { return nil }, nil)
	soon(t, opened, "third stream")
	works(t, s)
	f.count(t, "notifications/cancelled", 0)
	close(end)
}

func TestModernCancel(t *testing.T) {
	f := newModern(t, `[]`)
	began, gone := make(chan struct{}), make(chan struct{})
	f.when("tools/call", func(_ http.ResponseWriter, r *http.Request, _ *jsonrpc.Message) {
		close(began)
		<-r.Context().Done()
		close(gone)
	})
	s := asModern(reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy()))
	r, _ := call(s, "tools/call", `{"name":"x"}`)
	soon(t, began, "call")
	r.Cancel(nil)
	soon(t, gone, "end of the POST")
	f.count(t, "notifications/cancelled", 0)
}

// TestModernStreamEnds: a stream that breaks off is not resumed, and its call
// is not sent again.
func TestModernStreamEnds(t *testing.T) {
	f := newModern(t, `[]`)
	f.when("tools/call", func(w http.ResponseWriter, _ *http.Request, _ *jsonrpc.Message) { stream(w)("id: 1\ndata: {}\n\n") })
	s := asModern(reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy()))
	says(t, fails(t, s), "may have run")
	f.count(t, "tools/call", 1)
	f.count(t, "GET", 0)
}

// TestProbeOverHTTP: which answers to server/discover are those of an older
// server, and which are answers.
func TestProbeOverHTTP(t *testing.T) {
	status := func(code int, body string) func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) {
		return func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) {
			w.WriteHeader(code)
			fmt.Fprint(w, strings.ReplaceAll(body, "$id", string(m.ID)))
		}
	}
	for name, c := range map[string]struct {
		code int
		body string
		want int // initializes
	}{
		"400 text":              {400, "Bad Request: no session", 1},
		"400 error":             {400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Server not initialized"}}`, 1},
		"404":                   {404, "", 1},
		"405":                   {405, "", 1},
		"422":                   {422, "", 1},
		"500":                   {500, "oops", 1},
		"202 and nothing":       {202, "", 1},
		"200 error":             {200, `{"jsonrpc":"2.0","id":$id,"error":{"code":-32601,"message":"no"}}`, 1},
		"200 something":         {200, `{"jsonrpc":"2.0","id":$id,"result":{}}`, 1},
		"200 page":              {200, `<html>`, 1},
		"-32022 older too":      {400, `{"jsonrpc":"2.0","id":$id,"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"]}}}`, 1},
		"discovered older only": {200, `{"jsonrpc":"2.0","id":$id,"result":{"supportedVersions":["2027-01-01","2025-11-25"],"capabilities":{}}}`, 1},
		"-32022 newer":          {400, `{"jsonrpc":"2.0","id":$id,"error":{"code":-32022,"message":"no","data":{"supported":["2027-01-01"]}}}`, 0},
		"discovered newer":      {200, `{"jsonrpc":"2.0","id":$id,"result":{"supportedVersions":["2027-01-01"],"capabilities":{}}}`, 0},
		"-32021":                {400, `{"jsonrpc":"2.0","id":$id,"error":{"code":-32021,"message":"no"}}`, 0},
		"401":                   {401, "", 0},
		"403":                   {403, `{"jsonrpc":"2.0","id":$id,"error":{"code":-32000,"message":"no"}}`, 0},
		"429":                   {429, `{"jsonrpc":"2.0","id":$id,"error":{"code":-32000,"message":"no"}}`, 0},
		"503":                   {503, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.when("server/discover", status(c.code, c.body))
			s := asModern(reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy()))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			conn, err := s.Connect(ctx)
			f.count(t, "server/discover", 1)
			f.count(t, "initialize", c.want)
			if (err == nil) != (c.want == 1) || err == nil && conn.Modern() {
				t.Errorf("got %v, %v", conn, err)
			}
			if err == nil {
				works(t, s)
				s.Evict(conn)
				works(t, s) // remembered: straight to initialize
				f.count(t, "server/discover", 1)
			}
		})
	}
}

// TestProbeSilentOverHTTP: a server that holds the POST of a discover.
func TestProbeSilentOverHTTP(t *testing.T) {
	f := newFake(t)
	f.when("server/discover", func(_ http.ResponseWriter, r *http.Request, _ *jsonrpc.Message) { <-r.Context().Done() })
	s := asModern(reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy()))
	works(t, s)
	f.wants(t, "tools/call", map[string]string{"Mcp-Protocol-Version": "2025-11-25", "Mcp-Method": "", "Mcp-Name": "", "Mcp-Session-Id": "s-1"})
}

// TestLegacyClientModernOverHTTP: bug: the refusal of initialize was taken for
// that of a server of HTTP+SSE.
func TestLegacyClientModernOverHTTP(t *testing.T) {
	for status, object := range map[int]string{
		400: `{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}`,
		404: `{"code":-32601,"message":"no"}`,
	} {
		f := newModern(t, `[]`)
		f.when("initialize", func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) { refuse(w, m, status, object) })
		s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
		works(t, s)
		f.count(t, "GET", 0)
		f.count(t, "initialize", 1)
		s.Evict(connected(t, s))
		works(t, s)
		f.count(t, "initialize", 1) // remembered
	}
}

func TestMCPGoModern(t *testing.T) {
	heard := make(chan struct{}, 10)
	real := newMCPGo(heard)
	real.AddTool(mcp.NewToolWithRawSchema("region", "", json.RawMessage(`{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"R"}}}`)),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("there"), nil
		})
	front := httptest.NewServer(server.NewStreamableHTTPServer(real, server.WithEndpointPath("/mcp"), server.WithStateLess(true)))
	t.Cleanup(front.Close)
	p := newProxy()
	s := asModern(reach(t, Spec{Transport: TransportHTTP, URL: front.URL + "/mcp"}, p))
	c := connected(t, s)
	if !c.Modern() {
		t.Fatalf("version %q", c.Version())
	}
	agreed := make(chan []string, 1)
	c.Watch(func() []string { return nil }, func(uris []string) { agreed <- uris })
	if soon(t, agreed, "acknowledgement") == nil {
		t.Error("listen was refused")
	}
	a, progress := echo(t, s, heard)
	if !strings.Contains(string(a.Result), `"text":"hi"`) || !strings.Contains(progress, `"progressToken":"tok"`) {
		t.Errorf("got %s %s %v and progress %s", a.Result, a.Error, a.Err, progress)
	}
	_, answers := call(s, "tools/call", `{"name":"region","arguments":{"r":"Zürich"}}`)
	if a := soon(t, answers, "answer"); !strings.Contains(string(a.Result), "there") {
		t.Errorf("got %s %s %v", a.Result, a.Error, a.Err)
	}
	real.AddTool(mcp.NewTool("another"), nil)
	if got := soon(t, p.notified, "notification"); !strings.HasPrefix(got, "notifications/tools/list_changed") {
		t.Errorf("got %s", got)
	}
	if l, err := c.List(t.Context(), Tools); err != nil || len(l.Items) != 3 {
		t.Errorf("got %+v, %v", l, err)
	}
}

// TestProbeKillsProcess: a real process that exits at server/discover, at once
// or after a while, is started again and greeted as an older server.
func TestProbeKillsProcess(t *testing.T) {
	for name, wait := range map[string]time.Duration{"at once": 0, "after a while": 1200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, code := filepath.Join(t.TempDir(), "log"), 3
			rule := upstreamtest.Rule{Method: "server/discover", Die: &code, Wait: upstreamtest.Duration(wait)}
			rules := []upstreamtest.Rule{rule}
			if wait > 0 {
				// It reads nothing else meanwhile.
				rules = append(rules, upstreamtest.Rule{Method: "initialize", Nth: 1, Silent: true})
			}
			script, err := json.Marshal(upstreamtest.Script{Log: log, Rules: rules})
			if err != nil {
				t.Fatal(err)
			}
			s := asModern(reach(t, Spec{
				Transport: TransportStdio, Command: os.Args[0], Args: []string{string(script)},
				Env: map[string]string{asFakeserver: "1"},
			}, newProxy()))
			c := connected(t, s)
			if c.Modern() {
				t.Error("it is not modern")
			}
			s.Evict(c)
			connected(t, s)
			text, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			var methods []string
			for line := range strings.Lines(string(text)) {
				if m, err := jsonrpc.Parse([]byte(strings.TrimSpace(line))); err == nil && m.IsRequest() {
					methods = append(methods, m.Method)
				}
			}
			want := []string{"server/discover", "initialize", "initialize"}
			if wait > 0 {
				want = append(want, "initialize")
			}
			if !slices.Equal(methods, want) {
				t.Errorf("got %v, want %v", methods, want)
			}
		})
	}
}
