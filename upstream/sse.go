package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"coffer/jsonrpc"
)

// endpointWait is how long a stream may stand without its first event.
const endpointWait = 10 * time.Second

// sse is the link of the HTTP+SSE transport (MCP 2024-11-05, basic/transports):
// one event stream on which everything comes, and an address, said by its first
// event, that takes messages. When the stream ends, so does the link.
type sse struct {
	*remote
	ready    chan struct{} // closed when endpoint is set
	endpoint *url.URL      // where messages go; set before ready is closed
	before   error         // what was tried before this transport, or nil
}

func newSSE(c *Conn) (*sse, error) {
	r, err := newRemote(c)
	return &sse{remote: r, ready: make(chan struct{})}, err
}

// start opens the stream.
func (s *sse) start() { s.tasks.Go(s.read) }

// Send implements jsonrpc.Sender.
func (s *sse) Send(m *jsonrpc.Message, call *jsonrpc.Call) { s.launch(m, call, s.deliver) }

// settled implements link: this transport has no header for the version.
func (s *sse) settled(string) {}

// stop implements link. Closing the stream is all that tells the server.
func (s *sse) stop(l ladder) { s.end(l, func(context.Context) {}) }

// deliver POSTs a message. The answer to a request comes on the stream.
func (s *sse) deliver(p *post) error {
	select {
	case <-s.ready:
	case <-p.ctx.Done():
		return unavailable(s.conn.Name(), notSent{context.Cause(p.ctx)})
	}
	resp, err := s.exchange(p, s.endpoint, http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	p.pass()
	if resp.StatusCode/100 == 2 {
		discard(resp.Body)
		return nil
	}
	return s.refuse(p, resp)
}

// refuse deals with a status other than 2xx. The endpoint names a session, so
// a server that does not know it has not run the request.
func (s *sse) refuse(p *post, resp *http.Response) error {
	defer time.AfterFunc(errorBodyWait, p.cancel).Stop()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, int64(s.max)))
	text = oneLine(text)
	m, err := jsonrpc.Parse(text)
	isError := err == nil && m.Error != nil
	session := strings.Contains(strings.ToLower(s.excerpt(text)), "session")
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusBadRequest && session && (!isError || m.ID == nil):
		return unavailable(s.conn.Name(), fmt.Errorf("%w (%s)", errRefused, s.statusText(resp, text)))
	case isError && p.call != nil && resp.StatusCode != http.StatusUnauthorized && s.answers(m, p.call):
		s.conn.rpc.Receive(m)
		s.conn.idle()
		return nil
	}
	return s.statusError(resp, text)
}

// read reads the stream. Without it no answer can come.
func (s *sse) read() {
	err := s.stream()
	if s.before != nil {
		select {
		case <-s.ready:
		default:
			err = bothFailed(s.before, err)
		}
	}
	s.conn.lost(err)
}

func (s *sse) stream() error {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	resp, err := s.do(ctx, http.MethodGet, s.url, http.Header{"Accept": {"text/event-stream"}}, nil)
	if err != nil {
		return s.broken(err, false)
	}
	defer resp.Body.Close()
	late := time.AfterFunc(endpointWait, func() { cancel(fmt.Errorf("its event stream has not named an endpoint within %s", endpointWait)) })
	defer late.Stop()
	if !isStream(resp) {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, excerptSource))
		if resp.StatusCode/100 != 2 {
			return s.statusError(resp, oneLine(text))
		}
		return &HintError{
			Err:  fmt.Errorf("the server gives no event stream: %s", s.statusText(resp, text)),
			Hint: "check the url of this server in the config",
		}
	}
	err = s.pump(ctx, resp.Body, new(cursor), func(ev event) {
		switch {
		case ctx.Err() != nil: // what was still in the buffer
		case s.endpoint != nil:
			s.take(ev, nil, nil)
		default:
			if err := s.settle(ev, resp.Request.URL); err != nil {
				cancel(err)
			}
			late.Stop()
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("its event stream ended: %w", err)
}

// settle takes the stream's first event, which names the endpoint. Headers and
// messages go there, so it must be of the stream's own origin.
func (s *sse) settle(ev event, base *url.URL) error {
	if ev.name != "endpoint" || ev.cut {
		return errors.New("its event stream does not begin with the event endpoint: it is no HTTP+SSE server")
	}
	u, err := base.Parse(strings.TrimSpace(string(ev.data)))
	if err != nil {
		return errors.New("the endpoint that its event stream names is no address")
	}
	if origin(u) != origin(base) {
		return &HintError{
			Err:  fmt.Errorf("its event stream names an endpoint of another origin, %s", origin(u)),
			Hint: "if that is right, set the url of this server in the config to that origin",
		}
	}
	if u.User == nil {
		u.User = base.User
	}
	s.endpoint = u
	close(s.ready)
	return nil
}

// either is the link to a URL without a type: streamable HTTP, and, when that
// is refused as a server of the older transport would, HTTP+SSE (MCP 2025-11-25,
// transports, "Backwards Compatibility"). The refused initialize is then sent
// again by the other transport. Every connection finds out anew.
type either struct {
	*streamable
	mu    sync.Mutex
	old   *sse // guarded by mu: what is used in place of streamable, or nil
	ended bool // guarded by mu: old will not be set any more
}

func newEither(h *streamable) *either {
	e := &either{streamable: h}
	h.refused = e.fallBack
	return e
}

// fallBack goes over to HTTP+SSE and takes p along. err is why.
func (e *either) fallBack(p *post, err error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	old, dialErr := newSSE(e.conn)
	if dialErr != nil {
		return false
	}
	e.conn.log.Debug().Err(err).Msg("trying HTTP+SSE")
	old.before = err
	e.old = old
	old.start()
	old.Send(&jsonrpc.Message{ID: e.conn.rpc.ID(p.call.Number), Method: p.call.Method, Params: p.call.Params}, p.call)
	return true
}

// bothFailed says why neither transport works, with the hint of the first.
func bothFailed(first, second error) error {
	if e, ok := errors.AsType[*Error](first); ok {
		first = &HintError{Err: e.Err, Hint: e.Hint}
	}
	if e, ok := errors.AsType[*Error](second); ok {
		second = e.Err
	}
	return fmt.Errorf("neither streamable HTTP (%w) nor HTTP+SSE (%w) works", first, second)
}

// inUse returns the link in use.
func (e *either) inUse() link {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.old != nil {
		return e.old
	}
	return e.streamable
}

// Send implements jsonrpc.Sender.
func (e *either) Send(m *jsonrpc.Message, call *jsonrpc.Call) { e.inUse().Send(m, call) }

// settled implements link.
func (e *either) settled(version string) { e.inUse().settled(version) }

// abandoned implements link.
func (e *either) abandoned(call *jsonrpc.Call) {
	e.streamable.abandoned(call)
	e.inUse().abandoned(call)
}

// stop implements link.
func (e *either) stop(l ladder) {
	e.mu.Lock()
	e.ended = true
	old := e.old
	e.mu.Unlock()
	e.streamable.stop(l)
	if old != nil {
		old.stop(l)
	}
}
