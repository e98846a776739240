package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"coffer/jsonrpc"
)

// Server is one configured upstream, whether connected or not.
type Server struct {
	set   *Set
	spec  *Spec
	log   zerolog.Logger
	calls atomic.Int64 // requests that Start was given

	mu       sync.Mutex
	conn     *Conn          // guarded by mu, as are all below: nil: new requests need a connection first
	all      map[*Conn]bool // every Conn whose link has not been stopped yet
	dial     *dial          // the attempt under way, or nil
	failures int            // attempts and connections that failed in a row
	retryAt  time.Time      // before this no attempt is made
	lastErr  error          // why the newest attempt or connection failed
	era      era            // what the server spoke last
	removed  bool           // nothing new may be sent to it
	history  history
}

// dial is one attempt to connect. done is closed by the attempt's goroutine,
// and the other fields do not change after that.
type dial struct {
	done chan struct{}
	conn *Conn
	err  error
}

// Spec returns the server's configuration.
func (s *Server) Spec() *Spec { return s.spec }

// Name returns the server's key in the config.
func (s *Server) Name() string { return s.spec.Name }

// Ready returns the connection that requests can use at once, or nil.
func (s *Server) Ready() *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

// Connect returns the connection, making one if there is none: it joins an
// attempt under way, and fails at once while the wait after a crash lasts. The
// error is an *Error, or the cause of ctx.
func (s *Server) Connect(ctx context.Context) (*Conn, error) {
	d, err := s.join()
	if err != nil {
		return nil, err
	}
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Await waits for the attempt under way, if there is one, and returns the
// connection that is there then, or nil. It starts no attempt.
func (s *Server) Await(ctx context.Context) *Conn {
	s.mu.Lock()
	d := s.dial
	s.mu.Unlock()
	if d != nil {
		select {
		case <-d.done:
		case <-ctx.Done():
		}
	}
	return s.Ready()
}

// attempt starts connecting if there is reason to.
func (s *Server) attempt() {
	_, _ = s.join() // an error here is met again by whoever needs the connection
}

// join returns the attempt that gives the connection: the one under way, a new
// one, or a finished one that stands for the connection that is there.
func (s *Server) join() (*dial, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch wait := time.Until(s.retryAt); {
	case s.removed:
		return nil, unavailable(s.Name(), errRemoved)
	case s.conn != nil:
		d := &dial{done: make(chan struct{}), conn: s.conn}
		close(d.done)
		return d, nil
	case s.dial != nil:
		return s.dial, nil
	case s.spec.Err != nil:
		return nil, unavailable(s.Name(), s.spec.Err)
	case wait > 0:
		e := unavailable(s.Name(), s.lastErr)
		return nil, &Error{Upstream: s.Name(), Kind: ErrUnavailable, Hint: e.Hint,
			Err: fmt.Errorf("%w; next attempt in %s", e.Err, wait.Round(100*time.Millisecond))}
	}
	d := &dial{done: make(chan struct{})}
	if !s.set.run(func() { s.connect(d) }) {
		return nil, unavailable(s.Name(), errClosing)
	}
	s.dial = d
	return d, nil
}

// connect makes one attempt.
func (s *Server) connect(d *dial) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(s.set.ctx, s.spec.ConnectTimeout,
		&Error{Upstream: s.Name(), Kind: ErrTimeout, Err: fmt.Errorf("no connection within %s", s.spec.ConnectTimeout), Hint: "raise connect_timeout of this server in the config"})
	defer cancel()
	c, err := s.open(ctx)
	if err == nil {
		s.set.opts.Handler.Up(c)
		c.Flush()
		c.mu.Lock()
		c.up = true
		err = c.err // lost since the handshake?
		c.mu.Unlock()
	}
	s.mu.Lock()
	s.dial = nil
	removed, stale := s.removed, false
	if err != nil {
		d.err = unavailable(s.Name(), err)
		s.failed(d.err)
	} else if stale = c.outgrown(); !stale {
		s.conn = c
		d.conn = c
		s.history.connections++
		s.history.connectedAt = time.Now()
	}
	s.mu.Unlock()
	if stale {
		c.leave()
		d.conn, d.err = s.Connect(ctx)
		close(d.done)
		return
	}
	if err == nil {
		s.log.Info().Dur("took", time.Since(began)).Str("version", c.Version()).Msg("connected")
		if lost := c.Err(); lost != nil {
			s.lost(c, lost) // lost before it was published
		} else if removed {
			s.Evict(c)
		}
	} else if !errors.Is(err, errClosing) {
		s.log.Warn().Err(d.err).Msg("connecting failed")
	}
	close(d.done)
}

// failed counts a failure and sets the wait before the next attempt. s.mu is
// held.
func (s *Server) failed(err error) {
	s.lastErr, s.history.failedAt = err, time.Now()
	s.retryAt = time.Now().Add(restartWait(s.failures))
	s.failures++
}

// maxRestartWait is the longest pause between two attempts (design §9).
const maxRestartWait = 60 * time.Second

// restartWait is how long to wait after a failure when there were n before it
// in a row: 0, 1, 2, 4 … 60 s.
func restartWait(n int) time.Duration {
	if n == 0 {
		return 0
	}
	if n > 6 {
		return maxRestartWait
	}
	return min(time.Second<<(n-1), maxRestartWait)
}

// lost is called when c can no longer be used, for the reason err.
func (s *Server) lost(c *Conn, err error) {
	s.mu.Lock()
	current := s.conn == c
	if current {
		s.conn = nil
		s.failed(err)
	}
	s.mu.Unlock()
	if current {
		s.log.Warn().Err(err).Msg("connection lost")
	}
	s.stopSoon(c)
}

// proven is called when c has answered a list or a call: the server works, so
// the next failure is a first one again.
func (s *Server) proven(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == c {
		s.failures = 0
	}
}

// Evict has no new request use c. Requests that are open on it finish there;
// after the last it is closed. Evicting a Conn that is not in use any more does
// nothing, so three who find the same fault cause one fresh connection. One that
// turns out to be lost has failed, whoever is first to find that.
func (s *Server) Evict(c *Conn) {
	s.mu.Lock()
	current := s.conn == c
	if current {
		s.conn = nil
		if err := c.Err(); err != nil {
			s.failed(err)
		}
	}
	s.mu.Unlock()
	if current {
		c.leave()
	}
}

// outgrow evicts a connection whose server was told less of the client than is
// known now.
func (s *Server) outgrow() {
	if c := s.Ready(); c != nil && c.outgrown() {
		s.Evict(c)
	}
}

// leave has nothing new sent to the server, and returns its connection, or nil.
func (s *Server) leave() *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = true
	return s.conn
}

// stopSoon stops c's link beside whatever the caller does.
func (s *Server) stopSoon(c *Conn) {
	s.mu.Lock()
	known := s.all[c]
	delete(s.all, c)
	s.mu.Unlock()
	if known && !s.set.run(func() { c.link.stop(s.set.ladder()) }) {
		s.mu.Lock()
		s.all[c] = true // the Set is closing and will stop it
		s.mu.Unlock()
	}
}

// takeAll returns every Conn whose link has to be stopped.
func (s *Server) takeAll() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = nil
	var all []*Conn
	for c := range s.all {
		all = append(all, c)
	}
	return all
}

// Start sends r on the server's connection, making one first if need be. It
// does not wait: r.Done gets whatever comes of it. On a connection that is
// there the request goes out with the Conn's next Flush, which Start leaves to
// the caller and returns the Conn for; otherwise it returns nil.
func (s *Server) Start(r *Request) *Conn {
	s.calls.Add(1)
	if c := s.Ready(); c != nil {
		c.start(r)
		return c
	}
	s.startSoon(r)
	return nil
}

// startSoon sends r when there is a connection.
func (s *Server) startSoon(r *Request) {
	ctx, cancel := context.WithCancel(s.set.ctx)
	r.mu.Lock()
	ended := r.ended
	r.leave = cancel
	r.mu.Unlock()
	if ended {
		cancel()
		return
	}
	if !s.set.run(func() { s.connectAndStart(ctx, r) }) {
		r.finish(jsonrpc.Answer{Err: unavailable(s.Name(), errClosing)})
	}
}

func (s *Server) connectAndStart(ctx context.Context, r *Request) {
	c, err := s.Connect(ctx)
	if err != nil {
		r.finish(jsonrpc.Answer{Err: unavailable(s.Name(), err)})
		s.set.opts.Handler.Flush()
		return
	}
	c.start(r)
	c.Flush()
}
