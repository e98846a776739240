package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// bridgeChild is one process of the stdio server.
type bridgeChild struct {
	cmd    *exec.Cmd
	modern bool
	done   chan struct{} // closed after exit is set, when the process is gone
	exit   error

	writing sync.Mutex // guards writes to stdin
	stdin   io.WriteCloser

	mu     sync.Mutex      // guards the fields below
	posts  []*bridgeStream // open requests, oldest first
	events *bridgeStream   // the GET stream, nil when there is none
	held   [][]byte        // for the next GET stream
}

func (b *httpBridge) startChild(modern bool) (*bridgeChild, error) {
	c := &bridgeChild{cmd: b.start(), modern: modern, done: make(chan struct{})}
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.stdin = stdin
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.read(stdout) // ends with the child's stdout; close waits for it
	return c, nil
}

func (c *bridgeChild) read(stdout io.Reader) {
	defer close(c.done)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			c.deliver(line)
		}
		if err != nil {
			break
		}
	}
	c.exit = c.cmd.Wait()
}

func (c *bridgeChild) write(message []byte) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.stdin.Write(append(message, '\n')) // a child that is gone shows on done
}

// deliver gives a message of the child to the HTTP stream that it belongs to.
func (c *bridgeChild) deliver(line []byte) {
	var m bridgeMessage
	if err := json.Unmarshal(line, &m); err != nil {
		fmt.Fprintf(os.Stderr, "bridge: not a message: %q\n", line)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	find := func(want json.RawMessage, have func(*bridgeStream) string) *bridgeStream {
		i := slices.IndexFunc(c.posts, func(s *bridgeStream) bool { return have(s) == string(want) })
		if i < 0 {
			return nil
		}
		return c.posts[i]
	}
	byID := func(s *bridgeStream) string { return s.id }
	var to *bridgeStream
	switch {
	case m.Method == "":
		if to = find(m.ID, byID); to != nil {
			c.posts = slices.DeleteFunc(c.posts, func(s *bridgeStream) bool { return s == to })
			to.push(line, true)
		}
		return
	case m.Params.Meta.SubscriptionID != nil:
		to = find(m.Params.Meta.SubscriptionID, byID)
	case m.Method == "notifications/progress":
		to = find(m.Params.ProgressToken, func(s *bridgeStream) string { return s.token })
	case c.modern:
		to = find(json.RawMessage("true"), func(s *bridgeStream) string { return fmt.Sprint(s.logs) })
	default:
		to = c.legacyStream(m.Method)
		if to == nil {
			c.held = append(c.held, line)
		}
	}
	if to != nil {
		to.push(line, false)
	}
}

// legacyStream returns the stream for a message of which stdio does not tell
// to what request it belongs: questions and logs go to the newest request,
// news of the server itself go to the GET stream.
func (c *bridgeChild) legacyStream(method string) *bridgeStream {
	news := method == "notifications/resources/updated" || strings.HasSuffix(method, "/list_changed")
	if len(c.posts) == 0 || news && c.events != nil {
		return c.events
	}
	return c.posts[len(c.posts)-1]
}

func (c *bridgeChild) has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.posts, func(s *bridgeStream) bool { return s.id == id })
}

func (c *bridgeChild) inUse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.posts) > 0 || c.events != nil
}

func (c *bridgeChild) openStream(m bridgeMessage) *bridgeStream {
	s := newBridgeStream()
	s.id, s.token, s.logs = string(m.ID), string(m.Params.Meta.ProgressToken), m.Params.Meta.LogLevel != nil
	c.mu.Lock()
	defer c.mu.Unlock()
	c.posts = append(c.posts, s)
	return s
}

// serveAnswer answers a POST: with JSON if the answer is the first that comes,
// else with an event stream. It returns an error if the client hung up.
func (c *bridgeChild) serveAnswer(w http.ResponseWriter, r *http.Request, s *bridgeStream, modern bool) error {
	for streaming := false; ; {
		line, last, err := s.next(r.Context(), c.done)
		if err != nil {
			c.mu.Lock()
			c.posts = slices.DeleteFunc(c.posts, func(other *bridgeStream) bool { return other == s })
			c.mu.Unlock()
			if r.Context().Err() == nil && !streaming {
				http.Error(w, "the server is gone", http.StatusBadGateway)
			}
			return r.Context().Err()
		}
		if last && !streaming {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(statusOf(line, modern))
			w.Write(line)
			return nil
		}
		if !streaming {
			streaming = true
			w.Header().Set("Content-Type", "text/event-stream")
		}
		writeEvent(w, line)
		if last {
			return nil
		}
	}
}

// statusOf returns the HTTP status that 2026-07-28 asks for (streamable HTTP,
// "Sending Messages"): errors that are the request's own fault are 4xx there.
func statusOf(line []byte, modern bool) int {
	var m bridgeMessage
	if json.Unmarshal(line, &m) != nil || m.Error == nil || !modern {
		return http.StatusOK
	}
	switch m.Error.Code {
	case -32601:
		return http.StatusNotFound
	case -32700, -32600, -32602, -32020, -32021, -32022:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

func writeEvent(w http.ResponseWriter, line []byte) {
	fmt.Fprintf(w, "event: message\ndata: %s\n\n", line)
	http.NewResponseController(w).Flush()
}

// serveEvents serves a session's GET stream until the client or the child
// goes. A second one takes the first one's place.
func (c *bridgeChild) serveEvents(w http.ResponseWriter, r *http.Request) {
	s := newBridgeStream()
	c.mu.Lock()
	c.events = s
	for _, line := range c.held {
		s.push(line, false)
	}
	c.held = nil
	c.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	http.NewResponseController(w).Flush()
	for {
		line, _, err := s.next(r.Context(), c.done)
		if err != nil {
			break
		}
		writeEvent(w, line)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events == s {
		c.events = nil
	}
}

// bridgeStream is one open HTTP response: an endless queue, so that a client
// that does not read holds up nobody else.
type bridgeStream struct {
	id, token string // of the request, as raw JSON
	logs      bool   // the request asked for log messages (2026-07-28)

	wake chan struct{} // holds one token while the queue may have something

	mu    sync.Mutex // guards the fields below
	queue [][]byte
	whole bool // the last of the queue is the answer
}

func newBridgeStream() *bridgeStream { return &bridgeStream{wake: make(chan struct{}, 1)} }

func (s *bridgeStream) push(line []byte, last bool) {
	s.mu.Lock()
	s.queue = append(s.queue, line)
	s.whole = s.whole || last
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next waits for a message and tells whether it is the answer.
func (s *bridgeStream) next(ctx context.Context, gone <-chan struct{}) (line []byte, last bool, err error) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			line, s.queue = s.queue[0], s.queue[1:]
			last = s.whole && len(s.queue) == 0
			s.mu.Unlock()
			return line, last, nil
		}
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case <-gone:
			gone = nil // what it said last is in the queue already
			s.mu.Lock()
			empty := len(s.queue) == 0
			s.mu.Unlock()
			if empty {
				return nil, false, io.EOF
			}
		}
	}
}
