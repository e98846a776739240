// Package cache keeps fetched values in memory for a while: one fetch at a
// time per key, shared by all who wait for it, and never a value from before
// the last eviction.
//
// A Get that finds no fresh value starts a flight: a goroutine that fetches for
// everyone who asks for that key meanwhile. A flight belongs to the cache and
// not to the Get that started it. A caller whose context ends leaves alone; the
// fetch goes on, and its value is stored.
//
// # Evictions and flights
//
// Each slot counts its evictions. Comparing the count at which a fetch began
// with two others decides everything:
//
//   - With the count when the fetch returns. If they differ, the value was
//     overtaken: what it says may already be untrue. It is not stored, and the
//     flight fetches again, at most twice. A value overtaken even then answers
//     those who may have it by the next rule, marked as not Settled.
//   - With the count when a Get arrived. A Get is answered only by a fetch that
//     began after every Evict before that Get. It may join a flight that began
//     earlier, for that is to fetch again. If it does not, because this was its
//     last fetch or an error, the Get waits for its end and then starts the next
//     flight, or joins it if another such Get was quicker.
//
// An error ends its flight, overtaken or not. How often a failure is worth
// another try is the fetch's own business, and must not be multiplied here; an
// error is not stored either, so it cannot go stale. The second rule holds for
// errors too: a Get that came after the Evict is not told of a failure before.
//
// # Limits
//
// Nothing sweeps the cache: expiry is checked when a key is asked for, and a
// slot, once made, stays. It is for few keys that are asked for often.
//
// Expiry goes by the monotonic clock. A step of the wall clock changes nothing;
// where that clock stops while the machine sleeps, values do not age meanwhile.
package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// maxRefetches is how often a flight fetches again because an Evict overtook
// what it fetched. A source that changes faster than it can be read would
// otherwise keep its readers waiting for good.
const maxRefetches = 2

var (
	// ErrClosed is what Get returns once the cache is closed.
	ErrClosed = errors.New("cache closed")

	// errExited is the error of a fetch that left by runtime.Goexit, as a
	// failing test does.
	errExited = errors.New("fetch ended its goroutine")
)

// PanicError is the error of a fetch that panicked.
type PanicError struct {
	Value any    // what the fetch panicked with
	Stack []byte // the stack at the panic, for the log; Error leaves it out
}

// Error names the panic in one line.
func (e *PanicError) Error() string { return fmt.Sprintf("fetch panicked: %v", e.Value) }

// Unwrap returns the value of the panic if that was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Fetch gets the value of a key. The ttl limits how long it may be kept: it can
// shorten the cache's own TTL, which holds if ttl is negative or longer; at 0
// the value answers those who wait for it and is not kept.
//
// The context is the cache's own. It has no deadline and nothing of any Get's
// context: a fetch bounds itself, and returns when ctx ends, for Close waits
// for it. It may Evict, even its own key; to Get its own key or to Close the
// cache is to wait for itself.
type Fetch[V any] func(ctx context.Context) (value V, ttl time.Duration, err error)

// Entry is an answer: a value, and how far it can be relied on.
type Entry[V any] struct {
	// Value is shared by all who get this entry, so none may change it.
	Value V

	// Expires is when the value stops being an answer, with a monotonic
	// reading. For a value that was not stored it is when it arrived.
	Expires time.Time

	// Settled is false if an Evict came during each fetch that the flight was
	// allowed. The value then answers, but was not stored, and whoever acts on
	// it should ask again later.
	Settled bool
}

// Cache keeps values of type V by key. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	ttl     time.Duration
	ctx     context.Context // the cache's own lifetime: fetches run under it
	cancel  context.CancelCauseFunc
	flights sync.WaitGroup // one for each flight under way; grows only under mu, with ctx alive

	mu    sync.Mutex     // guards slots and all that they lead to
	slots map[K]*slot[V] // key -> slot, made by the first Get that misses
}

// slot is what the cache knows of one key.
type slot[V any] struct {
	evictions uint64     // how many so far
	entry     Entry[V]   // the stored value; the zero Entry, long expired, is none
	flight    *flight[V] // nil: none is under way
}

// flight is one fetch, or several in a row, for everyone who waits on done. The
// other fields belong to the flight's goroutine until done is closed, and never
// change after that.
type flight[V any] struct {
	done      chan struct{} // closed by land
	evictions uint64        // the slot's count when the newest fetch began
	entry     Entry[V]      // the outcome, if err is nil
	err       error
}

// New returns an empty cache that keeps values for ttl at most; at 0 or less it
// keeps none and only shares fetches. Fetches run under ctx. When ctx ends the
// cache is as good as closed, with the cause of ctx in place of ErrClosed.
//
// The caller must Close the cache.
func New[K comparable, V any](ctx context.Context, ttl time.Duration) *Cache[K, V] {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Cache[K, V]{
		ttl:    max(ttl, 0),
		ctx:    ctx,
		cancel: cancel,
		slots:  make(map[K]*slot[V]),
	}
}

// Close makes every Get fail from now on, those that wait included, cancels the
// fetches under way and returns when they have ended. It may be called again.
func (c *Cache[K, V]) Close() {
	c.mu.Lock() // so that no Get is between seeing ctx alive and starting a flight
	c.cancel(ErrClosed)
	c.mu.Unlock()
	c.flights.Wait()
}

// Get returns the value of key: the stored one while it is fresh, else what the
// key's flight fetches. If none is under way it starts one with fetch, so a
// flight serves callers whose own fetch is never called; all who ask for a key
// must mean the same by it.
//
// No answer, be it a value or an error, comes from a fetch that began before an
// Evict that came before this Get: see the package comment. A value that was
// overtaken by a later Evict is fetched again first, at most twice, and the
// last one answers with Settled false.
//
// If ctx ends, Get returns its cause at once and leaves the flight to others.
// A fresh value is returned even then.
func (c *Cache[K, V]) Get(ctx context.Context, key K, fetch Fetch[V]) (Entry[V], error) {
	if entry, ok := c.Peek(key); ok {
		return entry, nil
	}
	s, arrived := c.arrive(key)
	for { // twice at most: a flight that starts after the Get's arrival will do
		entry, f, err := c.join(ctx, s, fetch)
		if f == nil {
			return entry, err
		}
		select {
		case <-f.done:
			if f.evictions >= arrived {
				return f.entry, f.err
			}
		case <-ctx.Done():
			return Entry[V]{}, context.Cause(ctx)
		case <-c.ctx.Done():
			return Entry[V]{}, context.Cause(c.ctx)
		}
	}
}

// Peek returns the stored value of key if there is one and it is fresh. It
// never fetches, waits or allocates.
func (c *Cache[K, V]) Peek(key K) (Entry[V], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.slots[key]; s != nil && c.fresh(s) {
		return s.entry, true
	}
	return Entry[V]{}, false
}

// InFlight reports whether key is being fetched.
func (c *Cache[K, V]) InFlight(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.slots[key]
	return s != nil && s.flight != nil
}

// Evict drops the stored value of key and overtakes the fetch under way, if
// any. It never waits. No Get that begins after it returns is answered with
// what was fetched before it.
func (c *Cache[K, V]) Evict(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.slots[key]; s != nil {
		s.evictions++
		s.entry = Entry[V]{}
	}
}

// arrive returns the slot of key, made if need be, and how many evictions it
// has seen by now.
func (c *Cache[K, V]) arrive(key K) (*slot[V], uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.slots[key]
	if s == nil {
		s = new(slot[V])
		c.slots[key] = s
	}
	return s, s.evictions
}

// join answers a Get at once, or returns the flight that it must wait for.
func (c *Cache[K, V]) join(ctx context.Context, s *slot[V], fetch Fetch[V]) (Entry[V], *flight[V], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.fresh(s): // stored since the Get looked
		return s.entry, nil, nil
	case c.ctx.Err() != nil:
		return Entry[V]{}, nil, context.Cause(c.ctx)
	case ctx.Err() != nil:
		return Entry[V]{}, nil, context.Cause(ctx)
	case s.flight == nil:
		s.entry = Entry[V]{} // expired: let the memory go
		f := &flight[V]{done: make(chan struct{}), evictions: s.evictions}
		s.flight = f
		c.flights.Go(func() { c.fly(s, f, fetch) })
	}
	return Entry[V]{}, s.flight, nil
}

// fresh reports whether s holds a value that may answer now. The caller holds mu.
func (c *Cache[K, V]) fresh(s *slot[V]) bool {
	return time.Now().Before(s.entry.Expires) && c.ctx.Err() == nil
}

// fly is the goroutine of a flight: it fetches until take has an outcome.
func (c *Cache[K, V]) fly(s *slot[V], f *flight[V], fetch Fetch[V]) {
	f.err = errExited  // stands if fetch never returns
	defer c.land(s, f) // deferred, so that it runs even then
	for refetches := 0; ; refetches++ {
		value, ttl, err := call(c.ctx, fetch)
		if c.take(s, f, refetches, value, ttl, err) {
			return
		}
	}
}

// take judges what a fetch returned. It reports false if an Evict overtook it
// and the flight is to fetch again; else f holds the outcome, and s too if that
// is to be kept.
func (c *Cache[K, V]) take(s *slot[V], f *flight[V], refetches int, value V, ttl time.Duration, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	overtaken := s.evictions != f.evictions
	switch {
	case c.ctx.Err() != nil: // what the fetch made of that is of no interest
		f.err = context.Cause(c.ctx)
		return true
	case err != nil:
		f.err = err
		return true
	case overtaken && refetches < maxRefetches:
		f.evictions = s.evictions
		return false
	}
	keep := c.ttl
	if ttl >= 0 {
		keep = min(keep, ttl)
	}
	if overtaken {
		keep = 0
	}
	f.entry = Entry[V]{Value: value, Expires: time.Now().Add(keep), Settled: !overtaken}
	f.err = nil
	if keep > 0 {
		s.entry = f.entry
	}
	return true
}

// land ends f for all who wait. A Get may come between take and land: it finds
// what was stored, or waits for land and then goes by f.evictions as any other.
func (c *Cache[K, V]) land(s *slot[V], f *flight[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.flight = nil
	close(f.done)
}

// call calls fetch and turns a panic into its error.
func call[V any](ctx context.Context, fetch Fetch[V]) (value V, ttl time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return fetch(ctx)
}
