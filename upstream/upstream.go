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
}

// Set is all the upstreams of one session. It is safe for concurrent use.
type Set struct {
	opts    Options
	ctx     context.Context // lifetime of every attempt and connection; ends at Close
	cancel  context.CancelCauseFunc
	tasks   sync.WaitGroup
	forks   *forker
	servers []*Server
	byName  map[string]*Server

	mu     sync.Mutex
	client *Client // guarded by mu: nil until Start
	heard  []byte  // guarded by mu: the capabilities of the newest Start
	closed bool    // guarded by mu: no task may start any more
	end    ladder  // guarded by mu: how links are stopped
}

// NewSet returns a Set of the specs that are not disabled. It connects to none
// before Start. The caller must Close it.
func NewSet(ctx context.Context, specs []Spec, opts Options) *Set {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Set{opts: opts, ctx: ctx, cancel: cancel, forks: newForker(opts.Log), byName: map[string]*Server{}, end: politely}
	for i := range specs {
		if specs[i].Disabled {
			continue
		}
		server := &Server{set: s, spec: &specs[i], log: opts.Log.With().Str("upstream", specs[i].Name).Logger()}
		s.servers = append(s.servers, server)
		s.byName[specs[i].Name] = server
	}
	return s
}

// Servers returns the enabled servers in the order of the config.
func (s *Set) Servers() []*Server { return s.servers }

// Server returns the enabled server with that name, or nil.
func (s *Set) Server(name string) *Server { return s.byName[name] }

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
	s.mu.Unlock()
	for _, server := range s.servers {
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
	s.mu.Unlock()
	s.cancel(errClosing)
	var stops sync.WaitGroup
	for _, server := range s.servers {
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

// errClosing is why things end when coffer itself does.
var errClosing = errors.New("coffer is closing")
