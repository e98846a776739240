package upstream

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"coffer/jsonrpc"
)

// fakeSSE is a server of the HTTP+SSE transport. A test may change how it
// begins its stream, and what it does with a message.
type fakeSSE struct {
	*httptest.Server
	begin func(say func(string, ...any)) // nil: names the endpoint
	take  func(w writer, m *message, say func(string, ...any)) bool

	mu   sync.Mutex
	say  func(string, ...any) // guarded by mu: writes to the newest stream
	cut  chan struct{}        // guarded by mu: closed to end the newest stream
	seen []got                // guarded by mu
}

func newFakeSSE(t *testing.T) *fakeSSE {
	f := &fakeSSE{}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// ServeHTTP implements http.Handler.
func (f *fakeSSE) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/sse":
		f.stream(w, r)
	case r.Method == http.MethodPost && r.URL.Path == "/message":
		f.message(w, r)
	default:
		http.Error(w, "Cannot "+r.Method+" "+r.URL.Path, http.StatusNotFound) // as Express does
	}
}

func (f *fakeSSE) stream(w http.ResponseWriter, r *http.Request) {
	var one sync.Mutex // one event at a time, and none after the end
	write := stream(w)
	say := func(format string, args ...any) {
		one.Lock()
		defer one.Unlock()
		if write != nil {
			write(format, args...)
		}
	}
	defer func() {
		one.Lock()
		defer one.Unlock()
		write = nil
	}()
	cut := make(chan struct{})
	f.mu.Lock()
	f.say, f.cut = say, cut
	f.seen = append(f.seen, got{verb: r.Method, header: r.Header})
	f.mu.Unlock()
	if f.begin != nil {
		f.begin(say)
	} else {
		say("event: endpoint\ndata: /message?session=1\n\n")
	}
	select {
	case <-cut:
	case <-r.Context().Done():
	}
}

func (f *fakeSSE) message(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, err := jsonrpc.Parse(body)
	if err != nil {
		http.Error(w, "bad", http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	say := f.say
	f.seen = append(f.seen, got{verb: r.Method, header: r.Header, m: m})
	f.mu.Unlock()
	if f.take != nil && f.take(w, m, say) {
		return
	}
	w.WriteHeader(http.StatusAccepted)
	switch {
	case m.Method == "initialize":
		say("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"protocolVersion\":\"2024-11-05\",\"capabilities\":{\"tools\":{}}}}\n\n", m.ID)
	case m.IsRequest():
		say("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", m.ID)
	}
}

// end closes the newest stream.
func (f *fakeSSE) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.cut)
}

func (f *fakeSSE) all(method string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.seen {
		if g.m != nil && g.m.Method == method {
			n++
		}
	}
	return n
}

func TestSSE(t *testing.T) {
	for _, transport := range []Transport{TransportSSE, TransportHTTP} {
		t.Run(fmt.Sprint("as ", transport), func(t *testing.T) {
			f := newFakeSSE(t)
			s := reach(t, Spec{Transport: transport, URL: f.URL + "/sse", Headers: map[string]string{"Authorization": "x"}}, newProxy())
			works(t, s)
			if v := s.Ready().Version(); v != "2024-11-05" {
				t.Errorf("the version is %s", v)
			}
			if n := f.all("initialize") + f.all("notifications/initialized") + f.all("tools/call"); n != 3 {
				t.Errorf("%d messages, want 3", n)
			}
			for _, g := range f.seen {
				if h := g.header; h.Get("Authorization") != "x" || h.Get("Mcp-Protocol-Version")+h.Get("Mcp-Session-Id") != "" {
					t.Errorf("a %s has %v", g.verb, h)
				}
			}
		})
	}
}

func TestSSEServerAsks(t *testing.T) {
	f := newFakeSSE(t)
	answered := make(chan string, 1)
	f.take = func(w writer, m *message, say func(string, ...any)) bool {
		switch m.Method {
		case "tools/call":
			say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"roots/list\"}\n\n")
		case "":
			answered <- string(m.ID) + string(m.Result)
		}
		return false
	}
	p := newProxy()
	s := reach(t, Spec{Transport: TransportSSE, URL: f.URL + "/sse"}, p)
	works(t, s)
	soon(t, p.notified, "notification")
	soon(t, p.asked, "request").Reply([]byte(`{"roots":[]}`))
	if got := soon(t, answered, "our answer"); got != `5{"roots":[]}` {
		t.Errorf("got %s", got)
	}
}

// The end of the stream ends the calls on it, at once and for good; the next
// call makes a new one.
func TestSSEStreamLost(t *testing.T) {
	f := newFakeSSE(t)
	called := make(chan struct{}, 1)
	f.take = func(w writer, m *message, _ func(string, ...any)) bool {
		if m.Method == "tools/list" {
			w.WriteHeader(http.StatusAccepted)
			called <- struct{}{}
			return true
		}
		return false
	}
	p := newProxy()
	s := reach(t, Spec{Transport: TransportSSE, URL: f.URL + "/sse"}, p)
	works(t, s)
	_, a := call(s, "tools/list", `{}`)
	soon(t, called, "call")
	f.end()
	if a := soon(t, a, "answer"); a.Err == nil {
		t.Errorf("got %+v", a)
	} else {
		says(t, a.Err, "event stream ended", "may have run")
	}
	soon(t, p.down, "Down")
	works(t, s)
	if n := f.all("tools/list"); n != 1 {
		t.Errorf("the lost call was sent %d times", n)
	}
}

func TestSSERefusals(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
		words      string
	}{
		{"401", "", 401, "HTTP 401"},
		{"500", "", 500, "HTTP 500"},
		{"429", "", 429, "HTTP 429"},
		{"400", "what?", 400, "HTTP 400 Bad Request: what?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeSSE(t)
			f.take = func(w writer, m *message, _ func(string, ...any)) bool {
				if m.Method != "tools/call" {
					return false
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
				return true
			}
			s := reach(t, Spec{Transport: TransportSSE, URL: f.URL + "/sse"}, newProxy())
			says(t, fails(t, s), c.words)
			if n := f.all("tools/call"); n != 1 {
				t.Errorf("it was sent %d times", n)
			}
		})
	}
}

// A server that does not know the session of the endpoint has not run the
// call: a new stream, and the call again.
func TestSSESessionGone(t *testing.T) {
	f := newFakeSSE(t)
	var once sync.Once
	f.take = func(w writer, m *message, _ func(string, ...any)) (refused bool) {
		if m.Method == "tools/call" {
			once.Do(func() {
				refused = true
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"Invalid session ID"}}`)
			})
		}
		return refused
	}
	s := reach(t, Spec{Transport: TransportSSE, URL: f.URL + "/sse"}, newProxy())
	works(t, s)
	if n := f.all("initialize"); n != 2 {
		t.Errorf("%d handshakes, want 2", n)
	}
}

func TestSSEBadBeginnings(t *testing.T) {
	elsewhere := newFake(t)
	for _, c := range []struct {
		name, event, words string
	}{
		{"an endpoint of another origin", "event: endpoint\ndata: " + elsewhere.URL + "/steal\n\n", "another origin, " + elsewhere.URL},
		{"a message first", "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\nevent: endpoint\ndata: /message\n\n", "does not begin with the event endpoint"},
		{"an endpoint that is no address", "event: endpoint\ndata: http://[\n\n", "no address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeSSE(t)
			f.begin = func(say func(string, ...any)) { say("%s", c.event) }
			says(t, fails(t, reach(t, Spec{Transport: TransportSSE, URL: f.URL + "/sse"}, newProxy())), c.words)
		})
	}
	if len(elsewhere.seen) > 0 {
		t.Error("another origin got messages")
	}
}

func TestSSETooLong(t *testing.T) {
	f := newFakeSSE(t)
	f.take = func(w writer, m *message, say func(string, ...any)) bool {
		if m.Method == "tools/list" {
			say("data: {\"result\":%q,\"jsonrpc\":\"2.0\",\"id\":%s}\n\n", strings.Repeat("x", 5000), m.ID)
			return true
		}
		return false
	}
	s := reach(t, Spec{Transport: TransportSSE, URL: f.URL + "/sse"}, newProxy(), func(o *Options) { o.MaxMessageSize = 4000 })
	_, a := call(s, "tools/list", `{}`)
	if a := soon(t, a, "answer"); a.Err == nil {
		t.Errorf("got %+v", a)
	} else {
		says(t, a.Err, "longer than 4000 bytes")
	}
	works(t, s) // on the same stream
	if n := f.all("initialize"); n != 1 {
		t.Errorf("%d handshakes, want 1", n)
	}
}

func TestFallBack(t *testing.T) {
	for _, c := range []struct {
		name      string
		transport Transport
		post, get int // statuses
		gets      int // how many GETs there may be
		words     []string
	}{
		{"neither works", TransportHTTP, 405, 404, 1, []string{"neither streamable HTTP (HTTP 405 Method Not Allowed: no) nor HTTP+SSE (HTTP 404 Not Found: no)"}},
		{"400 and no stream", TransportHTTP, 400, 200, 1, []string{"HTTP 400", "no event stream"}},
		{"streamable is what was asked for", TransportStreamable, 404, 200, 0, []string{"HTTP 404 Not Found: no"}},
		{"SSE is what was asked for", TransportSSE, 200, 404, 1, []string{"HTTP 404 Not Found: no"}},
		{"401 is an answer", TransportHTTP, 401, 200, 0, []string{"HTTP 401"}},
		{"403 is an answer", TransportHTTP, 403, 200, 0, []string{"HTTP 403"}},
		{"429 is an answer", TransportHTTP, 429, 200, 0, []string{"HTTP 429"}},
		{"500 is an answer", TransportHTTP, 500, 200, 0, []string{"HTTP 500"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			f.when("initialize", func(w writer, _ *request, _ *message) { http.Error(w, "no", c.post) })
			f.when("GET", func(w writer, _ *request, _ *message) { http.Error(w, "no", c.get) })
			s := reach(t, Spec{Transport: c.transport, URL: f.URL}, newProxy())
			says(t, fails(t, s), c.words...)
			f.count(t, "GET", c.gets)
		})
	}
}

// An SSE server that says nothing does not hold the connection up for ever.
func TestSSESilentStream(t *testing.T) {
	f := newFakeSSE(t)
	f.begin = func(func(string, ...any)) {}
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL + "/sse", ConnectTimeout: patience / 10}, newProxy())
	says(t, fails(t, s), "no connection within")
}
