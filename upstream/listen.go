package upstream

import (
	"sync"
	"time"

	"coffer/jsonrpc"
)

// listening is a modern Conn's stream of notifications, subscriptions/listen
// (MCP 2026-07-28, basic/patterns/subscriptions). There is no way to change
// one: for other URIs a new one is opened, and the old one is cancelled when
// the server has acknowledged the new.
type listening struct {
	order sync.Mutex // held by Watch: a later call starts later; taken before mu

	mu      sync.Mutex
	wanted  func() []string         // guarded by mu, as are all below: whose updates are wanted
	current *jsonrpc.Call           // the newest stream, or nil
	agreed  bool                    // current is acknowledged
	old     *jsonrpc.Call           // acknowledged, to be cancelled when current is
	waiting []func(agreed []string) // called once when current is acknowledged or has ended
	failed  int                     // streams that ended in a row
	over    bool                    // no new stream is opened
}

// Watch has the server tell of changes of its lists, and of the resources that
// wanted returns. then, if not nil, is called with the URIs that the server has
// agreed to, or nil if it will not.
func (c *Conn) Watch(wanted func() []string, then func(agreed []string)) {
	l := &c.listening
	l.order.Lock()
	defer l.order.Unlock()
	l.mu.Lock()
	l.wanted = wanted
	if then != nil {
		l.waiting = append(l.waiting, then)
	}
	uris := wanted()
	params := c.listenParams(uris)
	var drop *jsonrpc.Call
	switch {
	case l.current == nil:
	case l.agreed:
		l.old = l.current
	default:
		drop = l.current // what it asked for is asked for again
	}
	l.current, l.agreed = nil, false
	if params == nil || l.over {
		old, waiting := l.old, l.waiting
		l.old, l.waiting = nil, nil
		l.mu.Unlock()
		c.dropStreams(drop, old)
		tellAll(waiting, nil)
		return
	}
	call := &jsonrpc.Call{Method: "subscriptions/listen", Params: c.outgoing(params), Number: c.rpc.Reserve()}
	call.Done = func(a jsonrpc.Answer) { c.unheard(call, a) }
	l.current = call
	l.mu.Unlock()
	c.rpc.Start(call)
	c.dropStreams(drop)
	c.Flush()
}

func tellAll(waiting []func([]string), agreed []string) {
	for _, then := range waiting {
		then(agreed)
	}
}

func (c *Conn) dropStreams(calls ...*jsonrpc.Call) {
	for _, call := range calls {
		if call != nil {
			c.cancel(call, nil)
		}
	}
}

// listenParams asks for what the server offers; nil if that is nothing.
func (c *Conn) listenParams(uris []string) []byte {
	filter := []byte(`{}`)
	for _, f := range []struct{ capability, flag string }{
		{"tools", "toolsListChanged"}, {"prompts", "promptsListChanged"}, {"resources", "resourcesListChanged"},
	} {
		if c.Offers(f.capability, "listChanged") {
			filter = jsonrpc.Set(filter, f.flag, []byte("true"))
		}
	}
	if len(uris) > 0 && c.Offers("resources", "subscribe") {
		list := []byte{'['}
		for i, uri := range uris {
			if i > 0 {
				list = append(list, ',')
			}
			list = jsonrpc.AppendQuote(list, uri)
		}
		filter = jsonrpc.Set(filter, "resourceSubscriptions", append(list, ']'))
	}
	if string(filter) == `{}` {
		return nil
	}
	return jsonrpc.Set([]byte(`{}`), "notifications", filter)
}

// streamOf returns the number of the call whose stream a notification says that
// it belongs to, and whether it says so.
func streamOf(params []byte) (number int64, tagged bool) {
	tag := jsonrpc.Lookup(params, "_meta", MetaSubscription)
	if tag == nil {
		return 0, false
	}
	number, _ = callNumber(tag)
	return number, true
}

// heard takes notifications/subscriptions/acknowledged.
func (c *Conn) heard(params []byte) {
	number, _ := streamOf(params)
	agreed := []string{}
	elements, _ := jsonrpc.Elements(jsonrpc.Lookup(params, "notifications", "resourceSubscriptions"))
	for _, raw := range elements {
		if uri, ok := jsonrpc.Text(raw); ok {
			agreed = append(agreed, uri)
		}
	}
	l := &c.listening
	l.mu.Lock()
	if l.current == nil || l.current.Number != number || l.agreed {
		l.mu.Unlock()
		return
	}
	old, waiting := l.old, l.waiting
	l.old, l.waiting, l.agreed, l.failed = nil, nil, true, 0
	l.mu.Unlock()
	c.dropStreams(old)
	tellAll(waiting, agreed)
}

// stray reports whether a notification is of a stream that has been replaced:
// the new one brings it too.
func (c *Conn) stray(params []byte) bool {
	number, tagged := streamOf(params)
	if !tagged {
		return false
	}
	l := &c.listening
	l.mu.Lock()
	defer l.mu.Unlock()
	return !(l.current != nil && l.current.Number == number || l.old != nil && l.old.Number == number)
}

// unheard takes the end of a stream. If it was in use, another is opened after
// a growing wait, and what was not told meanwhile is asked.
func (c *Conn) unheard(call *jsonrpc.Call, a jsonrpc.Answer) {
	l := &c.listening
	l.mu.Lock()
	if l.current != call {
		if l.old == call {
			l.old = nil
		}
		l.mu.Unlock()
		return
	}
	waiting := l.waiting
	l.current, l.waiting = nil, nil
	wait := restartWait(l.failed + 1)
	l.failed++
	l.mu.Unlock()
	tellAll(waiting, nil)
	if len(waiting) > 0 {
		c.handler.Flush()
	}
	if a.Error != nil && jsonrpc.AsError(a.Error).Code == jsonrpc.CodeMethodNotFound || c.Err() != nil {
		return // it has no such thing; or all has ended with the connection
	}
	c.log.Debug().Dur("wait", wait).Msg("stream of notifications ended")
	time.AfterFunc(wait, func() { c.server.set.run(c.listenAgain) })
}

// listenAgain opens a stream after the last one has ended.
func (c *Conn) listenAgain() {
	l := &c.listening
	l.mu.Lock()
	needed, wanted := l.current == nil && !l.over, l.wanted
	l.mu.Unlock()
	if !needed || c.Err() != nil {
		return
	}
	c.Watch(wanted, func(agreed []string) {
		if agreed != nil {
			c.server.set.run(func() { c.handler.Missed(c) })
		}
	})
}

// unlisten ends the stream for good, so that nothing is open on a Conn that is
// not used any more.
func (c *Conn) unlisten() {
	l := &c.listening
	l.mu.Lock()
	current, old := l.current, l.old
	l.current, l.old, l.over = nil, nil, true
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	c.dropStreams(current, old)
	tellAll(waiting, nil)
}

// cancelledByServer reports whether a server's notifications/cancelled ends our
// stream: all that it may mean in 2026-07-28 on stdio.
func (c *Conn) cancelledByServer(id []byte) bool {
	number, ok := callNumber(id)
	l := &c.listening
	l.mu.Lock()
	call := l.current
	if l.old != nil && l.old.Number == number {
		call = l.old
	}
	l.mu.Unlock()
	return ok && call != nil && call.Number == number && c.rpc.Finish(call, jsonrpc.Answer{Result: []byte(`{}`)})
}
