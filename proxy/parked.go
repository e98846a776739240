package proxy

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"coffer/jsonrpc"
	"coffer/upstream"
)

const (
	// gatherQuestions is how long questions are collected that an upstream of
	// the handshake era asks at the same moment.
	gatherQuestions = 5 * time.Millisecond
	// parkTime is how long a question waits for the client's retry.
	parkTime = 10 * time.Minute
)

// parking holds the exchanges of a client of 2026-07-28 with upstreams of the
// handshake era: such an upstream asks while its call runs, and the client is
// asked by an answer to its request. The call goes on, parked under a token
// that the client's retry brings back.
//
// Locks: mu is taken before that of an exchange.
type parking struct {
	s      *Session
	prefix string // tells our own requestState from that of an upstream, which may be a coffer too

	mu      sync.Mutex
	running []*exchange          // guarded by mu: oldest first
	tokens  map[string]*exchange // guarded by mu
}

// parkedCall is what an exchange keeps while its upstream asks. The exchange's
// mu guards it.
type parkedCall struct {
	questions map[string]*jsonrpc.Request // asked and not answered
	asked     int                         // how many so far: the keys
	due       *time.Timer                 // until the questions go out, or the client is too late
	token     string
	answer    *jsonrpc.Answer // came while no request was open
	lacks     string          // capability that the upstream needed and the client does not have, or ""
}

func newParking(s *Session) *parking {
	return &parking{s: s, prefix: "coffer:" + rand.Text()[:8] + ":", tokens: map[string]*exchange{}}
}

// open enters an exchange during which its upstream may ask.
func (p *parking) open(x *exchange) {
	x.parked = &parkedCall{questions: map[string]*jsonrpc.Request{}}
	switch x.method {
	case "tools/call", "prompts/get":
		x.key, _ = jsonrpc.TextAt(x.r.Params, "name")
	case "resources/read":
		x.key, _ = jsonrpc.TextAt(x.r.Params, "uri")
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, x)
}

// forget ends an exchange. What is asked on its behalf is answered with an
// error, or, if it was answered, put to another.
func (p *parking) forget(x *exchange, answered bool) {
	p.mu.Lock()
	if i := slices.Index(p.running, x); i >= 0 {
		p.running = slices.Delete(p.running, i, i+1)
	}
	x.mu.Lock()
	open, u := x.parked.questions, x.u
	x.parked.questions = map[string]*jsonrpc.Request{}
	delete(p.tokens, x.parked.token)
	if x.parked.due != nil {
		x.parked.due.Stop()
	}
	x.mu.Unlock()
	p.mu.Unlock()
	c := u.Conn()
	if c == nil || len(open) == 0 {
		return
	}
	for _, q := range open {
		if answered {
			p.ask(c, q, asks[q.Method])
		} else {
			q.Fail(jsonrpc.ErrorObject(jsonrpc.CodeInternal, "the request that this was asked for is over", nil))
		}
	}
	c.Flush()
}

// close ends all exchanges.
func (p *parking) close() {
	p.mu.Lock()
	all := slices.Clone(p.running)
	p.mu.Unlock()
	for _, x := range all {
		p.forget(x, false)
	}
}

// ask takes a question of an upstream. It belongs to the call on whose stream it
// came. On stdio nothing says which call that is; the newest open one is taken,
// which does no harm if it is wrong, since the answer finds its question by the
// question's own id.
func (p *parking) ask(c *upstream.Conn, q *jsonrpc.Request, capability string) {
	p.mu.Lock()
	x := p.asker(c, q.On, capability)
	if x == nil {
		p.noteLack(c, capability)
		p.mu.Unlock()
		q.Fail(jsonrpc.ErrorObject(jsonrpc.CodeMethodNotFound, "Method not found: "+q.Method, nil))
		return
	}
	x.mu.Lock()
	x.parked.asked++
	x.parked.questions[questionKey(x.parked.asked)] = q
	if x.parked.due == nil {
		x.parked.due = time.AfterFunc(gatherQuestions, func() { p.s.spawn(func() { p.put(x) }) })
	}
	x.mu.Unlock()
	p.mu.Unlock()
	q.OnCancel(func([]byte) { p.takeBack(x, q) })
}

func questionKey(n int) string { return fmt.Sprintf("q%d", n) }

// asker returns the exchange on c that a question is put to: that of the call on
// if that is known, else the newest whose request is open and whose client can
// answer, else the newest that is parked; its client is asked when it comes
// back. p.mu is held.
func (p *parking) asker(c *upstream.Conn, on *jsonrpc.Call, capability string) *exchange {
	var parked *exchange
	for _, x := range slices.Backward(p.running) {
		x.mu.Lock()
		fits := x.u != nil && x.u.Conn() == c && x.last.declares(capability) && (on == nil || x.u.Carries(on))
		open := x.r != nil
		x.mu.Unlock()
		switch {
		case fits && open:
			return x
		case fits && parked == nil:
			parked = x
		}
	}
	return parked
}

// noteLack notes that a call needed what its client cannot do, if only one can
// have asked for it. p.mu is held.
func (p *parking) noteLack(c *upstream.Conn, capability string) {
	var only *exchange
	for _, x := range p.running {
		x.mu.Lock()
		on := x.u != nil && x.u.Conn() == c
		x.mu.Unlock()
		if on && only != nil {
			return
		} else if on {
			only = x
		}
	}
	if only != nil {
		only.mu.Lock()
		only.parked.lacks = capability
		only.mu.Unlock()
	}
}

// takeBack forgets a question that its upstream has cancelled.
func (p *parking) takeBack(x *exchange, q *jsonrpc.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, open := range x.parked.questions {
		if open == q {
			delete(x.parked.questions, key)
		}
	}
}

// put answers the client's open request with the questions, and parks the call.
func (p *parking) put(x *exchange) {
	name := p.s.server(x.server).Name()
	token := p.prefix + rand.Text()
	p.mu.Lock()
	x.mu.Lock()
	r := x.r
	if r == nil { // parked already, or answered
		x.mu.Unlock()
		p.mu.Unlock()
		return
	}
	if x.parked.due != nil {
		x.parked.due.Stop()
		x.parked.due = nil
	}
	if len(x.parked.questions) == 0 {
		x.mu.Unlock()
		p.mu.Unlock()
		return
	}
	questions := []byte(`{}`)
	for i := 1; i <= x.parked.asked; i++ {
		key := questionKey(i)
		if q := x.parked.questions[key]; q != nil {
			params := p.s.signed(name, q.Method, q.Params)
			if params == nil {
				params = []byte(`{}`)
			}
			entry := jsonrpc.Set([]byte(`{}`), "method", jsonrpc.Quote(q.Method))
			questions = jsonrpc.Set(questions, key, jsonrpc.Set(entry, "params", jsonrpc.Delete(params, "elicitationId")))
		}
	}
	x.r, x.parked.token = nil, token
	p.tokens[token] = x
	x.parked.due = time.AfterFunc(parkTime, func() { p.s.spawn(func() { p.expire(x, token) }) })
	x.mu.Unlock()
	p.mu.Unlock()
	x.closeLogs()
	r.answerAsked(questions, token)
	p.s.stream.Out.Flush()
}

// expire gives up a call whose client has not come back.
func (p *parking) expire(x *exchange, token string) {
	p.mu.Lock()
	late := p.tokens[token] == x
	delete(p.tokens, token)
	p.mu.Unlock()
	if late {
		x.cancel([]byte(`{"reason":"the client did not answer"}`))
	}
}

// staleState refuses a requestState that nobody waits for any more.
func staleState() error {
	return invalidParams("requestState is not that of a request that waits for input")
}

// resume takes the retry of a parked call, unless gate refuses it now. It
// reports false if r is no retry of ours.
func (p *parking) resume(r *request, key string, gate func(x *exchange) error) bool {
	token, _ := jsonrpc.TextAt(r.Params, "requestState")
	if !strings.HasPrefix(token, p.prefix) {
		return false
	}
	p.mu.Lock()
	x := p.tokens[token]
	if x != nil && (x.method != r.Method || x.key != key) {
		x = nil
	}
	if x != nil {
		delete(p.tokens, token)
	}
	p.mu.Unlock()
	if x == nil {
		p.s.fail(r, staleState())
		return true
	}
	if err := gate(x); err != nil {
		x.cancel(nil)
		p.s.fail(r, err)
		return true
	}
	answers := jsonrpc.Lookup(r.Params, "inputResponses")
	x.openLogs(r) // before the answer can come
	x.mu.Lock()
	x.r, x.last = r, r
	x.parked.due.Stop()
	x.parked.due = nil
	answer := x.parked.answer
	var given []func()
	for k, q := range x.parked.questions {
		if response := jsonrpc.Lookup(answers, k); len(response) > 0 && response[0] == '{' {
			delete(x.parked.questions, k)
			given = append(given, func() { q.Reply(response) })
		}
	}
	missing := len(x.parked.questions) > 0
	x.mu.Unlock()
	r.OnCancel(x.cancel)
	for _, reply := range given {
		reply()
	}
	if c := x.u.Conn(); c != nil {
		c.Flush()
	}
	switch {
	case answer != nil:
		x.done(*answer)
	case missing:
		p.put(x) // what was not answered is asked again (mrtr, "Error Handling")
	}
	return true
}
