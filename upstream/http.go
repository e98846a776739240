package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"coffer/jsonrpc"
)

// afterAnswer is how long the stream of a POST is read on when its answer has
// come: the server should end it, and what it still says there is not lost.
const afterAnswer = 5 * time.Second

// streamWait is how long what is sent right after the handshake waits for the
// server to answer the GET of its event stream.
const streamWait = 300 * time.Millisecond

// streamable is the link of the Streamable HTTP transport in the handshake era
// (MCP 2025-03-26 to 2025-11-25, basic/transports). What a message's headers
// are is said in one place, header, for the revision that needs more of them.
//
// It stands until stop: each call fails on its own, and the next may succeed.
// A call that did not reach the server at all (refused, no such host, TLS) ends
// with jsonrpc.ErrNotSent and one that found the session gone with errRefused:
// for both the Conn is evicted and the request sent again on a fresh one, whose
// handshake either works or fails, and then sets the growing waits of the
// Server. So a server that is down is not knocked at by every call, and one
// that was restarted is met again by the first call after the wait.
//
// Beside what a remote has wait, requests other than lists wait after the
// handshake until the event stream is there (awaitStream).
type streamable struct {
	*remote
	// refused is asked what to do when initialize is answered as a server of
	// the older transport would; if it reports true, it has taken the call over.
	refused func(p *post, err error) bool

	// answered is closed when the first GET for the event stream has been
	// answered, however, or is not waited for any more.
	answered     chan struct{}
	answeredOnce sync.Once

	mu      sync.Mutex
	session string // guarded by mu: "" while the server has given none
	version string // guarded by mu: "" until the handshake is done
	gone    bool   // guarded by mu: the server has forgotten the session
}

// dialHTTP gives c the link of its spec's transport. Nothing is sent yet.
func (c *Conn) dialHTTP() error {
	if c.server.spec.Transport == TransportSSE {
		s, err := newSSE(c)
		if err == nil {
			c.link, c.rpc = s, jsonrpc.NewConn(s, c, "")
			s.start()
		}
		return err
	}
	r, err := newRemote(c)
	if err != nil {
		return err
	}
	h := &streamable{remote: r, answered: make(chan struct{})}
	c.link = h
	if c.server.spec.Transport == TransportHTTP {
		c.link = newEither(h)
	}
	c.rpc = jsonrpc.NewConn(c.link, c, "")
	return nil
}

// Send implements jsonrpc.Sender.
func (h *streamable) Send(m *jsonrpc.Message, call *jsonrpc.Call) {
	run := h.tell
	if call != nil {
		run = h.ask
	}
	h.launch(m, call, run)
}

// settled implements link.
func (h *streamable) settled(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version = version
}

// stop implements link. The server is told that the session is over.
func (h *streamable) stop(l ladder) { h.end(l, h.leave) }

// leave ends the session (MCP 2025-11-25, transports, session management).
func (h *streamable) leave(ctx context.Context) {
	h.mu.Lock()
	needless := h.session == "" || h.gone
	h.mu.Unlock()
	if needless {
		return
	}
	resp, err := h.do(ctx, http.MethodDelete, h.url, h.header(http.Header{}), nil)
	if err != nil {
		h.conn.log.Debug().Err(err).Msg("ending the session failed")
		return
	}
	discard(resp.Body)
	resp.Body.Close()
}

// header adds to own what every message carries once it is known.
func (h *streamable) header(own http.Header) http.Header {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != "" {
		own["Mcp-Session-Id"] = []string{h.session}
	}
	if h.version != "" && h.version != "2024-11-05" {
		own["Mcp-Protocol-Version"] = []string{h.version}
	}
	return own
}

// held returns the session's id, or "".
func (h *streamable) held() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.session
}

// forgotten notes that the server does not know the session any more.
func (h *streamable) forgotten() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = true
}

// begin takes the session's id from the answer to initialize.
func (h *streamable) begin(header http.Header) error {
	id := header.Get("Mcp-Session-Id")
	if strings.ContainsFunc(id, func(c rune) bool { return c < 0x21 || c > 0x7E }) {
		return unavailable(h.conn.Name(), errors.New("its session id holds characters other than visible ASCII"))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.session = id
	return nil
}

// tell delivers a notification or a response. Any 2xx will do; the body, if
// there is one, means nothing.
func (h *streamable) tell(p *post) error {
	resp, err := h.exchange(p, h.url, h.header(postHeader()))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text := h.refusal(p, resp)
		if h.sessionGone(p, resp, text) {
			h.forgotten()
			h.conn.server.Evict(h.conn)
		}
		return h.statusError(resp, text)
	}
	p.pass()
	discard(resp.Body)
	if p.method == "notifications/initialized" {
		h.tasks.Go(h.listen)
	}
	return nil
}

// ask sends a request and hands on all that comes back on its POST. The error
// is what ends the call, if it has no answer by then.
func (h *streamable) ask(p *post) error {
	h.awaitStream(p)
	own := h.header(postHeader())
	if err := h.describe(p, own, false); err != nil {
		return err
	}
	resp, err := h.exchange(p, h.url, own)
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusBadRequest && p.method == "tools/call" && h.conn.Modern() {
		if resp, err = h.askAgain(p, resp); err != nil {
			return err
		}
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return h.refuse(p, resp)
	}
	if p.method == "initialize" {
		if err := h.begin(resp.Header); err != nil {
			return err
		}
	}
	if p.method == "server/discover" {
		if err := h.read(p, resp); err != nil {
			return fmt.Errorf("%w: %w", errNotModern, err) // it took what it does not know
		}
		return nil
	}
	return h.read(p, resp)
}

// read takes the answer to a request out of a response that may hold it.
func (h *streamable) read(p *post, resp *http.Response) error {
	switch kind := mediaType(resp); kind {
	case "text/event-stream":
		return h.follow(p, resp.Body)
	case "application/json", "text/plain", "":
		return h.single(p, resp)
	default:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, excerptSource))
		return &HintError{
			Err:  fmt.Errorf("the server answered with %s in place of JSON-RPC: %s", h.clean(kind), h.statusText(resp, text)),
			Hint: "check the url of this server in the config",
		}
	}
}

// single takes an answer that is the whole body.
func (h *streamable) single(p *post, resp *http.Response) error {
	h.conn.room(p.ctx)
	text, err := io.ReadAll(io.LimitReader(resp.Body, int64(h.max)+1))
	if err != nil {
		return closedEarly(err)
	}
	if len(text) > h.max {
		return h.conn.tooLong()
	}
	text = oneLine(text)
	m, err := jsonrpc.Parse(text)
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return fmt.Errorf("the server took the request and gave no answer: %s", h.statusText(resp, nil))
	case err == nil && (m.Method != "" || h.answers(m, p.call)):
		h.conn.rpc.ReceiveOn(m, p.call)
	case err == nil:
		return fmt.Errorf("the server answered another request, id %s", h.clean(string(m.ID)))
	case errors.Is(err, jsonrpc.ErrEnvelope) && h.batch(text, p.call):
	default:
		return fmt.Errorf("the server's answer is %w: %s", err, h.statusText(resp, text))
	}
	h.conn.idle()
	if h.waiting(p.call) {
		return errors.New("the server's answer does not hold the response")
	}
	return nil
}

// answers reports whether a response belongs to call, and gives one without an
// id the call's: what is wrong with a POST can only concern its request.
func (r *remote) answers(m *jsonrpc.Message, call *jsonrpc.Call) bool {
	if m.ID == nil && m.Error != nil {
		m.ID = r.conn.rpc.ID(call.Number)
	}
	number, ok := callNumber(m.ID)
	return ok && number == call.Number
}

// batch takes an array of messages where the revision has such.
func (h *streamable) batch(text []byte, call *jsonrpc.Call) bool {
	h.mu.Lock()
	batches := h.version == "2025-03-26"
	h.mu.Unlock()
	if !batches {
		return false
	}
	elements, ok := jsonrpc.Batch(text)
	if ok {
		h.conn.rpc.ReceiveBatch(elements, call)
	}
	return ok
}

// oneLine returns text as it may stand on a line of a client's stdin.
func oneLine(text []byte) []byte {
	text = bytes.TrimPrefix(text, []byte("\xEF\xBB\xBF"))
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	return jsonrpc.OneLine(text)
}

// refusal reads the body of a response other than 2xx. It does not wait long.
func (h *streamable) refusal(p *post, resp *http.Response) []byte {
	defer time.AfterFunc(errorBodyWait, p.cancel).Stop()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, int64(h.max)))
	return oneLine(text)
}

// refuse deals with a response other than 2xx to a request. A JSON-RPC error
// in it is the answer, save where the status itself means something: 401, a
// session that is gone, an initialize that another transport may take.
func (h *streamable) refuse(p *post, resp *http.Response) error {
	text := h.refusal(p, resp)
	err := h.statusError(resp, text)
	if h.sessionGone(p, resp, text) {
		h.forgotten()
		return unavailable(h.conn.Name(), fmt.Errorf("%w (%s)", errRefused, h.statusText(resp, text)))
	}
	switch status := resp.StatusCode; status {
	case http.StatusUnauthorized:
		return err
	case http.StatusForbidden, http.StatusTooManyRequests:
		if p.method == "server/discover" {
			return err // an answer, but none that tells an era
		}
	default:
		if p.method == "server/discover" && (status/100 == 4 || status == http.StatusInternalServerError || status == http.StatusNotImplemented) {
			err = fmt.Errorf("%w: %w", errNotModern, err)
		}
	}
	switch status := resp.StatusCode; status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		// MCP 2025-11-25, transports, "Backwards Compatibility".
		if p.method == "initialize" && h.refused != nil && !isModernRefusal(text) && h.refused(p, err) {
			return nil
		}
	}
	if m, perr := jsonrpc.Parse(text); perr == nil && m.Error != nil && h.answers(m, p.call) {
		h.conn.rpc.Receive(m)
		h.conn.idle()
		return nil
	}
	return err
}

// sessionGone reports whether the response says that the server does not know
// our session: 404 by the specification, save a "method not found" for this
// very request. Servers made after the TypeScript SDK's examples say 400 and
// name the session in an error that has no id, or in plain text.
func (h *streamable) sessionGone(p *post, resp *http.Response, text []byte) bool {
	if h.held() == "" {
		return false
	}
	m, err := jsonrpc.Parse(text)
	ours := err == nil && m.Error != nil && m.ID != nil
	switch resp.StatusCode {
	case http.StatusNotFound:
		return !ours || jsonrpc.AsError(m.Error).Code != jsonrpc.CodeMethodNotFound
	case http.StatusBadRequest:
		return !ours && strings.Contains(strings.ToLower(h.excerpt(text)), "session")
	}
	return false
}
