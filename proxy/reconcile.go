package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"coffer/prefs"
	"coffer/upstream"
)

const (
	// reconcileRetry is the pause before a write that found the file busy is
	// tried again.
	reconcileRetry = 200 * time.Millisecond
	// tellBusy is how long the file must stay locked against writers to be worth
	// a word: siblings are done in milliseconds.
	tellBusy = 5 * time.Second
	// lastRecord is how long a session that ends tries to record what it has
	// not yet. It has to be gone 1.5 s after SIGTERM (design §9).
	lastRecord = time.Second
	// lastRetry is the pause between those attempts.
	lastRetry = 20 * time.Millisecond
)

// reconciler records each listing in the preference file, beside the answers:
// new keys get their rows, the times of all move. A list never waits for it.
type reconciler struct {
	s    *Session
	wake chan struct{} // capacity 1
	told string        // run's own: the trouble in the log that lasts; "": none

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

// run records until ctx ends, and then what is left.
func (r *reconciler) run(ctx context.Context) {
	defer r.finish(ctx)
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
		for began := time.Now(); r.some(ctx, time.Since(began) > tellBusy); {
			select {
			case <-time.After(reconcileRetry):
			case <-ctx.Done():
				return
			}
		}
	}
}

// finish records what is left when ctx has ended: siblings that start and end at
// the same moment write too.
func (r *reconciler) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRecord)
	defer cancel()
	for r.some(ctx, false) {
		select {
		case <-time.After(lastRetry):
		case <-ctx.Done():
			return
		}
	}
}

// some records what is waiting, one transaction for each list. It returns true
// if the file was busy, or ctx ended before its turn came, and the rest has to
// be tried again. With tell a busy file is worth a word.
func (r *reconciler) some(ctx context.Context, tell bool) (again bool) {
	store := r.s.prefs.get()
	for at, l := range r.take() {
		if store == nil {
			continue // nothing to write to; the next listing will be recorded
		}
		spec := r.s.server(at.server).Spec()
		keys := make([]string, len(l.listing.Items))
		for i, item := range l.listing.Items {
			keys[i] = item.Key
		}
		lists := []prefs.Listed{{Type: prefTypes[at.kind], Keys: keys}}
		_, err := store.Reconcile(ctx, spec.Name, lists, spec.AutoEnable, l.at)
		switch {
		case errors.Is(err, prefs.ErrBusy), err != nil && ctx.Err() != nil:
			r.putBack(at, l)
			again = true
			if tell {
				r.complain(err)
			}
		case err != nil:
			r.complain(err)
		default:
			r.told = ""
		}
	}
	return again
}

// complain logs trouble, once while it lasts.
func (r *reconciler) complain(err error) {
	if text := err.Error(); text != r.told {
		r.told = text
		r.s.prefs.complain(err, msgUnwritten)
	}
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
