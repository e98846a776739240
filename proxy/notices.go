package proxy

import (
	"sync"
	"time"

	"coffer/jsonrpc"
	"coffer/upstream"
)

const (
	// forwardEvery is the least time between two forwarded list_changed of one
	// kind (design §7).
	forwardEvery = time.Second
	// firstRetry and maxRetry bound the growing waits before a list is asked
	// again in the background (design §6, §7).
	firstRetry = time.Second
	maxRetry   = 60 * time.Second
)

// backoff returns the n-th growing wait, counted from 0: 1, 2, 4 … 60 s.
func backoff(n int) time.Duration {
	if n > 5 {
		return maxRetry
	}
	return min(firstRetry<<n, maxRetry)
}

// changedMethods are the notifications that tell of a change in each kind.
var changedMethods = map[upstream.Kind]string{
	upstream.Tools:     "notifications/tools/list_changed",
	upstream.Resources: "notifications/resources/list_changed",
	upstream.Templates: "notifications/resources/list_changed",
	upstream.Prompts:   "notifications/prompts/list_changed",
}

// notices decides when the client is told that a list has changed, and when a
// list is asked again without the client (design §6, §7).
//
// Two sorts of causes meet here. An upstream's own notice is forwarded at once
// and believed until it proves empty. All else (a new connection, a refresh, an
// upstream that was missing, a preference) is told only if what the client
// would see differs from what it would have seen just before the cause; so the
// cause is marked, the list is asked, and its arrival is compared.
type notices struct {
	s *Session

	mu      sync.Mutex
	slots   map[slot]*watch        // guarded by mu
	forward map[string]*forwarding // guarded by mu: by method
}

// watch is what notices keeps of one list of one server.
type watch struct {
	failure error       // why the newest attempt failed, or took too long
	retries int         // failures in a row
	retry   *time.Timer // the next attempt in the background, or nil

	caused bool              // a cause is marked and no list has arrived since
	seen   *upstream.Listing // what the client would have seen before the cause; nil: nothing

	noticed bool              // the upstream sent list_changed, no list has arrived since
	before  *upstream.Listing // the newest listing when it did
	suspect bool              // its last notice changed nothing: check the next ones
	checks  int               // checks in a row that found no change
	check   *time.Timer       // the next check, or nil
}

// forwarding limits forwarded notices of one method.
type forwarding struct {
	last  time.Time
	later *time.Timer // one more is due, or nil
}

func newNotices(s *Session) *notices {
	return &notices{s: s, slots: map[slot]*watch{}, forward: map[string]*forwarding{}}
}

// at returns the watch of a slot. n.mu is held.
func (n *notices) at(at slot) *watch {
	w := n.slots[at]
	if w == nil {
		w = &watch{}
		n.slots[at] = w
	}
	return w
}

// send tells the client, at once.
func (n *notices) send(k upstream.Kind) {
	method := changedMethods[k]
	if n.s.client.isReady() { // before that it will list anyway
		n.s.stream.Out.PostKeyed(method, &jsonrpc.Message{Method: method})
	}
	n.s.listens.changed(n.s, method)
	n.s.stream.Out.Flush()
}

// forwardSoon tells the client what an upstream told us: at once, then at most
// once per second and method.
func (n *notices) forwardSoon(k upstream.Kind) {
	n.mu.Lock()
	f := n.forward[changedMethods[k]]
	if f == nil {
		f = &forwarding{}
		n.forward[changedMethods[k]] = f
	}
	now := time.Now()
	wait := forwardEvery - now.Sub(f.last)
	if f.last.IsZero() || wait <= 0 {
		f.last = now
		n.mu.Unlock()
		n.send(k)
		return
	}
	if f.later == nil {
		f.later = time.AfterFunc(wait, func() {
			n.mu.Lock()
			f.later, f.last = nil, time.Now()
			n.mu.Unlock()
			n.s.spawn(func() { n.send(k) })
		})
	}
	n.mu.Unlock()
}

// failure returns why the list failed last, or nil if it did not.
func (n *notices) failure(at slot) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at(at).failure
}

// unseen says that the client was given a list without this server's part.
func (n *notices) unseen(at slot, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.at(at)
	w.caused, w.seen = true, nil
	if w.failure == nil {
		w.failure = err
		n.retryLater(at, w)
	}
}

// failed says that an attempt to list has failed.
func (n *notices) failed(at slot, err error) {
	n.mu.Lock()
	w := n.at(at)
	w.failure = err
	n.retryLater(at, w)
	tell := w.caused && !n.alike(at, w.seen, nil)
	if w.caused {
		w.seen = nil
	}
	n.mu.Unlock()
	if tell {
		n.send(at.kind)
	}
}

// retryLater has the list asked again after a wait. n.mu is held.
func (n *notices) retryLater(at slot, w *watch) {
	if w.retry != nil {
		return
	}
	w.retry = time.AfterFunc(backoff(w.retries), func() {
		n.mu.Lock()
		w.retry = nil
		n.mu.Unlock()
		n.ask(at)
	})
	w.retries++
}

// expect says that a server has come: what it lists is news as far as it differs
// from what the client saw of the server that it takes the place of (-1: of none).
func (n *notices) expect(server, before int) {
	for _, k := range upstream.Kinds() {
		var seen *upstream.Listing
		if before >= 0 && n.failure(slot{before, k}) == nil {
			seen = n.s.catalog.newest(slot{before, k})
		}
		n.mu.Lock()
		w := n.at(slot{server, k})
		w.caused, w.seen = true, seen
		n.mu.Unlock()
	}
}

// forget ends what is done in the background for a server that has left.
func (n *notices) forget(server int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range upstream.Kinds() {
		w := n.at(slot{server, k})
		for _, timer := range []*time.Timer{w.retry, w.check} {
			if timer != nil {
				timer.Stop()
			}
		}
	}
}

// ask lists in the background; what comes of it is told to arrived or failed.
func (n *notices) ask(at slot) {
	if n.s.roster().specs[at.server] == nil {
		return // it has left
	}
	n.s.spawn(func() {
		_, _ = n.s.ask(n.s.ctx, at)
		if entry, fresh := n.s.lists.Peek(at); fresh && n.waits(at) {
			n.arrived(at, entry.Value) // it had before the failure or the cause was noted
		}
	})
}

// waits reports whether a list is waited for.
func (n *notices) waits(at slot) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at(at).failure != nil || n.at(at).caused
}

// arrived says that the list was read.
func (n *notices) arrived(at slot, l *upstream.Listing) {
	n.mu.Lock()
	w := n.at(at)
	w.failure, w.retries = nil, 0
	if w.retry != nil {
		w.retry.Stop()
		w.retry = nil
	}
	own := w.caused && !n.alike(at, w.seen, l)
	w.caused, w.seen = false, nil
	forward := false
	if w.noticed {
		w.noticed = false
		changed := w.before == nil || !n.alike(at, w.before, l)
		forward = w.suspect && changed && !own
		if changed {
			w.suspect, w.checks = false, 0
		} else {
			w.suspect = true
		}
	}
	n.mu.Unlock()
	if own {
		n.send(at.kind)
	} else if forward {
		n.forwardSoon(at.kind)
	}
}

// alike reports whether a client sees the same of two listings now.
func (n *notices) alike(at slot, a, b *upstream.Listing) bool {
	snap := n.s.prefs.last()
	return looksAlike(n.s.server(at.server).Spec(), a, snap, b, snap)
}

// cause marks that something is about to happen, or has happened, that may
// change what the client sees of the slot.
func (n *notices) cause(at slot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.at(at)
	if w.caused {
		return // the client has not been told of the first one yet
	}
	known := n.s.catalog.newest(at)
	if w.failure != nil {
		known = nil
	}
	w.caused, w.seen = known != nil || w.failure != nil, known
}

// check asks the list again if a cause is marked.
func (n *notices) check(at slot) {
	n.mu.Lock()
	caused := n.at(at).caused
	n.mu.Unlock()
	if caused {
		n.ask(at)
	}
}

// unsettled says that the list changed each time that it was read, and that
// the client was answered with l. It is looked at again later.
func (n *notices) unsettled(at slot, l *upstream.Listing) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.at(at)
	w.caused, w.seen = true, l
	n.checkLater(at, w)
}

// checkLater has the list asked again after a growing wait. n.mu is held.
func (n *notices) checkLater(at slot, w *watch) {
	if w.check != nil {
		return
	}
	w.check = time.AfterFunc(backoff(w.checks), func() {
		n.mu.Lock()
		w.check = nil
		due := w.noticed || w.caused
		n.mu.Unlock()
		if due {
			n.ask(at)
		}
	})
	w.checks++
}

// told takes an upstream's own list_changed for the kinds that it covers.
func (n *notices) told(server int, kinds ...upstream.Kind) {
	believed, known := false, false
	for _, k := range kinds {
		at := slot{server, k}
		newest := n.s.catalog.newest(at)
		n.s.lists.Evict(at)
		if newest == nil {
			continue
		}
		known = true
		n.mu.Lock()
		w := n.at(at)
		if !w.noticed {
			w.noticed, w.before = true, newest
		}
		if w.suspect {
			n.checkLater(at, w)
		} else {
			believed = true
		}
		n.mu.Unlock()
	}
	if believed || !known {
		n.forwardSoon(kinds[0])
	}
}
