package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"coffer/jsonrpc"
)

const (
	// firstPause and maxPause bound the waits before an event stream is opened
	// again, and minPause what a server's retry field can bring them down to.
	firstPause = time.Second
	maxPause   = 60 * time.Second
	minPause   = 50 * time.Millisecond
	// longLife is how long a stream must have stood to count as one that works.
	longLife = 10 * time.Second
	// maxResumes is how many times in a row the stream of a request is opened
	// again without getting anything from it.
	maxResumes = 5
)

// cursor is where one event stream stands, across the connections that carry
// it.
type cursor struct {
	id        string        // of the last event, or ""
	retry     time.Duration // what the server asks for, or 0
	fruitless int           // connections in a row that brought nothing
}

// pause returns how long to wait before the stream is opened again: what the
// server asks for or 1 s, and after connections that brought nothing up to 60 s.
func (c *cursor) pause() time.Duration {
	wait := max(cmp.Or(c.retry, firstPause), minPause)
	if c.fruitless > 1 {
		wait = max(wait, min(firstPause<<min(c.fruitless-1, 6), maxPause))
	}
	return wait
}

// idleReader calls idle before it waits for more, if anything was handled.
type idleReader struct {
	io.Reader
	busy bool
	idle func()
}

// Read implements io.Reader.
func (r *idleReader) Read(p []byte) (int, error) {
	r.rest()
	return r.Reader.Read(p)
}

func (r *idleReader) rest() {
	if r.busy {
		r.busy = false
		r.idle()
	}
}

// pump gives each event of one connection to handle, until the connection ends
// or fails, and keeps cur. Whether anything came decides cur.fruitless.
func (r *remote) pump(ctx context.Context, body io.Reader, cur *cursor, handle func(event)) error {
	src := &idleReader{Reader: body, idle: r.conn.idle}
	events := newEventReader(src, r.max)
	began, fruit := time.Now(), false
	for {
		r.conn.room(ctx)
		ev, err := events.next()
		fruit = fruit || err == nil && ev.isMessage() || events.id != "" && events.id != cur.id
		cur.id = cmp.Or(events.id, cur.id)
		if events.retry >= 0 {
			cur.retry = max(events.retry, minPause)
		}
		if err != nil {
			src.rest()
			if fruit || time.Since(began) >= longLife {
				cur.fruitless = 0
			} else {
				cur.fruitless++
			}
			return closedEarly(err)
		}
		src.busy = true
		handle(ev)
	}
}

// take hands the message of one event on. call is the request on whose stream
// it came, or nil.
func (r *remote) take(ev event, call *jsonrpc.Call, batch func([]byte, *jsonrpc.Call) bool) {
	if !ev.isMessage() {
		return
	}
	if ev.cut {
		r.conn.oversized(&jsonrpc.Overlong{Head: ev.data, Tail: ev.tail}, call)
		return
	}
	text := oneLine(ev.data)
	m, err := jsonrpc.Parse(text)
	switch {
	case err == nil:
		if call != nil && m.ID == nil && m.Error != nil {
			r.answers(m, call)
		}
		r.conn.rpc.ReceiveOn(m, call) // a response that nobody waits for is a late one
	case errors.Is(err, jsonrpc.ErrEnvelope) && batch != nil && batch(text, call):
	case r.skipped.Add(1) == 1:
		r.conn.log.Warn().Err(err).Str("data", r.clean(string(text[:min(len(text), 1024)]))).Msg("event skipped; further ones are counted")
	}
}

// sleep waits; false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// openStream GETs the event stream, resuming after the event with that id.
func (h *streamable) openStream(ctx context.Context, id string) (*http.Response, error) {
	own := h.header(http.Header{"Accept": {"text/event-stream"}})
	if id != "" {
		own["Last-Event-Id"] = []string{id}
	}
	return h.do(ctx, http.MethodGet, h.url, own, nil)
}

// isStream reports whether the response is an event stream.
func isStream(resp *http.Response) bool {
	return resp.StatusCode == http.StatusOK && mediaType(resp) == "text/event-stream"
}

// follow reads the stream that a request was answered with until it has ended
// and the answer is there. A stream that ends earlier is resumed if its events
// had ids (MCP 2025-11-25, transports, "Resumability and Redelivery"; 2026-07-28
// has no such thing). The request is never sent again.
func (h *streamable) follow(p *post, body io.Reader) error {
	var cur cursor
	var cut *time.Timer
	defer func() {
		if cut != nil {
			cut.Stop()
		}
	}()
	handle := func(ev event) {
		h.take(ev, p.call, h.batch)
		if cut == nil && !h.waiting(p.call) {
			cut = time.AfterFunc(afterAnswer, p.cancel)
		}
	}
	err := h.pump(p.ctx, body, &cur, handle)
	for h.waiting(p.call) && p.ctx.Err() == nil {
		if cur.id == "" || cur.fruitless > maxResumes || h.conn.Modern() {
			return fmt.Errorf("its event stream ended before the answer: %w", err)
		}
		if !sleep(p.ctx, cur.pause()) {
			return context.Cause(p.ctx)
		}
		if err = h.resume(p, &cur, handle); errors.Is(err, errNoStream) {
			return err
		}
	}
	return nil
}

// errNoStream says that the server will not give an event stream.
var errNoStream = errors.New("the server gives no event stream")

// resume opens the stream of p again and reads it to its end.
func (h *streamable) resume(p *post, cur *cursor, handle func(event)) error {
	resp, err := h.openStream(p.ctx, cur.id)
	if err != nil {
		cur.fruitless++
		return err
	}
	defer resp.Body.Close()
	if isStream(resp) {
		return h.pump(p.ctx, resp.Body, cur, handle)
	}
	cur.fruitless++
	if passing(resp.StatusCode) {
		return errors.New(h.statusText(resp, nil))
	}
	return fmt.Errorf("its event stream ended before the answer and cannot be resumed: %w: HTTP %d", errNoStream, resp.StatusCode)
}

// passing reports whether a status says "not now" and not "never". 409 is what
// the TypeScript SDK says while it has not noticed that the last one is dead.
func passing(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500 && status != http.StatusNotImplemented
}

// streamAnswered lets go what waits for the event stream.
func (h *streamable) streamAnswered() { h.answeredOnce.Do(func() { close(h.answered) }) }

// awaitStream has a request of the handshake era wait until the event stream is
// there, if the server has one: what it says there because of the request would
// be lost before. A list causes nothing of the kind and goes at once. A server
// that does not answer the GET is waited for once.
func (h *streamable) awaitStream(p *post) {
	select {
	case <-h.answered:
		return
	default:
	}
	h.mu.Lock()
	shaken := h.version != ""
	h.mu.Unlock()
	if !shaken || h.conn.Modern() || slices.ContainsFunc(Kinds(), func(k Kind) bool { return k.Method() == p.method }) {
		return
	}
	limit := time.NewTimer(streamWait)
	defer limit.Stop()
	select {
	case <-h.answered:
	case <-limit.C:
		h.streamAnswered()
	case <-p.ctx.Done():
	}
}

// listen keeps the stream open on which the server says what belongs to no
// request (MCP 2025-11-25, transports, "Listening for Messages from the
// Server"). Whatever happens to it, calls go on.
func (h *streamable) listen() {
	var cur cursor
	opened := false // it has been there once
	for first := true; first || sleep(h.ctx, cur.pause()); first = false {
		resumed := cur.id != ""
		resp, err := h.openStream(h.ctx, cur.id)
		h.streamAnswered()
		if err != nil {
			cur.fruitless++
			h.conn.log.Debug().Err(err).Msg("event stream not opened")
			continue
		}
		if isStream(resp) {
			if !first && !resumed {
				h.missed()
			}
			opened = true
			err = h.pump(h.ctx, resp.Body, &cur, func(ev event) { h.take(ev, nil, h.batch) })
			h.conn.log.Debug().Err(err).Msg("event stream ended")
		} else if cur.fruitless++; !h.again(resp.StatusCode, opened) {
			resp.Body.Close()
			h.noStream(resp.StatusCode, opened)
			return
		} else if !passing(resp.StatusCode) {
			cur.id = "" // it may be this that the server does not know
		}
		resp.Body.Close()
	}
}

// again reports whether a stream that was answered with status is worth
// another try. A server that never gave one and refuses has none; one that did
// may be confused for a while.
func (h *streamable) again(status int, opened bool) bool {
	if passing(status) {
		return true
	}
	return opened && status >= 400 && status != http.StatusNotFound && status != http.StatusMethodNotAllowed
}

// noStream deals with the end of listening. When a stream that was there is
// not found any more, the session is gone: the next request shall not be the
// one to learn it.
func (h *streamable) noStream(status int, opened bool) {
	h.conn.log.Debug().Int("status", status).Msg("the server has no event stream of its own")
	if !opened {
		return
	}
	h.missed()
	if status == http.StatusNotFound && h.held() != "" {
		h.forgotten()
		h.conn.server.Evict(h.conn)
	}
}

// missed says that notifications may have been lost.
func (h *streamable) missed() {
	h.conn.handler.Missed(h.conn)
	h.conn.idle()
}
