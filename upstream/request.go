package upstream

import (
	"sync"
	"time"

	"coffer/jsonrpc"
)

// Request is a request that is forwarded to an upstream. The exported fields
// are the caller's and do not change after Server.Start.
type Request struct {
	Method string
	Params []byte
	// Token is the client's progress token, raw, or nil. If it is set it stands
	// in Params at _meta.progressToken; the upstream gets one of ours there.
	Token []byte
	// Progress gets the params of each notifications/progress with the client's
	// token in them, before Done.
	Progress func(params []byte)
	// Done gets the answer, exactly once, unless Cancel came first.
	Done func(jsonrpc.Answer)

	mu     sync.Mutex
	conn   *Conn         // guarded by mu: where the request was sent
	call   *jsonrpc.Call // guarded by mu
	ended  bool          // guarded by mu: Done has been or will be called, or Cancel came
	resent bool          // guarded by mu: it has been refused once and sent again
	timer  *time.Timer   // guarded by mu: call_timeout
	leave  func()        // guarded by mu: ends the wait for a connection
}

// Conn returns the connection that r was last sent on, or nil.
func (r *Request) Conn() *Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conn
}

// Carries reports whether r is the request that call is, or was, on the wire.
func (r *Request) Carries(call *jsonrpc.Call) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.call == call
}

// Cancel takes the request back: Done is not called any more, and the upstream
// is told. params are those of the client's notifications/cancelled, or nil.
func (r *Request) Cancel(params []byte) {
	if conn, call, first := r.end(); first && conn != nil {
		conn.cancel(call, params)
	}
}

// finish calls Done if nobody has ended the request yet.
func (r *Request) finish(a jsonrpc.Answer) {
	if _, _, first := r.end(); first {
		r.Done(a)
	}
}

// end marks the request as over. The first caller gets true.
func (r *Request) end() (conn *Conn, call *jsonrpc.Call, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, nil, false
	}
	r.ended = true
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.leave != nil {
		r.leave()
	}
	return r.conn, r.call, true
}

// progress gives the client a notice under its own token.
func (r *Request) progress(params []byte) {
	if r.Token == nil || r.Progress == nil {
		return // the server made a token up
	}
	r.mu.Lock()
	ended := r.ended
	r.mu.Unlock()
	if token, n := jsonrpc.Member(params, "progressToken"); n == 1 && !ended {
		r.Progress(jsonrpc.Splice(params, jsonrpc.Edit{Old: token, New: r.Token}))
	}
}
