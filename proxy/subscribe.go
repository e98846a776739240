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
	return &subscriptions{forms: map[subscription]map[subscriber]bool{}}
}

// add enters a subscriber; first is true if the upstream has to be asked.
func (s *subscriptions) add(sub subscription, who subscriber) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forms[sub] == nil {
		s.forms[sub] = map[subscriber]bool{}
		first = true
	}
	s.forms[sub][who] = true
	return first
}

// heldAs returns the subscription that resources/subscribe made under a form.
// Who would own that URI now is not the question: the lists may have changed.
func (s *subscriptions) heldAs(form string) (sub subscription, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub, asked := range s.forms {
		if asked[subscriber{form: form}] {
			return sub, true
		}
	}
	return subscription{}, false
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
		if !s.subs.add(sub, subscriber{form: form}) {
			r.Reply([]byte(`{}`))
			return nil
		}
		return s.forwardSubscription(r, o, token, func(agreed bool) {
			if !agreed {
				s.subs.remove(sub, subscriber{form: form})
			}
		})
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
	sub, found := s.subs.heldAs(form)
	if !found || !s.subs.remove(sub, subscriber{form: form}) {
		r.Reply([]byte(`{}`))
		return
	}
	server := s.roster().index(sub.server)
	if server < 0 {
		r.Reply([]byte(`{}`)) // it has left the config, and took the subscription with it
		return
	}
	o := owner{server: server, uri: sub.uri}
	if c := s.forwardSubscription(r, o, token, func(bool) {}); c != nil {
		s.soil(c)
	}
}

// forwardSubscription sends r with the upstream's own URI. The client's answer
// is {} whatever a willing upstream puts in its own.
func (s *Session) forwardSubscription(r *request, o owner, token []byte, settle func(agreed bool)) *upstream.Conn {
	server := s.server(o.server)
	if c := server.Ready(); c != nil && c.Modern() {
		s.watchFor(r, c, o, settle)
		return nil
	} else if c == nil && server.Modern() {
		s.work(r, func(ctx context.Context) {
			c, err := server.Connect(ctx)
			if err != nil {
				settle(false)
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
		settle(a.Err == nil && a.Error == nil)
		switch {
		case a.Err != nil:
			s.fail(r, a.Err)
		case a.Error != nil:
			r.Fail(a.Error)
		default:
			r.Reply([]byte(`{}`))
		}
	}
	r.OnCancel(func(notice []byte) {
		settle(false)
		u.Cancel(notice)
	})
	return server.Start(u)
}

// watchFor answers r, which has changed the subscriptions to o, when a server
// of 2026-07-28 has agreed to them.
func (s *Session) watchFor(r *request, c *upstream.Conn, o owner, settle func(agreed bool)) {
	c.Watch(s.watched(c.Name()), func(uris []string) {
		agreed := slices.Contains(uris, o.uri)
		settle(agreed)
		if !agreed && r.Method == "resources/subscribe" {
			s.fail(r, invalidParams("server %q does not tell of changes of %s", c.Name(), o.uri))
		} else {
			r.Reply([]byte(`{}`))
		}
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
	o, _ := s.catalog.find(address(c.Name(), uri))
	if o.server != server || s.gateURI(o, s.prefs.last()) != nil {
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
