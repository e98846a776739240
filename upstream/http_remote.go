package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"coffer/jsonrpc"
)

const (
	// dialTimeout and tlsTimeout bound the making of a connection; a request
	// itself is bounded by whoever waits for it.
	dialTimeout = 10 * time.Second
	tlsTimeout  = 10 * time.Second
	// idleSockets is how many connections are kept for the next calls: as many
	// as a busy client has calls in flight.
	idleSockets = 64
	idleTimeout = 90 * time.Second
	// pingAfter and pingTimeout find a dead HTTP/2 connection, over which else
	// all calls would hang; HTTP/1 has TCP keep-alives.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second

	// orderWait is how long a one-way message may take to reach the server
	// before others stop waiting for it. A server that does not acknowledge
	// loses the order of messages, and nothing else.
	orderWait = 2 * time.Second
	// noticeTimeout bounds the POST of a notification or a response.
	noticeTimeout = 30 * time.Second
	// farewell bounds all that stop does on the network, and lastNotices the
	// part of it that waits for notifications under way.
	farewell    = time.Second
	lastNotices = 200 * time.Millisecond
)

// errStopped is why messages are not taken any more.
var errStopped = errors.New("the connection has been closed")

// remote is what streamable HTTP and HTTP+SSE have in common: a client with
// connections of its own, one POST for each message, and their order.
//
// Order: every message leaves at once, on a goroutine of its own, and requests
// run side by side. Only these wait, and no longer than orderWait:
//   - a notification or response, for the one sent before it;
//   - a request, for the notifications and responses sent before it;
//   - notifications/cancelled, for its request to be on the wire, and for
//     nothing else; nothing waits for it.
//
// A one-way message is with the server when its POST has been answered.
//
// Goroutines, all waited for by stop: one for each POST under way, and those
// of the event streams.
type remote struct {
	conn   *Conn
	url    *url.URL
	client *http.Client
	max    int // bytes of one message

	ctx     context.Context // lifetime of all exchanges; ends when stop begins
	cancel  context.CancelFunc
	wires   context.Context // lifetime of all sockets; ends when stop is through
	unplug  context.CancelFunc
	tasks   sync.WaitGroup
	notices sync.WaitGroup // the POSTs of one-way messages
	skipped atomic.Int64   // messages that were none

	mu     sync.Mutex
	closed bool            // guarded by mu: nothing may be sent any more
	posts  map[int64]*post // guarded by mu: the requests under way, by their calls' numbers
	tail   <-chan struct{} // guarded by mu: closed when the last one-way message is with the server

	stopping sync.Once
	stopped  chan struct{} // closed when stop is through
}

// post is one message on its way to the server.
type post struct {
	method string        // "" for a response
	body   []byte        // the message's JSON text
	call   *jsonrpc.Call // nil for a one-way message
	ctx    context.Context
	cancel context.CancelFunc
	after  <-chan struct{} // what it waits for; nil: nothing
	sent   atomic.Bool     // a connection was there: the server may have seen it

	// passed is closed once: when a request is on the wire, when a one-way
	// message has been answered, or when the post has failed.
	passed   chan struct{}
	passOnce sync.Once
}

func (p *post) pass() { p.passOnce.Do(func() { close(p.passed) }) }

// newRemote returns a remote for c's URL. Nothing is sent yet.
func newRemote(c *Conn) (*remote, error) {
	u, err := url.Parse(c.server.spec.URL)
	if err != nil {
		// Its text would show the URL, which may hold a key.
		return nil, &HintError{Err: errors.New("its url cannot be read"), Hint: "correct the url of this server in the config"}
	}
	r := &remote{conn: c, url: u, max: c.server.set.opts.MaxMessageSize, posts: map[int64]*post{}, stopped: make(chan struct{})}
	if r.max <= 0 {
		r.max = jsonrpc.DefaultMaxMessage
	}
	// Like a child, a link outlives the context that it was made under: stop
	// ends it, with a farewell.
	life := context.WithoutCancel(c.server.set.ctx)
	r.wires, r.unplug = context.WithCancel(life)
	r.ctx, r.cancel = context.WithCancel(life)
	r.client = &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         r.dial,
			TLSHandshakeTimeout: tlsTimeout,
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: idleSockets,
			IdleConnTimeout:     idleTimeout,
			HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		},
		CheckRedirect: checkRedirect,
	}
	return r, nil
}

// dial makes a connection that is closed with the remote at the latest: the
// HTTP client goes on dialing for requests that were given up.
func (r *remote) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	defer context.AfterFunc(r.wires, cancel)()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: conn}
	w.forget = context.AfterFunc(r.wires, func() { conn.Close() })
	return w, nil
}

// wire is a connection that is closed when its remote is unplugged.
type wire struct {
	net.Conn
	forget func() bool
}

// Close implements net.Conn.
func (w *wire) Close() error {
	w.forget()
	return w.Conn.Close()
}

// ownHeaders are the headers that belong to the protocol and that the config
// cannot change; ownHeaderPrefix goes for a family of them (2026-07-28).
var ownHeaders = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Connection": true, "Content-Length": true,
	"Content-Type": true, "Transfer-Encoding": true, "Last-Event-Id": true,
	"Mcp-Session-Id": true, "Mcp-Protocol-Version": true, "Mcp-Method": true, "Mcp-Name": true,
}

const ownHeaderPrefix = "Mcp-Param-"

// do sends one HTTP request: the headers of the config, and own, which holds
// the protocol's.
func (r *remote) do(ctx context.Context, method string, u *url.URL, own http.Header, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "coffer")
	for name, value := range r.conn.server.spec.Headers {
		switch key := http.CanonicalHeaderKey(name); {
		case key == "Host":
			req.Host = value
		case key == "Idempotency-Key" || key == "X-Idempotency-Key":
			// With it the HTTP client sends a POST twice when a connection
			// breaks, unless it cannot read the body again.
			req.GetBody = nil
			req.Header.Set(key, value)
		case !ownHeaders[key] && !strings.HasPrefix(key, ownHeaderPrefix):
			req.Header.Set(key, value)
		}
	}
	maps.Copy(req.Header, own)
	resp, err := r.client.Do(req)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, which may hold a key
	}
	return resp, err
}

// postHeader returns what every POST carries.
func postHeader() http.Header {
	return http.Header{
		"Accept":       {"application/json, text/event-stream"},
		"Content-Type": {"application/json"},
	}
}

// exchange POSTs p when its turn has come. The error is fit to end the call.
func (r *remote) exchange(p *post, u *url.URL, own http.Header) (*http.Response, error) {
	trace := &httptrace.ClientTrace{
		GetConn:      func(string) { p.sent.Store(false) },
		GotConn:      func(httptrace.GotConnInfo) { p.sent.Store(true) },
		WroteRequest: func(httptrace.WroteRequestInfo) { p.wrote() },
	}
	resp, err := r.do(httptrace.WithClientTrace(p.ctx, trace), http.MethodPost, u, own, p.body)
	if err != nil {
		return nil, r.broken(err, p.sent.Load())
	}
	return resp, nil
}

func (p *post) wrote() {
	if p.call != nil {
		p.pass()
	}
}

// wait waits for p's turn.
func (p *post) wait() {
	if p.after == nil {
		return
	}
	limit := time.NewTimer(orderWait)
	defer limit.Stop()
	select {
	case <-p.after:
	case <-limit.C:
	case <-p.ctx.Done():
	}
}

// launch sends m with run, which waits for its turn, and ends call with the
// error of run, if any. It does not wait.
func (r *remote) launch(m *jsonrpc.Message, call *jsonrpc.Call, run func(*post) error) {
	p := &post{method: m.Method, body: m.Append(nil), call: call, passed: make(chan struct{})}
	if call != nil {
		p.ctx, p.cancel = context.WithCancel(r.ctx)
	} else {
		p.ctx, p.cancel = context.WithTimeout(r.ctx, noticeTimeout)
	}
	if !r.enlist(p, m, run) {
		p.cancel()
		if call != nil {
			r.conn.rpc.Finish(call, jsonrpc.Answer{Err: unavailable(r.conn.Name(), notSent{errStopped})})
		}
	}
}

// enlist gives p its place and starts it; false after stop.
func (r *remote) enlist(p *post, m *jsonrpc.Message, run func(*post) error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return false
	case p.call != nil:
		p.after = r.tail
		r.posts[p.call.Number] = p
	case m.Method == "notifications/cancelled":
		if number, ok := callNumber(jsonrpc.Lookup(m.Params, "requestId")); ok && r.posts[number] != nil {
			p.after = r.posts[number].passed
		}
	default:
		p.after = r.tail
		r.tail = p.passed
	}
	if p.call == nil {
		r.notices.Add(1)
	}
	r.tasks.Go(func() { r.carry(p, run) })
	return true
}

// carry runs p to its end.
func (r *remote) carry(p *post, run func(*post) error) {
	p.wait()
	if p.call == nil {
		defer time.AfterFunc(orderWait, p.pass).Stop()
	}
	err := run(p)
	p.pass()
	p.cancel()
	if p.call == nil {
		r.notices.Done()
		if err != nil && r.ctx.Err() == nil {
			r.conn.log.Warn().Err(err).Str("method", p.method).Msg("one-way message was not delivered")
		}
		return
	}
	r.mu.Lock()
	if r.posts[p.call.Number] == p {
		delete(r.posts, p.call.Number)
	}
	r.mu.Unlock()
	if err != nil && r.conn.rpc.Finish(p.call, jsonrpc.Answer{Err: err}) {
		r.conn.idle()
	}
}

// callNumber returns the number of ours that a raw id stands for.
func callNumber(id []byte) (int64, bool) {
	n, err := strconv.ParseInt(strings.Trim(string(id), `"`), 10, 64)
	return n, err == nil
}

// flush implements link: nothing is ever held back.
func (r *remote) flush() {}

// stderr implements link.
func (r *remote) stderr() []string { return nil }

// abandoned implements link. The POST may be cut at once: its cancellation is
// sent when the request is on the wire, or is not sent at all.
func (r *remote) abandoned(call *jsonrpc.Call) {
	r.mu.Lock()
	p := r.posts[call.Number]
	r.mu.Unlock()
	if p != nil {
		p.cancel()
	}
}

// waiting reports whether call still wants its answer.
func (r *remote) waiting(call *jsonrpc.Call) bool {
	return r.conn.rpc.Waiting(call.Number) == call
}

// end stops the remote: what is under way is cut, goodbye says so to the
// server, and nothing is left when end returns.
func (r *remote) end(l ladder, goodbye func(ctx context.Context)) {
	r.stopping.Do(func() {
		ctx, cancel := context.WithTimeout(r.wires, min(farewell, l.eof+l.term))
		defer cancel()
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		if l.eof > 0 {
			r.settleNotices(ctx)
		}
		r.conn.lost(errStopped)
		r.cancel()
		goodbye(ctx)
		r.tasks.Wait()
		r.client.CloseIdleConnections()
		r.unplug()
		close(r.stopped)
	})
	<-r.stopped
}

// settleNotices gives the one-way messages under way, cancellations most of
// all, a moment to arrive.
func (r *remote) settleNotices(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastNotices)
	defer cancel()
	arrived := make(chan struct{})
	r.tasks.Go(func() {
		r.notices.Wait()
		close(arrived)
	})
	select {
	case <-arrived:
	case <-ctx.Done():
	}
}

// discard reads what little a body may hold, so that its connection can be
// used again.
func discard(body io.Reader) { io.CopyN(io.Discard, body, 4<<10) }
