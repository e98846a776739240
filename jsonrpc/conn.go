package jsonrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
)

// ErrClosed is what a call is answered with once its Conn has been closed
// without a reason.
var ErrClosed = errors.New("connection closed")

// ErrNotSent is in the error of a call that was made on a closed Conn, or that
// a Sender could not deliver: the peer never saw it.
var ErrNotSent = errors.New("not sent")

// Sender hands a message to the transport. It must not wait for the peer, and
// it is called without a lock held. call is the call that m starts, or nil.
type Sender interface {
	Send(m *Message, call *Call)
}

// Handler takes what the peer starts. Its methods run on the goroutine that
// calls Receive, in the order of the wire, and must not wait for the peer.
type Handler interface {
	HandleRequest(r *Request)
	HandleNotification(method string, params []byte)
}

// Conn matches requests with answers in both directions of one conversation,
// whatever carries the bytes. The ids of the calls that we make are counted by
// each Conn; the ids that the peer chose are kept as bytes, so that 1, "1" and
// 10^30 stay what they are.
type Conn struct {
	sender  Sender
	handler Handler
	prefix  string // our ids are strings with this prefix; if it is empty, integers

	mu       sync.Mutex
	last     int64               // guarded by mu, as are all below: the newest number of ours
	calls    map[int64]*Call     // number -> our call that waits for its answer
	incoming map[string]*Request // raw id -> the peer's request that we have not answered
	open     int                 // the peer's requests whose answer the sender has not got yet
	closed   error
	quiet    chan struct{} // closed and replaced by nil when open is 0; made by waiters
}

// NewConn returns a Conn whose own ids are integers, or strings that start
// with prefix if that is not empty.
func NewConn(sender Sender, handler Handler, prefix string) *Conn {
	return &Conn{
		sender: sender, handler: handler, prefix: prefix,
		calls: map[int64]*Call{}, incoming: map[string]*Request{},
	}
}

// Call is a request of ours. It is started once.
type Call struct {
	Method string
	Params []byte
	// Done gets the answer, exactly once, unless Abandon took the call back.
	// It runs on the goroutine that received the answer and must not wait.
	Done func(Answer)
	// Progress is kept for whoever reads notices of progress; nil: nobody does.
	Progress func(params []byte)
	// Number identifies the call on its Conn. Start sets it if it is 0.
	Number int64

	message Message // as Start sends it
}

// Answer is how a call ended: one of Result, Error (the peer's error object,
// raw) and Err (no answer came: the conversation is over) is set.
type Answer struct {
	Result []byte
	Error  []byte
	Err    error
}

// Reserve returns a number for a call that needs it before it starts, in its
// progress token for instance.
func (c *Conn) Reserve() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return c.last
}

// Start sends call. On a closed Conn it calls Done before it returns.
func (c *Conn) Start(call *Call) {
	c.mu.Lock()
	if call.Number == 0 {
		c.last++
		call.Number = c.last
	}
	closed := c.closed
	if closed == nil {
		c.calls[call.Number] = call
	}
	c.mu.Unlock()
	if closed != nil {
		call.Done(Answer{Err: fmt.Errorf("%w: %w", ErrNotSent, closed)})
		return
	}
	call.message = Message{ID: c.ID(call.Number), Method: call.Method, Params: call.Params}
	c.sender.Send(&call.message, call)
}

// ID returns the id, as it stands on the wire, of the call with that number.
func (c *Conn) ID(number int64) []byte {
	const longest = len(`"-9223372036854775808"`)
	id := make([]byte, 0, len(c.prefix)+longest)
	if c.prefix == "" {
		return strconv.AppendInt(id, number, 10)
	}
	id = append(append(id, '"'), c.prefix...)
	return append(strconv.AppendInt(id, number, 10), '"')
}

// number is the reverse of ID, and 0 for an id that is none of ours. It also
// takes an integer that came back as a string, which some servers do.
func (c *Conn) number(id []byte) int64 {
	text, ok := bytes.CutPrefix(bytes.Trim(id, `"`), []byte(c.prefix))
	if !ok || len(text) == 0 || text[0] < '1' || text[0] > '9' { // no sign, no zeros in front
		return 0
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Waiting returns the call with that number if it still waits for its answer.
func (c *Conn) Waiting(number int64) *Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[number]
}

// Pending returns how many calls of ours wait for an answer.
func (c *Conn) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// Abandon takes a call back. It reports false if the answer was faster; if it
// reports true, Done is never called and a late answer is dropped.
func (c *Conn) Abandon(call *Call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[call.Number] != call {
		return false
	}
	delete(c.calls, call.Number)
	return true
}

// Finish ends a call with an answer that did not come as a message. It reports
// false if the call had ended already.
func (c *Conn) Finish(call *Call, a Answer) bool {
	if !c.Abandon(call) {
		return false
	}
	call.Done(a)
	return true
}

// Notify sends a notification.
func (c *Conn) Notify(method string, params []byte) {
	c.sender.Send(&Message{Method: method, Params: params}, nil)
}

// Receive takes one message from the peer. It reports false for a response
// that no call waits for. m is not kept, its slices are. One goroutine at a
// time may call it.
func (c *Conn) Receive(m *Message) bool { return c.ReceiveOn(m, nil) }

// ReceiveOn is Receive of a message that came on the stream of a call of ours,
// where calls have streams.
func (c *Conn) ReceiveOn(m *Message, call *Call) bool {
	switch {
	case m.IsNotification():
		c.handler.HandleNotification(m.Method, m.Params)
	case m.IsRequest():
		c.receiveRequest(m, nil, call)
	default:
		return c.receiveAnswer(m)
	}
	return true
}

func (c *Conn) receiveAnswer(m *Message) bool {
	c.mu.Lock()
	number := c.number(m.ID)
	if m.ID == nil && len(c.calls) == 1 {
		for number = range c.calls { // an error without an id can only mean this one
		}
	}
	call := c.calls[number]
	delete(c.calls, number)
	c.mu.Unlock()
	if call == nil {
		return false
	}
	call.Done(Answer{Result: m.Result, Error: m.Error})
	return true
}

func (c *Conn) receiveRequest(m *Message, b *batch, on *Call) {
	c.mu.Lock()
	if c.closed != nil {
		c.mu.Unlock()
		return // as if it had been cancelled by Close
	}
	if _, taken := c.incoming[string(m.ID)]; taken {
		c.mu.Unlock()
		// Its answer would be taken for that of the first: no id.
		b.done(c, &Message{Error: ErrorObject(CodeInvalidRequest, "request id "+string(m.ID)+" is already in use", nil)})
		return
	}
	r := &Request{Message: *m, On: on, conn: c, batch: b}
	c.incoming[string(m.ID)] = r
	c.open++
	c.mu.Unlock()
	c.handler.HandleRequest(r)
}

// ReceiveBatch takes the elements of one batch, which came on the stream of
// call if that is not nil. The answers go out together, in one array, when all
// are there.
func (c *Conn) ReceiveBatch(elements [][]byte, call *Call) {
	b := &batch{missing: 1} // one for this loop
	for _, text := range elements {
		m, err := Parse(text)
		switch {
		case err != nil:
			b.add()
			b.done(c, &Message{Error: ErrorObject(CodeInvalidRequest, err.Error(), nil)})
		case m.IsRequest():
			b.add()
			c.receiveRequest(m, b, call)
		default:
			c.ReceiveOn(m, call)
		}
	}
	b.done(c, nil)
}

// Cancel marks the peer's request with that raw id as not to be answered and
// tells whoever works on it, with the params of the peer's notice. It reports
// false if there is no such request.
func (c *Conn) Cancel(id, notice []byte) bool {
	c.mu.Lock()
	r := c.incoming[string(id)]
	c.mu.Unlock()
	return r != nil && r.cancel(notice)
}

// Incoming returns how many requests of the peer wait for our answer.
func (c *Conn) Incoming() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.incoming)
}

// Quiet waits until the sender has the answers to all requests of the peer that
// get one, or ctx ends.
func (c *Conn) Quiet(ctx context.Context) {
	c.mu.Lock()
	if c.open == 0 {
		c.mu.Unlock()
		return
	}
	if c.quiet == nil {
		c.quiet = make(chan struct{})
	}
	quiet := c.quiet
	c.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
}

// Close ends the conversation: our calls end with err (ErrClosed if nil), the
// peer's requests are cancelled. Only the first Close counts.
func (c *Conn) Close(err error) {
	if err == nil {
		err = ErrClosed
	}
	c.close(err, false)
}

// CloseIdle is Close if no call of ours waits for an answer. It reports false if
// one does; if it reports true, none is sent any more.
func (c *Conn) CloseIdle(err error) bool { return c.close(err, true) }

func (c *Conn) close(err error, idle bool) bool {
	c.mu.Lock()
	if c.closed != nil || idle && len(c.calls) > 0 {
		defer c.mu.Unlock()
		return c.closed != nil
	}
	c.closed = err
	calls, incoming := c.calls, c.incoming
	c.calls, c.incoming = map[int64]*Call{}, map[string]*Request{}
	c.mu.Unlock()
	for _, call := range calls {
		call.Done(Answer{Err: err})
	}
	for _, r := range incoming {
		r.cancel(nil)
	}
	return true
}
