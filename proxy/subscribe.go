package proxy

import (
	"context"
	"slices"
	"strings"
	"sync"

	"coffer/jsonrpc"
	"coffer/upstream"
)

// subscriptions is what the client has subscribed to, so that upstreams are
// asked once for each URI, and again after a reconnect.
type subscriptions struct {
	mu    sync.Mutex
	forms map[subscription]map[subscriber]bool // guarded by mu: what -> who asked
	// asked are those that the upstream has not answered yet -> who waits for
	// the answer beside the one who had it asked (guarded by mu).
	asked map[subscription][]func(refusal error)
}

// subscriber is one who wants to hear of a URI.
type subscriber struct {
	holder string // the raw id of a listen; "" for resources/subscribe
	form   string // the URI under which the client asked
}

// subscription is one URI of one server, both as the upstream has them.
type subscription struct {
	server string
	uri    string
}

func newSubscriptions() *subscriptions {
	return &subscriptions{forms: map[subscription]map[subscriber]bool{}, asked: map[subscription][]func(error){}}
}

// add enters a subscriber; first is true if the upstream has to be asked, and
// settle called with what it says. Another subscriber's then is called with
// that, or at once if the upstream has agreed already.
func (s *subscriptions) add(sub subscription, who subscriber, then func(refusal error)) (first bool) {
	s.mu.Lock()
	if s.forms[sub] == nil {
		s.forms[sub] = map[subscriber]bool{who: true}
		s.asked[sub] = append(make([]func(error), 0, 1), s.asked[sub]...) // some may wait for what was given up
		s.mu.Unlock()
		return true
	}
	s.forms[sub][who] = true
	waiting, open := s.asked[sub]
	if open {
		s.asked[sub] = append(waiting, then)
	}
	s.mu.Unlock()
	if !open {
		then(nil)
	}
	return false
}

// settle takes what the upstream says to a subscription: nothing, or why it
// will not have it. Then nobody has it.
func (s *subscriptions) settle(sub subscription, refusal error) {
	s.mu.Lock()
	waiting := s.asked[sub]
	delete(s.asked, sub)
	if refusal != nil {
		delete(s.forms, sub)
	}
	s.mu.Unlock()
	for _, then := range waiting {
		then(refusal)
	}
}

// alone reports whether nobody waits for the upstream's answer but the one who
// had it asked.
func (s *subscriptions) alone(sub subscription) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked[sub]) == 0
}

// heldAs returns the subscriptions that resources/subscribe made under a form.
// Who would own that URI now is not the question: the lists may have changed,
// and it may have been subscribed to before and after.
func (s *subscriptions) heldAs(form string) []subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []subscription
	for sub, who := range s.forms {
		if who[subscriber{form: form}] {
			all = append(all, sub)
		}
	}
	slices.SortFunc(all, func(a, b subscription) int { return strings.Compare(a.server, b.server) })
	return all
}

// of returns all URIs of a server that somebody has subscribed to.
func (s *subscriptions) of(server string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var uris []string
	for sub := range s.forms {
		if sub.server == server {
			uris = append(uris, sub.uri)
		}
	}
	slices.Sort(uris)
	return uris
}

// watched returns what gives all URIs of a server at the moment that they are
// needed.
func (s *Session) watched(server string) func() []string {
	return func() []string { return s.subs.of(server) }
}

// removeAll takes out every form under which a holder asked.
func (s *subscriptions) removeAll(sub subscription, holder string) (last bool) {
	s.mu.Lock()
	forms := []subscriber{}
	for who := range s.forms[sub] {
		if who.holder == holder {
			forms = append(forms, who)
		}
	}
	s.mu.Unlock()
	for _, who := range forms {
		last = s.remove(sub, who)
	}
	return last
}

// remove takes a subscriber out; last is true if the upstream has to be told.
func (s *subscriptions) remove(sub subscription, who subscriber) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.forms[sub][who] {
		return false
	}
	delete(s.forms[sub], who)
	if len(s.forms[sub]) > 0 {
		return false
	}
	delete(s.forms, sub)
	return true
}

// covering returns who should hear of a change of uri, and under which form of
// it: those of each subscription to it, or to something that it is a part of
// (MCP 2025-11-25, server/resources, "Subscriptions": a sub-resource).
func (s *subscriptions) covering(server, uri string) []subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []subscriber
	for sub, asked := range s.forms {
		if sub.server != server || !covers(sub.uri, uri) {
			continue
		}
		for who := range asked {
			all = append(all, subscriber{who.holder, strings.TrimSuffix(who.form, sub.uri) + uri})
		}
	}
	return all
}

// covers reports whether uri is whole or a part of it.
func covers(whole, uri string) bool {
	rest, ok := strings.CutPrefix(uri, whole)
	return ok && (rest == "" || strings.HasSuffix(whole, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}

// restore subscribes on a new connection to all that its server had.
func (s *subscriptions) restore(c *upstream.Conn) {
	if c.Modern() {
		c.Watch(func() []string { return s.of(c.Name()) }, nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.forms {
		if sub.server == c.Name() {
			c.Tell("resources/subscribe", jsonrpc.Set([]byte(`{}`), "uri", jsonrpc.Quote(sub.uri)))
		}
	}
}

// subscribe answers resources/subscribe. The first for a URI is forwarded, and
// stands if the upstream agrees.
func (s *Session) subscribe(r *request) {
	s.onURI(r, func(o owner, token []byte) *upstream.Conn {
		form, _ := jsonrpc.Text(token)
		sub := subscription{s.server(o.server).Name(), o.uri}
		server := s.server(o.server)
		if c := server.Ready(); c != nil && !c.Offers("resources", "subscribe") {
			s.fail(r, invalidParams("server %q has no subscriptions", sub.server))
			return nil
		}
		answer := func(refusal error) {
			if refusal != nil {
				s.fail(r, refusal)
			} else {
				r.Reply([]byte(`{}`))
			}
		}
		if !s.subs.add(sub, subscriber{form: form}, answer) {
			return nil
		}
		return s.forwardSubscription(r, o, token, func(refusal error) { s.subs.settle(sub, refusal) })
	})
}

// unsubscribe answers resources/unsubscribe. The last for a URI is forwarded.
func (s *Session) unsubscribe(r *request) {
	token, n := jsonrpc.Member(r.Params, "uri")
	form, ok := jsonrpc.Text(token)
	if n != 1 || !ok {
		s.fail(r, invalidParams("%s needs one uri", r.Method))
		return
	}
	var last []subscription
	servers := s.roster()
	for _, sub := range s.subs.heldAs(form) {
		if s.subs.remove(sub, subscriber{form: form}) && servers.index(sub.server) >= 0 { // else it left the config, and took the subscription with it
			last = append(last, sub)
		}
	}
	if last == nil {
		r.Reply([]byte(`{}`))
		return
	}
	for _, sub := range last[1:] {
		s.letGo(sub)
	}
	o := owner{server: servers.index(last[0].server), uri: last[0].uri}
	if c := s.forwardSubscription(r, o, token, func(error) {}); c != nil {
		s.soil(c)
	}
}

// letGo tells an upstream that nobody wants a subscription any more.
func (s *Session) letGo(sub subscription) {
	i := s.roster().index(sub.server)
	if i < 0 {
		return
	}
	c := s.server(i).Ready()
	switch {
	case c == nil:
	case c.Modern():
		c.Watch(s.watched(sub.server), nil)
	default:
		c.Tell("resources/unsubscribe", jsonrpc.Set([]byte(`{}`), "uri", jsonrpc.Quote(sub.uri)))
		c.Flush()
	}
}

// forwardSubscription sends r with the upstream's own URI. The client's answer
// is {} whatever a willing upstream puts in its own.
func (s *Session) forwardSubscription(r *request, o owner, token []byte, settle func(refusal error)) *upstream.Conn {
	server := s.server(o.server)
	if c := server.Ready(); c != nil && c.Modern() {
		s.watchFor(r, c, o, settle)
		return nil
	} else if c == nil && server.Modern() {
		s.work(r, func(ctx context.Context) {
			c, err := server.Connect(ctx)
			if err != nil {
				settle(err)
				s.fail(r, err)
				return
			}
			s.watchFor(r, c, o, settle)
		})
		return nil
	}
	u := &upstream.Request{
		Method: r.Method,
		Params: jsonrpc.Splice(r.Params, jsonrpc.Edit{Old: token, New: jsonrpc.Quote(o.uri)}),
	}
	u.Done = func(a jsonrpc.Answer) {
		refusal := a.Err
		if a.Error != nil {
			refusal = jsonrpc.AsError(a.Error)
		}
		if refusal != nil {
			s.fail(r, refusal)
		} else {
			r.Reply([]byte(`{}`))
		}
		settle(refusal)
	}
	sub := subscription{server.Name(), o.uri}
	r.OnCancel(func(notice []byte) {
		if s.subs.alone(sub) { // else another wants it too
			settle(context.Canceled)
			u.Cancel(notice)
		}
	})
	return server.Start(u)
}

// watchFor answers r, which has changed the subscriptions to o, when a server
// of 2026-07-28 has agreed to them.
func (s *Session) watchFor(r *request, c *upstream.Conn, o owner, settle func(refusal error)) {
	c.Watch(s.watched(c.Name()), func(uris []string) {
		var refusal error
		if !slices.Contains(uris, o.uri) {
			refusal = invalidParams("server %q does not tell of changes of %s", c.Name(), o.uri)
		}
		if refusal != nil && r.Method == "resources/subscribe" {
			s.fail(r, refusal)
		} else {
			r.Reply([]byte(`{}`))
		}
		settle(refusal)
		s.stream.Out.Flush()
	})
}

// relayUpdated passes notifications/resources/updated on to whoever subscribed,
// under the URI that they know, unless a person has switched the resource off.
func (s *Session) relayUpdated(c *upstream.Conn, params []byte) {
	uri, ok := jsonrpc.TextAt(params, "uri")
	if !ok {
		return
	}
	server := s.index(c)
	if s.gateURI(s.catalog.at(server, uri), s.prefs.last()) != nil {
		return
	}
	meta := jsonrpc.Lookup(params, "_meta")
	if jsonrpc.Lookup(meta, upstream.MetaSubscription) != nil {
		if meta = jsonrpc.Delete(meta, upstream.MetaSubscription); string(meta) == "{}" { // the tag of our own listen
			params = jsonrpc.Delete(params, "_meta")
		} else {
			params = jsonrpc.Set(params, "_meta", meta)
		}
	}
	for _, who := range s.subs.covering(c.Name(), uri) {
		told := params
		if who.form != uri {
			told = jsonrpc.Set(params, "uri", jsonrpc.Quote(who.form))
		}
		if l := s.listens.get(who.holder); l != nil {
			told = l.tagged(told)
		} else if who.holder != "" {
			continue // not acknowledged yet, or over
		}
		s.stream.Out.PostKeyed("updated "+who.holder+who.form, &jsonrpc.Message{Method: "notifications/resources/updated", Params: told})
	}
}
