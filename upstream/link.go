package upstream

import (
	"context"
	"time"

	"coffer/jsonrpc"
)

// link carries the messages of one Conn: a child's pipes (stdio.go), streamable
// HTTP (http.go) or HTTP+SSE (sse.go). It gives what it receives to the Conn's
// rpc, in the order of the wire, from one goroutine per stream, and calls
// Conn.idle when all that had arrived is handled and Conn.room before it takes
// more. When no message can come or go any more it calls Conn.lost, once.
type link interface {
	// Send implements jsonrpc.Sender: it must not wait for the peer. A request
	// that could not be delivered, or whose answer can no longer come, is ended
	// with Conn.rpc.Finish and the reason.
	jsonrpc.Sender
	// flush sends what Send has only queued.
	flush()
	// settled is told of the handshake's result, before notifications/initialized
	// is sent. HTTP needs the version for its header, and opens its GET stream
	// only after that notification.
	settled(version string)
	// abandoned says that nobody waits for the answer of call any more.
	abandoned(call *jsonrpc.Call)
	// stop ends the link within the times of the ladder and returns when all of
	// it (processes, goroutines) is gone. It may be called more than once and
	// from several goroutines.
	stop(l ladder)
	// stderr returns the last lines that the upstream wrote there, or nil.
	stderr() []string
}

// ladder says how long an upstream has for each step of its end (design §9).
// For HTTP only the sum counts: it bounds the DELETE of the session.
type ladder struct {
	eof  time.Duration // after its stdin closed, before TERM; 0: TERM at once
	term time.Duration // after TERM, before KILL
}

var (
	// politely is for the end of a session and for an evicted connection.
	politely = ladder{eof: time.Second, term: 700 * time.Millisecond}
	// promptly is for when we were told to go ourselves.
	promptly = ladder{term: 700 * time.Millisecond}
)

// dial gives c a link and an rpc of its own, by the spec's transport. The
// link's life is not bound to ctx, which only bounds what dial itself does.
func (c *Conn) dial(ctx context.Context) error {
	switch {
	case c.server.set.opts.Dial != nil:
		return c.dialPipe(ctx)
	case c.server.spec.Transport == TransportStdio:
		return c.dialChild(ctx)
	default:
		return c.dialHTTP()
	}
}
