package proxy

import (
	"context"
	"slices"
	"sync"

	"coffer/jsonrpc"
	"coffer/upstream"
)

// listens are the client's open subscriptions/listen requests (MCP 2026-07-28,
// basic/patterns/subscriptions). Several may be open; each gets what it asked
// for, tagged with its own id.
type listens struct {
	mu    sync.Mutex
	open  map[string]*listen // guarded by mu: raw id -> the request
	ended bool               // guarded by mu: the session ends
}

type listen struct {
	r     *request
	kinds map[string]bool // the list_changed methods that it asked for
}

func newListens() *listens { return &listens{open: map[string]*listen{}} }

// flags are the members of the filter, and what each asks for.
var listenFlags = []struct{ flag, method string }{
	{"toolsListChanged", "notifications/tools/list_changed"},
	{"promptsListChanged", "notifications/prompts/list_changed"},
	{"resourcesListChanged", "notifications/resources/list_changed"},
}

// tagged returns params with the listen's id where the client looks for it.
func (l *listen) tagged(params []byte) []byte {
	if params == nil {
		params = []byte(`{}`)
	}
	meta := jsonrpc.Lookup(params, "_meta")
	if len(meta) == 0 || meta[0] != '{' {
		meta = []byte(`{}`)
	}
	return jsonrpc.Set(params, "_meta", jsonrpc.Set(meta, upstream.MetaSubscription, l.r.ID))
}

// changed tells every listen that asked for it that a list has changed.
func (ls *listens) changed(s *Session, method string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for id, l := range ls.open {
		if l.kinds[method] {
			s.stream.Out.PostKeyed(method+id, &jsonrpc.Message{Method: method, Params: l.tagged(nil)})
		}
	}
}

// get returns the open listen with that raw id, or nil.
func (ls *listens) get(id string) *listen {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.open[id]
}

// end answers all listens, as a server should that shuts down.
func (ls *listens) end() {
	ls.mu.Lock()
	open := ls.open
	ls.open, ls.ended = map[string]*listen{}, true
	ls.mu.Unlock()
	for _, l := range open {
		l.r.Reply(l.tagged([]byte(`{}`)))
	}
}

// listen answers subscriptions/listen: an acknowledgement of what can be told,
// then that, until the client cancels or the session ends.
func (s *Session) listen(r *request) {
	filter := jsonrpc.Lookup(r.Params, "notifications")
	if len(filter) == 0 || filter[0] != '{' {
		s.fail(r, invalidParams("subscriptions/listen needs notifications"))
		return
	}
	l := &listen{r: r, kinds: map[string]bool{}}
	agreed := []byte(`{}`)
	for _, f := range listenFlags {
		if string(jsonrpc.Lookup(filter, f.flag)) == "true" {
			l.kinds[f.method] = true
			agreed = jsonrpc.Set(agreed, f.flag, []byte("true"))
		}
	}
	uris, _ := jsonrpc.Elements(jsonrpc.Lookup(filter, "resourceSubscriptions"))
	uris = slices.DeleteFunc(uris, func(uri []byte) bool { return uri[0] != '"' })
	if len(uris) == 0 {
		s.acknowledge(l, agreed, nil)
		return
	}
	s.spawn(func() {
		defer s.stream.Out.Flush()
		ctx, cancel := r.Context(s.ctx)
		defer cancel()
		var held []subscription
		list := []byte{'['}
		for _, raw := range uris {
			form, _ := jsonrpc.Text(raw)
			sub, ok := s.hold(ctx, form, string(r.ID))
			if !ok {
				continue
			}
			held = append(held, sub)
			if len(list) > 1 {
				list = append(list, ',')
			}
			list = append(list, raw...)
		}
		if len(held) > 0 {
			agreed = jsonrpc.Set(agreed, "resourceSubscriptions", append(list, ']'))
		}
		s.acknowledge(l, agreed, held)
	})
}

// acknowledge opens l. The acknowledgement is the first that its client hears.
func (s *Session) acknowledge(l *listen, agreed []byte, held []subscription) {
	id := string(l.r.ID)
	ls := s.listens
	ls.mu.Lock()
	switch {
	case l.r.Ended():
		ls.mu.Unlock()
		s.release(id, held)
		return
	case ls.ended:
		ls.mu.Unlock()
		l.r.Reply(l.tagged([]byte(`{}`)))
		return
	}
	s.stream.Out.Post(&jsonrpc.Message{
		Method: "notifications/subscriptions/acknowledged",
		Params: l.tagged(jsonrpc.Set([]byte(`{}`), "notifications", agreed)),
	})
	ls.open[id] = l
	ls.mu.Unlock()
	l.r.OnCancel(func([]byte) {
		ls.mu.Lock()
		delete(ls.open, id)
		ls.mu.Unlock()
		s.spawn(func() { s.release(id, held) })
	})
}

// hold subscribes to a URI for a listen; false if that cannot be had.
func (s *Session) hold(ctx context.Context, form, holder string) (subscription, bool) {
	o, err := s.locate(ctx, form)
	if err != nil || s.gateURI(o, s.prefs.later(ctx)) != nil {
		return subscription{}, false
	}
	sub := subscription{s.server(o.server).Name(), o.uri}
	c, err := s.server(o.server).Connect(ctx)
	if err != nil || !c.Offers("resources", "subscribe") {
		return subscription{}, false
	}
	// The answer is waited for even if this listen is cancelled meanwhile: others
	// may wait for it too.
	answered := make(chan error, 1)
	if s.subs.add(sub, subscriber{holder, form}, func(refusal error) { answered <- refusal }) {
		s.askToTell(c, sub, func(refusal error) {
			s.subs.settle(sub, refusal)
			answered <- refusal
		})
	}
	select {
	case refusal := <-answered:
		return sub, refusal == nil
	case <-ctx.Done():
		return sub, true // for whoever releases it
	}
}

// askToTell subscribes to a URI at an upstream, and calls then with its refusal,
// or nil.
func (s *Session) askToTell(c *upstream.Conn, sub subscription, then func(refusal error)) {
	if c.Modern() {
		c.Watch(s.watched(sub.server), func(uris []string) {
			if slices.Contains(uris, sub.uri) {
				then(nil)
			} else {
				then(invalidParams("server %q does not tell of changes of %s", sub.server, sub.uri))
			}
		})
		return
	}
	s.spawn(func() {
		_, err := c.Call(s.ctx, "resources/subscribe", jsonrpc.Set([]byte(`{}`), "uri", jsonrpc.Quote(sub.uri)))
		then(err)
		s.stream.Out.Flush()
	})
}

// release ends the subscriptions of a listen that is over.
func (s *Session) release(holder string, held []subscription) {
	for _, sub := range held {
		if s.subs.removeAll(sub, holder) {
			s.letGo(sub)
		}
	}
}
