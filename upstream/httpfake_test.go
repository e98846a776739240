package upstream

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"coffer/jsonrpc"
)

// patience is how long a test waits for what must happen; never for nothing.
const patience = 10 * time.Second

// soon fails the test if c gives nothing.
func soon[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s within %v", what, patience)
		panic("unreachable")
	}
}

// proxy is the Handler of a test.
type proxy struct {
	notified chan string // method and params
	asked    chan *jsonrpc.Request
	missed   chan struct{}
	down     chan struct{}
}

func newProxy() *proxy {
	return &proxy{
		notified: make(chan string, 1000), asked: make(chan *jsonrpc.Request, 1000),
		missed: make(chan struct{}, 1000), down: make(chan struct{}, 1000),
	}
}

func (p *proxy) Notified(_ *Conn, method string, params []byte) {
	p.notified <- method + string(params)
}
func (p *proxy) Asked(_ *Conn, r *jsonrpc.Request) { p.asked <- r }
func (p *proxy) Up(*Conn)                          {}
func (p *proxy) Down(*Conn)                        { p.down <- struct{}{} }
func (p *proxy) Missed(*Conn, ...Kind)             { p.missed <- struct{}{} }
func (p *proxy) Flush()                            {}
func (p *proxy) Room(context.Context)              {}

// reach returns a Server for the spec, in a Set that ends with the test.
func reach(t *testing.T, spec Spec, p *proxy, change ...func(*Options)) *Server {
	t.Helper()
	if spec.ConnectTimeout == 0 {
		spec.ConnectTimeout = patience
	}
	spec.Name = "u"
	opts := Options{Handler: p, Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.DebugLevel)}
	for _, f := range change {
		f(&opts)
	}
	set := NewSet(t.Context(), opts)
	t.Cleanup(func() { set.Close(true) })
	set.mu.Lock()
	set.client = &Client{Info: []byte(`{"name":"test","version":"0"}`), Capabilities: []byte(`{}`)}
	set.mu.Unlock()
	return set.Add(&spec)
}

// connected returns a connection to s.
func connected(t *testing.T, s *Server) *Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := s.Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// call starts a request and returns where its answer will be.
func call(s *Server, method, params string) (*Request, <-chan jsonrpc.Answer) {
	answers := make(chan jsonrpc.Answer, 1)
	r := &Request{Method: method, Params: []byte(params), Done: func(a jsonrpc.Answer) { answers <- a }}
	if c := s.Start(r); c != nil {
		c.Flush()
	}
	return r, answers
}

// answer makes one call of the tool and returns its answer.
func answer(t *testing.T, s *Server) jsonrpc.Answer {
	t.Helper()
	_, answers := call(s, "tools/call", `{"name":"x"}`)
	return soon(t, answers, "answer")
}

// works fails the test unless a call is answered as fakeServer does by default.
func works(t *testing.T, s *Server) {
	t.Helper()
	if a := answer(t, s); string(a.Result) != `{"content":[]}` {
		t.Errorf("got %+v, want the default result", a)
	}
}

// fails returns the error of a call that must not have an answer.
func fails(t *testing.T, s *Server) *Error {
	t.Helper()
	a := answer(t, s)
	e, ok := a.Err.(*Error)
	if !ok {
		t.Fatalf("got %v %s %s, want an *Error", a.Err, a.Result, a.Error)
	}
	return e
}

// got is one HTTP request as the fakeServer saw it.
type got struct {
	verb   string
	header http.Header
	body   string
	m      *jsonrpc.Message // of a POST
}

// fakeServer is a Streamable HTTP server. It does what the specification says
// until a test sets another handler for a method, or for GET.
type fakeServer struct {
	*httptest.Server
	session string
	version string

	mu   sync.Mutex
	on   map[string]func(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) // guarded by mu
	seen []got                                                                       // guarded by mu
}

func newHandler() *fakeServer {
	return &fakeServer{session: "s-1", version: "2025-11-25", on: map[string]func(http.ResponseWriter, *http.Request, *jsonrpc.Message){}}
}

func newFake(t *testing.T, change ...func(*httptest.Server)) *fakeServer {
	f := newHandler()
	f.Server = httptest.NewUnstartedServer(f)
	for _, do := range change {
		do(f.Server)
	}
	f.Server.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.Start()
	t.Cleanup(f.Close)
	return f
}

// when sets the handler of a method, or of "GET" and "DELETE"; nil: default.
func (f *fakeServer) when(what string, do func(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on[what] = do
}

// all returns the requests seen so far for a method, or for "GET" and so on.
func (f *fakeServer) all(what string) []got {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.seen), func(g got) bool { return g.verb != what && (g.m == nil || g.m.Method != what) })
}

// ServeHTTP implements http.Handler.
func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	g := got{verb: r.Method, header: r.Header, body: string(body)}
	what := r.Method
	if r.Method == http.MethodPost {
		if g.m, err = jsonrpc.Parse(body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if what = g.m.Method; what == "" {
			what = "response"
		}
	}
	f.mu.Lock()
	f.seen = append(f.seen, g)
	do := f.on[what]
	f.mu.Unlock()
	switch {
	case do != nil:
		do(w, r, g.m)
	case what == "initialize":
		f.hello(w, g.m)
	case what == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case g.m == nil:
	case !g.m.IsRequest():
		w.WriteHeader(http.StatusAccepted)
	default:
		reply(w, g.m, `{"content":[]}`)
	}
}

// hello answers initialize.
func (f *fakeServer) hello(w http.ResponseWriter, m *jsonrpc.Message) {
	if f.session != "" {
		w.Header().Set("Mcp-Session-Id", f.session)
	}
	reply(w, m, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`, f.version))
}

// reply answers m with a JSON body.
func reply(w http.ResponseWriter, m *jsonrpc.Message, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// stream begins an event stream and returns a function that writes to it.
func stream(w http.ResponseWriter) func(format string, args ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	say := func(format string, args ...any) {
		fmt.Fprintf(w, format, args...)
		w.(http.Flusher).Flush()
	}
	say(": hello\n\n")
	return say
}

// says fails the test unless the error's text holds all the words.
func says(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
}

// count fails the test unless the method was seen n times.
func (f *fakeServer) count(t *testing.T, what string, n int) {
	t.Helper()
	if seen := f.all(what); len(seen) != n {
		t.Errorf("%d × %s, want %d", len(seen), what, n)
	}
}

// pipes is a listener without a network: it can be used in a synctest bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// overPipes returns a connection to f, which its server uses, within a synctest
// bubble.
func overPipes(t *testing.T, f http.Handler, p *proxy) *Conn {
	t.Helper()
	listener := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: f}
	go server.Serve(listener) // ends with the cleanup
	t.Cleanup(func() { server.Close() })
	s := reach(t, Spec{Transport: TransportStreamable, URL: "http://fake.test/mcp"}, p)
	c := &Conn{server: s, handler: p, log: s.log}
	if err := c.dialHTTP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.link.stop(promptly) })
	c.link.(*streamable).client.Transport.(*http.Transport).DialContext = listener.dial
	if err := c.initialize(t.Context(), c.server.set.who()); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.conn = c
	s.mu.Unlock()
	return c
}
