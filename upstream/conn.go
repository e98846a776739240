package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"coffer/jsonrpc"
)

// Handler is the proxy as its upstreams see it. Notified, Asked, Flush and Room
// are called on the goroutine that reads the upstream, in the order of the wire.
type Handler interface {
	// Notified takes a notification other than progress and cancelled, which
	// the Conn deals with itself.
	Notified(c *Conn, method string, params []byte)
	// Asked takes a request other than ping. It must not wait; the answer may
	// come later.
	Asked(c *Conn, r *jsonrpc.Request)
	// Up is called when a handshake is done, before anyone else can use the
	// Conn: the place to restore what the client had set up.
	Up(c *Conn)
	// Down is called when a Conn that was Up can no longer be used.
	Down(c *Conn)
	// Missed says that notices of changed lists may have been lost: of all
	// kinds, or of these.
	Missed(c *Conn, kinds ...Kind)
	// Flush is called when all that had arrived has been handled.
	Flush()
	// Room is called before more is read, and waits while the client is behind.
	Room(ctx context.Context)
}

// Conn is one connected upstream session: handshake done, until it is lost or
// stopped. It is safe for concurrent use.
type Conn struct {
	server  *Server
	handler Handler
	log     zerolog.Logger
	rpc     *jsonrpc.Conn
	link    link
	agreed  atomic.Pointer[hello] // nil until the handshake is done
	told    []byte                // raw capabilities of the client that initialize carried; set before agreed

	probing   atomic.Pointer[jsonrpc.Call]             // server/discover, where a server that may not know it was asked
	listening listening                                // modern connections only
	headers   atomic.Pointer[map[string][]paramHeader] // of tools, over modern HTTP; nil before the first list

	mu      sync.Mutex
	up      bool  // guarded by mu: Handler.Up has been called
	retired bool  // guarded by mu: evicted, to be stopped after the last call
	err     error // guarded by mu: why the Conn is lost
}

// Server returns the server that c is a connection to.
func (c *Conn) Server() *Server { return c.server }

// Name returns the server's key in the config.
func (c *Conn) Name() string { return c.server.spec.Name }

// start sends r on c.
func (c *Conn) start(r *Request) {
	call := &jsonrpc.Call{Method: r.Method, Params: r.Params, Progress: r.progress}
	if r.Token != nil {
		call.Number = c.rpc.Reserve()
		call.Params = jsonrpc.Splice(r.Params, jsonrpc.Edit{Old: r.Token, New: strconv.AppendInt(nil, call.Number, 10)})
	}
	call.Params = c.outgoing(call.Params)
	call.Done = func(a jsonrpc.Answer) { c.answered(r, a) }
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return
	}
	r.conn, r.call = c, call
	if timeout := c.server.spec.CallTimeout; timeout > 0 && r.timer == nil {
		r.timer = time.AfterFunc(timeout, func() { c.expire(r, timeout) })
	}
	r.mu.Unlock()
	c.rpc.Start(call)
	r.mu.Lock()
	ended := r.ended
	r.mu.Unlock()
	if ended { // cancelled while it was being started
		c.cancel(call, nil)
	}
}

// answered takes the answer to r.
func (c *Conn) answered(r *Request, a jsonrpc.Answer) {
	if a.Error != nil {
		a = c.hopLocal(a)
	}
	if errors.Is(a.Err, errRefused) || errors.Is(a.Err, errReplaced) || errors.Is(a.Err, jsonrpc.ErrNotSent) {
		c.server.Evict(c)
		r.mu.Lock()
		again := !r.resent
		r.resent = true
		r.mu.Unlock()
		if again {
			c.server.startSoon(r)
			return
		}
	}
	if a.Err != nil {
		a.Err = unavailable(c.Name(), fmt.Errorf("no answer came, the request may have run: %w", a.Err))
	} else {
		c.server.proven(c)
	}
	r.finish(a)
	c.rest()
}

// expire ends r with a timeout, unless a person is being asked something on
// its behalf: that takes as long as it takes.
func (c *Conn) expire(r *Request, timeout time.Duration) {
	if c.rpc.Incoming() > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.ended {
			r.timer.Reset(timeout)
		}
		return
	}
	conn, call, first := r.end()
	if !first {
		return
	}
	if conn != nil {
		conn.cancel(call, nil)
	}
	r.Done(jsonrpc.Answer{Err: &Error{
		Upstream: c.Name(), Kind: ErrTimeout,
		Err:  errors.New(r.Method + " took longer than " + timeout.String()),
		Hint: "raise call_timeout of this server in the config",
	}})
	c.handler.Flush()
}

// cancel tells the upstream that call is not wanted any more.
func (c *Conn) cancel(call *jsonrpc.Call, params []byte) {
	if !c.rpc.Abandon(call) {
		return
	}
	if params == nil {
		params = []byte(`{}`)
	}
	// initialize must not be cancelled (MCP 2025-11-25, utilities/cancellation).
	if call.Method != "initialize" && (!c.Modern() || c.piped()) {
		c.Notify("notifications/cancelled", jsonrpc.Set(params, "requestId", c.rpc.ID(call.Number)))
	}
	c.link.abandoned(call)
	c.Flush()
	c.rest()
}

// Call sends a request of our own and waits for its result. When ctx ends it
// is cancelled at the upstream, and the error is the cause of ctx. An error of
// the upstream's is a *jsonrpc.Error; that no answer came is an *Error.
func (c *Conn) Call(ctx context.Context, method string, params []byte) ([]byte, error) {
	return c.call(ctx, method, c.outgoing(params))
}

// call is Call with params as they are.
func (c *Conn) call(ctx context.Context, method string, params []byte) ([]byte, error) {
	answers := make(chan jsonrpc.Answer, 1)
	call := &jsonrpc.Call{Method: method, Params: params, Done: func(a jsonrpc.Answer) { answers <- a }}
	c.rpc.Start(call)
	c.Flush()
	select {
	case a := <-answers:
		c.rest()
		switch {
		case a.Err != nil:
			return nil, unavailable(c.Name(), a.Err)
		case a.Error != nil:
			return nil, jsonrpc.AsError(a.Error)
		}
		return a.Result, nil
	case <-ctx.Done():
		c.cancel(call, nil)
		return nil, context.Cause(ctx)
	}
}

// Tell sends a request of our own whose result does not matter; a failure goes
// to the log. It goes out with the next Flush.
func (c *Conn) Tell(method string, params []byte) {
	c.rpc.Start(&jsonrpc.Call{Method: method, Params: c.outgoing(params), Done: func(a jsonrpc.Answer) {
		switch {
		case a.Err != nil:
			c.log.Debug().Err(a.Err).Str("method", method).Msg("request of ours got no answer")
		case a.Error != nil:
			c.log.Warn().Err(jsonrpc.AsError(a.Error)).Str("method", method).Msg("request of ours refused")
		}
	}})
}

// Notify sends a notification. It goes out with the next Flush.
func (c *Conn) Notify(method string, params []byte) { c.rpc.Notify(method, params) }

// Flush sends what has been started.
func (c *Conn) Flush() { c.link.flush() }

// HandleRequest implements jsonrpc.Handler.
func (c *Conn) HandleRequest(r *jsonrpc.Request) {
	switch {
	case c.Modern():
		c.refuseRequest(r)
	case r.Method == "ping":
		r.Reply([]byte(`{}`))
	default:
		c.handler.Asked(c, r)
	}
}

// refuseRequest deals with a request of a server of 2026-07-28, which must make
// none (basic/patterns, stdio). On a pipe it is told so, lest it wait; over HTTP
// a client must not send responses (streamable HTTP, "Sending Messages").
func (c *Conn) refuseRequest(r *jsonrpc.Request) {
	c.log.Warn().Str("method", r.Method).Msg("request of the server refused: servers of " + ModernVersion + " must make none")
	if c.piped() {
		r.Fail(jsonrpc.ErrorObject(jsonrpc.CodeMethodNotFound, "Method not found: "+r.Method+" (servers of "+ModernVersion+" make no requests)", nil))
	} else {
		c.rpc.Cancel(r.ID, nil)
	}
}

// HandleNotification implements jsonrpc.Handler.
func (c *Conn) HandleNotification(method string, params []byte) {
	switch method {
	case "notifications/progress":
		// The token is the call's number (see start), so it is one of ours only
		// while that call is open.
		number, err := strconv.ParseInt(string(jsonrpc.Lookup(params, "progressToken")), 10, 64)
		if call := c.rpc.Waiting(number); err == nil && call != nil && call.Progress != nil {
			call.Progress(params)
		}
	case "notifications/subscriptions/acknowledged":
		c.heard(params)
	case "notifications/cancelled":
		if c.cancelledByServer(jsonrpc.Lookup(params, "requestId")) {
			return
		}
		c.rpc.Cancel(jsonrpc.Lookup(params, "requestId"), params)
	default:
		if c.Modern() && c.stray(params) {
			return
		}
		c.handler.Notified(c, method, params)
	}
}

// idle is the link's: all that had arrived has been handled.
func (c *Conn) idle() {
	c.handler.Flush()
	c.link.flush()
}

// piped reports whether all messages of c share one channel: then a request
// is cancelled by a message, else by closing its own stream (MCP 2026-07-28,
// basic/patterns/cancellation).
func (c *Conn) piped() bool {
	return c.server.set.opts.Dial != nil || c.server.spec.Transport == TransportStdio
}

// batches is the link's: whether an array is a message. Only 2025-03-26 had
// batches (basic, "Batching").
func (c *Conn) batches() bool { return c.Version() == "2025-03-26" }

// room is the link's: it wants to read more.
func (c *Conn) room(ctx context.Context) { c.handler.Room(ctx) }

// lost is the link's: nothing can come or go any more.
func (c *Conn) lost(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	up := c.up
	c.mu.Unlock()
	c.rpc.Close(err)
	c.handler.Flush()
	c.server.lost(c, err)
	if up {
		c.handler.Down(c)
	}
}

// Err returns why the Conn is lost, or nil while it is not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// outgrown reports whether the server was told less at the handshake than the
// client can do by now.
func (c *Conn) outgrown() bool {
	return !c.Modern() && !bytes.Equal(c.told, c.server.set.who().Capabilities)
}

// leave ends the use of a Conn that is not given to anyone any more.
func (c *Conn) leave() {
	c.mu.Lock()
	c.up = false // its end is told of once
	c.mu.Unlock()
	c.handler.Down(c)
	c.retire()
}

// retire has the Conn stopped as soon as no call is open on it.
func (c *Conn) retire() {
	c.mu.Lock()
	c.retired = true
	c.mu.Unlock()
	// What waits for ever must not keep it.
	c.unlisten()
	if probe := c.probing.Load(); probe != nil && c.rpc.Abandon(probe) {
		c.link.abandoned(probe)
	}
	c.rest()
}

// rest stops a retired Conn whose last call has ended. One that comes too late,
// from somebody who was given the Conn just before, is not sent: it has not run.
func (c *Conn) rest() {
	c.mu.Lock()
	retired := c.retired
	c.mu.Unlock()
	if retired && c.rpc.CloseIdle(errRetired) {
		c.server.stopSoon(c)
	}
}

// errRetired is why a Conn takes no calls after its last one.
var errRetired = errors.New("the connection has been given up")
