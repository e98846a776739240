// Package upstreamtest is a scripted MCP server to test against: over pipes in
// the test's own process (Server.Dial, Server.Serve), as a command (Main), and
// over streamable HTTP (Server.ServeHTTP).
//
// A Server is what outlives connections: its Script, what it offers now, and
// its count of messages. A Conn is one client's session with it. By default it
// answers as a good server does; Rules make it do otherwise, and Watch takes
// messages out of its hands, so that a test can answer them line by line.
//
// It speaks the handshake era, and 2026-07-28 if its Script says so.
// answer.go is all that knows of methods.
package upstreamtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"coffer/jsonrpc"
)

// Server is a scripted MCP server. It is safe for concurrent use.
type Server struct {
	// Watch, if set, is given each line that a client sends, parsed (nil if it
	// is no single message), before the Server acts on it; if it returns true
	// the Server does not. Set it before the first connection.
	Watch func(c *Conn, m *jsonrpc.Message, line []byte) bool
	// Left, if set, is called when a client has closed its connection.
	Left func(c *Conn)

	mu     sync.Mutex
	script Script                   // guarded by mu, as are all below
	counts map[int]int              // rule -> messages that it was about
	dials  int                      // connections so far
	open   map[string]*Conn         // HTTP sessions by id
	modern *Conn                    // all of HTTP that has no session, or nil
	seen   map[string]chan struct{} // method -> closed when a message of it has come
}

// NewServer returns a Server that acts by script.
func NewServer(script Script) *Server {
	s := &Server{script: script, counts: map[int]int{}, open: map[string]*Conn{}, seen: map[string]chan struct{}{}}
	if script.Log != "" {
		old, _ := os.ReadFile(script.Log) // not there: nothing was received yet
		for line := range bytes.Lines(old) {
			if m, err := jsonrpc.Parse(bytes.TrimSpace(line)); err == nil {
				s.count(m)
			}
		}
	}
	return s
}

// Change has the Server act by a changed script from now on. It tells no
// client: Conn.Send does.
func (s *Server) Change(change func(*Script)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.script)
}

// Conn is one client's session.
type Conn struct {
	// Number counts the Server's connections from 1.
	Number int

	server *Server
	out    *outbox
	kill   func(code int) // ends the connection from this side

	done chan struct{} // closed when the connection is over
	once sync.Once

	mu      sync.Mutex
	asking  map[string]chan []byte // guarded by mu: id of a question -> who waits for the answer
	listens map[string]listen      // guarded by mu: id of an open subscriptions/listen -> it
}

// connect returns a new Conn. kill is called at most once.
func (s *Server) connect(kill func(code int)) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials++
	c := &Conn{
		Number: s.dials, server: s, kill: kill, done: make(chan struct{}),
		asking: map[string]chan []byte{}, listens: map[string]listen{},
	}
	c.out = newOutbox(c.traceSent)
	return c
}

// Send sends line, which must not contain a line end, whatever it is.
func (c *Conn) Send(line []byte) { c.out.put(line) }

// Die ends the connection from the server's side, as a crash does: what waits
// to be sent is lost.
func (c *Conn) Die(code int) {
	c.once.Do(func() {
		close(c.done)
		c.kill(code)
	})
}

// Dial connects to the Server over pipes: from is what it writes, to is what it
// reads. It leaves when to is closed.
func (s *Server) Dial() (c *Conn, from io.ReadCloser, to io.WriteCloser) {
	serverIn, to := io.Pipe()
	from, serverOut := io.Pipe()
	c = s.connect(func(int) {
		serverIn.Close()
		serverOut.Close()
	})
	go c.serve(serverIn, serverOut)
	return c, from, to
}

// Serve serves one connection until in ends, then closes out and returns. die
// is what a crash is, and gets its code.
func (s *Server) Serve(in io.Reader, out io.WriteCloser, die func(code int)) {
	s.connect(die).serve(in, out)
}

func (c *Conn) serve(in io.Reader, out io.WriteCloser) {
	var writer sync.WaitGroup
	writer.Go(func() { c.out.drain(out, nil) })
	reader := jsonrpc.NewReader(in, 0)
	for {
		line, err := reader.Next()
		if err != nil && !errors.Is(err, jsonrpc.ErrTooLong) {
			break
		}
		c.receive(line)
	}
	c.once.Do(func() {
		close(c.done)
		if c.server.Left != nil {
			c.server.Left(c)
		}
	})
	c.out.close()
	writer.Wait()
	out.Close()
}

// receive deals with one line over a pipe.
func (c *Conn) receive(line []byte) {
	c.take(line, c.out, func(answer []byte, _ int) {
		if answer != nil {
			c.Send(answer)
		}
	})
}

// take deals with one line. What rules send goes to out. answered is called
// once, unless Watch has taken the line or the connection ends: with the answer
// to a request, or nil if there is to be none, and with an HTTP status if that
// is to refuse it.
func (c *Conn) take(line []byte, out *outbox, answered func(answer []byte, status int)) {
	s := c.server
	m, err := jsonrpc.Parse(line)
	if err != nil {
		m = nil
	}
	s.log(line)
	c.trace('<', line)
	if s.Watch != nil && s.Watch(c, m, line) {
		return
	}
	if m == nil {
		return
	}
	c.note(m)
	rule := s.ruleFor(m)
	if rule == nil && m.Method == "subscriptions/listen" && m.IsRequest() && s.speaksModern() {
		c.subscribe(m, out) // and the answer comes never
		return
	}
	if rule == nil {
		answered(s.answer(m), 0)
		return
	}
	if rule.Wait == 0 && rule.After == "" {
		c.follow(rule, m, out, answered)
		return
	}
	go func() {
		select {
		case <-time.After(time.Duration(rule.Wait)):
		case <-c.done:
			return
		}
		select {
		case <-s.until(rule.After):
			c.follow(rule, m, out, answered)
		case <-c.done:
		}
	}()
}

// follow does what a rule says.
func (c *Conn) follow(rule *Rule, m *jsonrpc.Message, out *outbox, answered func(answer []byte, status int)) {
	if rule.Status != 0 {
		answered(nil, rule.Status)
		return
	}
	for _, text := range rule.Send {
		if line := filled(text, m); !c.announce(line) {
			out.put(line)
		}
	}
	switch {
	case m.ID != nil && len(rule.Ask) > 0:
		c.ask(rule, m, out, func(answer []byte) { answered(answer, 0) })
	case rule.Die != nil:
		out.flush()
		c.Die(*rule.Die)
	case rule.Silent:
		answered(nil, 0)
	case m.ID != nil && rule.Result != nil:
		answered(c.server.result(m, rule.Result), 0)
	case m.ID != nil && rule.Error != nil:
		answered((&jsonrpc.Message{ID: m.ID, Error: rule.Error}).Append(nil), 0)
	default:
		answered(c.server.answer(m), 0)
	}
}

// count counts m for every rule that it concerns. mu is held, or nobody else
// has s yet.
func (s *Server) count(m *jsonrpc.Message) {
	for i := range s.script.Rules {
		if s.script.Rules[i].concerns(m) {
			s.counts[i]++
		}
	}
}

// ruleFor counts m and returns the rule for it, or nil.
func (s *Server) ruleFor(m *jsonrpc.Message) *Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(m)
	for i := range s.script.Rules {
		r := s.script.Rules[i]
		if r.concerns(m) && (r.Nth == 0 || r.Nth == s.counts[i]) {
			return &r
		}
	}
	return nil
}

// log appends line to the script's log.
func (s *Server) log(line []byte) {
	s.mu.Lock()
	path := s.script.Log
	s.mu.Unlock()
	if path != "" {
		appendLine(path, string(line))
	}
}

// appendLine appends a line to a file in one write, so that several processes
// can share it.
func appendLine(path, line string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err) // a test that cannot record proves nothing
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		panic(err)
	}
}

// items returns what the Server lists under member, and its page size.
func (s *Server) items(member string) ([]json.RawMessage, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lists := map[string][]json.RawMessage{
		"tools": s.script.Tools, "resources": s.script.Resources,
		"resourceTemplates": s.script.Templates, "prompts": s.script.Prompts,
	}
	return lists[member], s.script.Page
}
