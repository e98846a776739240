package proxy

import (
	"fmt"
	"sync"

	"coffer/jsonrpc"
	"coffer/upstream"
)

// exchange is one request of the client's on its way to an upstream and back,
// over all rounds of questions that it may take.
type exchange struct {
	s       *Session
	server  int
	method  string
	key     string // the client's own name or URI
	params  []byte // as forwarded
	rewrite func(method string, result []byte) []byte
	rounds  int // of questions asked of a client of the handshake era

	parked *parkedCall // questions of a legacy upstream to a modern client; its fields are guarded by mu

	mu   sync.Mutex
	r    *request          // guarded by mu: the client's open request; nil while it is parked, and once a parked one is being answered
	last *request          // guarded by mu: the newest, open or not
	u    *upstream.Request // guarded by mu: what was sent last
	logs string            // guarded by mu: the level of the logs that r gets, or ""
}

// forward sends r, with these params, to a server, and answers r with what
// comes back; rewrite, if not nil, changes the URIs in a result. It returns the
// connection to flush, if there is one.
func (s *Session) forward(r *request, server int, params []byte, rewrite func(method string, result []byte) []byte) *upstream.Conn {
	x := &exchange{s: s, server: server, method: r.Method, params: params, rewrite: rewrite, r: r, last: r}
	if r.modern {
		if s.server(server).Legacy() && jsonrpc.Lookup(params, "requestState") != nil {
			s.fail(r, staleState()) // such a server has none but what we make for it
			return nil
		}
		x.params = s.relayableParams(params)
		s.parked.open(x)
		x.openLogs(r)
	}
	return x.send(r, x.params)
}

// relayableParams returns the params of a request of 2026-07-28 with what an
// upstream is told of the client's capabilities.
func (s *Session) relayableParams(params []byte) []byte {
	declared := jsonrpc.Lookup(params, "_meta", upstream.MetaCapabilities)
	if told := s.relayable(declared); string(told) != string(declared) {
		return jsonrpc.Splice(params, jsonrpc.Edit{Old: declared, New: told})
	}
	return params
}

// openLogs has the server's logs go to the client while r is open, if it asks
// for them.
func (x *exchange) openLogs(r *request) {
	level := r.logLevel()
	if level == "" {
		return
	}
	x.mu.Lock()
	x.logs = level
	x.mu.Unlock()
	more := x.s.relay.logs(x.s.server(x.server).Name(), level, 1)
	if c := x.s.server(x.server).Ready(); more && c != nil {
		tellLevel(c, level)
	}
}

// closeLogs is for when the client's request is answered or cancelled.
func (x *exchange) closeLogs() {
	x.mu.Lock()
	level := x.logs
	x.logs = ""
	x.mu.Unlock()
	if level != "" {
		x.s.relay.logs(x.s.server(x.server).Name(), level, -1)
	}
}

// send sends the request, for the first time or in another round.
func (x *exchange) send(r *request, params []byte) *upstream.Conn {
	u := &upstream.Request{Method: x.method, Params: params, Done: x.done}
	if u.Token = jsonrpc.Lookup(params, "_meta", "progressToken"); u.Token != nil {
		u.Progress = x.progress
	}
	x.mu.Lock()
	x.u = u
	x.mu.Unlock()
	r.OnCancel(x.cancel)
	return x.s.server(x.server).Start(u)
}

// cancel gives up: the client does not want the answer any more.
func (x *exchange) cancel(notice []byte) {
	x.mu.Lock()
	u := x.u
	x.mu.Unlock()
	u.Cancel(notice)
	x.over(false)
}

// over ends what was kept for the exchange. If it was answered, questions that
// are still open were another's.
func (x *exchange) over(answered bool) {
	if x.parked != nil {
		x.s.parked.forget(x, answered)
		x.closeLogs()
	}
}

// progress passes on a notice of progress while the client waits.
func (x *exchange) progress(params []byte) {
	x.mu.Lock()
	r := x.r
	x.mu.Unlock()
	if r == nil {
		return
	}
	if token := jsonrpc.Lookup(r.meta, "progressToken"); token != nil {
		x.s.relayProgress(token, jsonrpc.Set(params, "progressToken", token))
	}
}

// done takes what the upstream answered.
func (x *exchange) done(a jsonrpc.Answer) {
	x.mu.Lock()
	r, u := x.r, x.u
	if r == nil {
		x.parked.answer = &a // for the retry
		x.mu.Unlock()
		return
	}
	if x.parked != nil {
		x.r = nil // it is answered now: no question may be its answer any more
	}
	x.mu.Unlock()
	c := u.Conn()
	switch {
	case a.Err != nil:
		x.s.log.Warn().Err(a.Err).Str("method", r.Method).Msg("request failed")
		r.Fail(toWire(a.Err, r.modern))
	case a.Error != nil:
		x.refused(r, c, jsonrpc.AsError(a.Error))
	case c != nil && c.Modern() && isInputRequired(a.Result):
		if !r.modern {
			x.s.spawn(func() { x.nextRound(r, a.Result) })
			return
		}
		r.Reply(x.s.signedRound(c.Name(), a.Result))
	default:
		result := r.translated(c, a.Result)
		if x.rewrite != nil {
			result = x.rewrite(r.Method, result)
		}
		r.Reply(result)
	}
	x.over(true)
}

// lacks returns the capability for want of which the upstream may have failed,
// or "".
func (x *exchange) lacks() string {
	if x.parked == nil {
		return ""
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.parked.lacks
}

// refused passes an upstream's error on. One that comes of a capability that
// the client has not declared is to be told as such (2026-07-28, basic,
// "Capabilities").
func (x *exchange) refused(r *request, c *upstream.Conn, e *jsonrpc.Error) {
	switch e.Code {
	case jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams, codeNoResource:
		x.s.doubt(x.server, r.Method)
	}
	if r.modern && e.Code == codeURLNeeded {
		x.s.askByURL(r, x.s.server(x.server).Name(), e)
		return
	}
	if lacks := x.lacks(); lacks != "" {
		r.Fail(missingCapability(e.Message, fmt.Appendf(nil, `{%q:{}}`, lacks)))
		return
	}
	object := relayedError(e, r.modern)
	if r.modern && e.Code == codeNoResource && jsonrpc.Lookup(object, "data", "uri") == nil {
		if uri := jsonrpc.Lookup(r.Params, "uri"); uri != nil {
			object = jsonrpc.Set(object, "data", jsonrpc.Set(jsonrpc.Lookup(object, "data"), "uri", uri))
		}
	}
	r.Fail(object)
}

// doubt has a list asked anew after an upstream has refused what it listed:
// the list may have changed without notice.
func (s *Session) doubt(server int, method string) {
	switch method {
	case "tools/call":
		s.lists.Evict(slot{server, upstream.Tools})
	case "prompts/get":
		s.lists.Evict(slot{server, upstream.Prompts})
	case "resources/read":
		s.lists.Evict(slot{server, upstream.Resources})
	}
}
