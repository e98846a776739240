package jsonrpc

import (
	"context"
	"sync"
)

// Request is a request of the peer. The first of Reply, Fail and a
// cancellation decides; the others report false and do nothing. Any goroutine
// may call its methods.
type Request struct {
	Message
	// On is our call on whose stream the request came, and which it therefore
	// serves; nil where calls have no streams of their own.
	On *Call

	conn  *Conn
	batch *batch

	mu       sync.Mutex
	ended    bool         // guarded by mu, as are all below
	notice   []byte       // the params of the peer's notice of cancellation
	onCancel func([]byte) // called without mu

	answer Message // written by whoever ends r, once
}

// Reply answers with a raw result.
func (r *Request) Reply(result []byte) bool {
	return r.respond(Message{ID: r.ID, Result: result})
}

// Fail answers with a raw error object.
func (r *Request) Fail(object []byte) bool {
	return r.respond(Message{ID: r.ID, Error: object})
}

func (r *Request) respond(answer Message) bool {
	if _, first := r.end(nil); !first {
		return false
	}
	r.answer = answer
	r.settle(&r.answer)
	return true
}

func (r *Request) cancel(notice []byte) bool {
	tell, first := r.end(notice)
	if !first {
		return false
	}
	if tell != nil {
		tell(notice)
	}
	r.settle(nil)
	return true
}

// end decides r. The first caller gets true, and what OnCancel has left.
func (r *Request) end(notice []byte) (tell func([]byte), first bool) {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return nil, false
	}
	r.ended, r.notice = true, notice
	tell, r.onCancel = r.onCancel, nil
	r.mu.Unlock()

	// Before the answer is on its way: the peer may then use the id again.
	c := r.conn
	c.mu.Lock()
	if c.incoming[string(r.ID)] == r {
		delete(c.incoming, string(r.ID))
	}
	c.mu.Unlock()
	return tell, true
}

// settle hands the answer over; nil: there is none.
func (r *Request) settle(answer *Message) {
	c := r.conn
	r.batch.done(c, answer)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.open == 0 && c.quiet != nil {
		close(c.quiet)
		c.quiet = nil
	}
}

// InBatch reports whether r came in a batch.
func (r *Request) InBatch() bool { return r.batch != nil }

// Ended reports whether r has been answered or cancelled.
func (r *Request) Ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// OnCancel has f called when the peer cancels r, with the params of its notice,
// or goes away (nil); at once if r has ended. Only one f is kept.
func (r *Request) OnCancel(f func(notice []byte)) {
	r.mu.Lock()
	ended, notice := r.ended, r.notice
	if !ended {
		r.onCancel = f
	}
	r.mu.Unlock()
	if ended {
		f(notice)
	}
}

// Context returns a context that ends when the peer cancels r.
func (r *Request) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	r.OnCancel(func([]byte) { cancel() })
	return ctx, cancel
}

// batch gathers the answers to the requests of one array. A nil batch is a
// request that stands alone.
type batch struct {
	mu      sync.Mutex
	missing int      // guarded by mu
	answers [][]byte // guarded by mu
}

func (b *batch) add() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.missing++
}

// done takes one answer; nil for a request that gets none.
func (b *batch) done(c *Conn, answer *Message) {
	if b == nil {
		if answer != nil {
			c.sender.Send(answer, nil)
		}
		return
	}
	b.mu.Lock()
	if answer != nil {
		b.answers = append(b.answers, answer.Append(nil))
	}
	b.missing--
	complete := b.missing == 0 && len(b.answers) > 0
	b.mu.Unlock()
	if complete {
		c.sender.Send(&Message{Batch: b.answers}, nil)
	}
}
