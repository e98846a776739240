package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"coffer/prefs"
	"coffer/upstream"
)

// reconcileRetry is the pause before a write that found the file busy is tried
// again.
const reconcileRetry = 200 * time.Millisecond

// reconciler records each listing in the preference file, beside the answers:
// new keys get their rows, the times of all move. A list never waits for it.
type reconciler struct {
	s    *Session
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	waiting map[slot]listed // guarded by mu: newest listing of each slot that is not recorded yet
}

type listed struct {
	listing *upstream.Listing
	at      time.Time
}

func newReconciler(s *Session) *reconciler {
	return &reconciler{s: s, wake: make(chan struct{}, 1), waiting: map[slot]listed{}}
}

// add has a listing recorded.
func (r *reconciler) add(at slot, l *upstream.Listing) {
	r.mu.Lock()
	r.waiting[at] = listed{l, time.Now()}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run records until ctx ends, and then once more what came last.
func (r *reconciler) run(ctx context.Context) {
	defer r.some(context.WithoutCancel(ctx))
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		select {
		case <-r.s.prefs.opened:
		case <-ctx.Done():
			return
		}
		for r.some(ctx) {
			select {
			case <-time.After(reconcileRetry):
			case <-ctx.Done():
				return
			}
		}
	}
}

// some records what is waiting, one transaction for each server. It returns
// true if the file was busy and the rest has to be tried again.
func (r *reconciler) some(ctx context.Context) (again bool) {
	store := r.s.prefs.get()
	for at, l := range r.take() {
		if store == nil {
			continue // nothing to write to; the next listing will be recorded
		}
		spec := r.s.specs[at.server]
		keys := make([]string, len(l.listing.Items))
		for i, item := range l.listing.Items {
			keys[i] = item.Key
		}
		lists := []prefs.Listed{{Type: prefTypes[at.kind], Keys: keys}}
		_, err := store.Reconcile(ctx, spec.Name, lists, spec.AutoEnable, l.at)
		switch {
		case errors.Is(err, prefs.ErrBusy):
			r.putBack(at, l)
			again = true
		case err != nil && ctx.Err() == nil:
			r.s.log.Debug().Err(err).Str("upstream", spec.Name).Msg("listing not recorded")
		}
	}
	return again
}

func (r *reconciler) take() map[slot]listed {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.waiting
	r.waiting = map[slot]listed{}
	return taken
}

// putBack returns a listing to the queue unless a newer one is there.
func (r *reconciler) putBack(at slot, l listed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, newer := r.waiting[at]; !newer {
		r.waiting[at] = l
	}
}
