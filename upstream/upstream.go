// Package upstream reaches the configured MCP servers: it reads which there
// are, starts or dials them, shakes hands, lists what they offer, forwards
// requests, and ends them.
//
// A Set holds one Server per enabled entry of the config; a Server is what
// outlives connections: it knows when to connect, waits longer after each
// crash, and sends requests on the Conn of the moment. A Conn is one session.
// Below a Conn is a link, which knows how bytes travel; beside it nothing does.
//
// Goroutines: a Set has one that forks children and one for each connection
// attempt or stop under way; each link has its own, named in its file. Close
// waits for all of them.
package upstream

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/rs/zerolog"

	"coffer/jsonrpc"
)

// Client is what upstreams are told of the downstream client.
type Client struct {
	Info         []byte // raw clientInfo, or nil
	Capabilities []byte // raw capabilities, without those that cannot be relayed
	Modern       bool   // its first message was of 2026-07-28
	LogLevel     string // what it set with logging/setLevel, or ""
}

// Options are what all servers of a Set share.
type Options struct {
	Handler        Handler
	Log            zerolog.Logger
	MaxMessageSize int      // bytes
	Environ        []string // coffer's own environment, as os.Environ gives it
	Dial           Dial     // nil: by each server's spec
	// Stderr, if not nil, gets each line that a server writes to its stderr. It
	// is called on the goroutine that drains that.
	Stderr func(server, line string)
}

// Set is all the upstreams of one session. It is safe for concurrent use.
type Set struct {
	opts   Options
	ctx    context.Context // lifetime of every attempt and connection; ends at Close
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup
	forks  *forker

	mu      sync.Mutex
	servers []*Server // guarded by mu, as are all below: those added
	client  *Client   // nil until Start
	heard   []byte    // the capabilities of the newest Start
	closed  bool      // no task may start any more
	end     ladder    // how links are stopped
}

// NewSet returns an empty Set. The caller must Close it.
func NewSet(ctx context.Context, opts Options) *Set {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Set{opts: opts, ctx: ctx, cancel: cancel, forks: newForker(opts.Log), end: politely}
}

// Add enters a server. It is connected to by Start or, after that, when it is
// needed.
func (s *Set) Add(spec *Spec) *Server {
	server := &Server{set: s, spec: spec, log: s.opts.Log.With().Str("upstream", spec.Name).Logger()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers = append(s.servers, server)
	return server
}

// Remove takes a server out: nothing new is sent to it, requests that are open
// on it finish, and then it is stopped.
func (s *Set) Remove(server *Server) {
	if c := server.leave(); c != nil {
		server.Evict(c)
	}
}

// Start tells the Set who the client is and connects to every server, all at
// once. It does not wait. A client of 2026-07-28 says in each request what it
// can do: a later call counts if that is more than before. What a legacy
// upstream was told at its handshake cannot be added to, so those get a fresh
// connection.
func (s *Set) Start(client Client) {
	s.mu.Lock()
	first, more := s.client == nil, false
	if first {
		s.client = &client
	} else if !bytes.Equal(client.Capabilities, s.heard) {
		s.client.Capabilities, more = joined(s.client.Capabilities, client.Capabilities)
	}
	s.heard = client.Capabilities
	servers := slices.Clone(s.servers)
	s.mu.Unlock()
	for _, server := range servers {
		if more {
			server.outgrow()
		}
		if first || more {
			server.attempt()
		}
	}
}

// joined returns capabilities with those of more that they lack, and whether
// there were any.
func joined(capabilities, more []byte) (all []byte, grown bool) {
	jsonrpc.Members(more, func(key string, value []byte) {
		if jsonrpc.Lookup(capabilities, key) == nil {
			capabilities, grown = jsonrpc.Set(capabilities, key, value), true
		}
	})
	return capabilities, grown
}

// Started reports whether there is a client to connect to servers for.
func (s *Set) Started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client != nil
}

// who returns the client that Start was told of.
func (s *Set) who() Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.client
}

// SetLogLevel has servers of 2026-07-28 told of a level with each request.
func (s *Set) SetLogLevel(level string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client.LogLevel = level
}

// run starts a task that Close waits for; false after Close.
func (s *Set) run(task func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.tasks.Go(task)
	return true
}

// Close ends every connection and attempt and returns when all are gone. With
// prompt, upstreams are not given the time to leave by themselves.
func (s *Set) Close(prompt bool) {
	s.mu.Lock()
	s.closed = true
	if prompt {
		s.end = promptly
	}
	servers := slices.Clone(s.servers)
	s.mu.Unlock()
	s.cancel(errClosing)
	var stops sync.WaitGroup
	for _, server := range servers {
		for _, c := range server.takeAll() {
			stops.Go(func() { c.link.stop(s.ladder()) })
		}
	}
	stops.Wait()
	s.tasks.Wait()
	s.forks.close()
}

// ladder returns how a link is to be stopped now.
func (s *Set) ladder() ladder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

var (
	// errClosing is why things end when coffer itself does.
	errClosing = errors.New("coffer is closing")
	// errRemoved is why a server is not connected to any more.
	errRemoved = errors.New("taken out of the config")
)
