package upstreamtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"coffer/jsonrpc"
)

// sessionHeader carries the session's id (MCP 2025-11-25, basic/transports,
// "Session Management").
const sessionHeader = "Mcp-Session-Id"

// ServeHTTP is the Server as one endpoint of streamable HTTP (MCP 2025-11-25,
// basic/transports). What a Server sends outside an answer goes to the stream
// of the session's GET; with Script.SSE, what a Rule sends goes to the stream
// of the POST that it is about.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPost:
		s.post(w, r)
	case http.MethodGet:
		s.stream(w, r)
	case http.MethodDelete:
		if c := s.session(w, r); c != nil {
			c.Die(0)
		}
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// Forget has the Server know none of its sessions any more, as after a restart.
func (s *Server) Forget() {
	s.mu.Lock()
	var conns []*Conn
	for _, c := range s.open {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.Die(0)
	}
}

// session returns the session of a request, or answers 404 and returns nil.
func (s *Server) session(w http.ResponseWriter, r *http.Request) *Conn {
	s.mu.Lock()
	c := s.open[r.Header.Get(sessionHeader)]
	s.mu.Unlock()
	if c == nil {
		http.Error(w, "no such session", http.StatusNotFound)
	}
	return c
}

// begin opens a session.
func (s *Server) begin() (c *Conn, id string) {
	c = s.connect(func(int) {
		s.mu.Lock()
		delete(s.open, id)
		s.mu.Unlock()
		c.out.close()
	})
	id = fmt.Sprintf("session-%d", c.Number)
	s.mu.Lock()
	s.open[id] = c
	s.mu.Unlock()
	return c, id
}

// stateless returns the Conn of all that comes without a session, as it does in
// 2026-07-28.
func (s *Server) stateless() *Conn {
	s.mu.Lock()
	c := s.modern
	s.mu.Unlock()
	if c != nil {
		return c
	}
	fresh := s.connect(func(int) {})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.modern == nil {
		s.modern = fresh
	}
	return s.modern
}

func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m, err := jsonrpc.Parse(body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var c *Conn
	stateless := s.speaksModern() && isModern(m)
	switch {
	case stateless:
		c = s.stateless()
	case m.Method == "initialize":
		var id string
		c, id = s.begin()
		w.Header().Set(sessionHeader, id)
	default:
		if c = s.session(w, r); c == nil {
			return
		}
	}
	s.mu.Lock()
	events := (s.script.SSE || stateless) && m.IsRequest()
	s.mu.Unlock()

	// The answer comes through an outbox of the POST's own, which it closes.
	own, out, status := newOutbox(c.traceSent), c.out, 0
	if events {
		out = own
	}
	c.take(bytes.TrimSpace(body), out, func(answer []byte, refusal int) {
		if status = refusal; answer != nil {
			own.put(answer)
		}
		if answer != nil || refusal != 0 || !m.IsRequest() {
			own.close()
		}
	})
	if !m.IsRequest() {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-c.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	var to io.Writer = plainWriter{w}
	if events {
		to = eventWriter{w}
	}
	own.drain(to, ctx.Done())
	if stateless && r.Context().Err() != nil {
		c.givenUp(m)
	}
	switch {
	case ctx.Err() != nil:
		panic(http.ErrAbortHandler) // a crash: the client sees the connection end
	case status != 0:
		w.WriteHeader(status)
	}
}

// stream serves the GET of a session.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	c := s.session(w, r)
	if c == nil {
		return
	}
	s.mu.Lock()
	none := s.script.NoStream
	s.mu.Unlock()
	if none || !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	c.out.drain(eventWriter{w}, r.Context().Done())
}

// plainWriter writes the answer as the whole body.
type plainWriter struct{ w http.ResponseWriter }

func (p plainWriter) Write(line []byte) (int, error) {
	p.w.Header().Set("Content-Type", "application/json")
	return p.w.Write(line)
}

// eventWriter writes each line as one event.
type eventWriter struct{ w http.ResponseWriter }

func (e eventWriter) Write(line []byte) (int, error) {
	e.w.Header().Set("Content-Type", "text/event-stream")
	_, err := fmt.Fprintf(e.w, "event: message\ndata: %s\n\n", bytes.TrimSpace(line))
	e.w.(http.Flusher).Flush()
	return len(line), err
}
