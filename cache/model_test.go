package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"coffer/cache"
)

// TestModel does random things to a cache and compares it, whenever all is
// quiet, with a model that says in plain terms what each key must look like.
// A seed always does the same things.
func TestModel(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
				m := newModel(seed, c)
				for range 150 {
					time.Sleep(m.step(t))
					synctest.Wait()
					m.check(t)
					if t.Failed() {
						return
					}
				}
				m.drain(t)
			})
		})
	}
}

// model is a cache without concurrency: what happens is told to it in order.
type model struct {
	cache *cache.Cache[string, int]
	rng   *rand.Rand
	keys  []*modelKey
}

// modelKey is one key of the model, and the source of its values.
type modelKey struct {
	name string

	mu        sync.Mutex // guards the rest
	rng       *rand.Rand
	evictions int
	stored    cache.Entry[int] // zero: none
	running   bool             // a fetch is
	began     int              // evictions when the newest fetch began
	value     int              // what the newest fetch returns; no two return the same
	fetches   int              // in this flight, so far
	waiters   []*waiter
}

// waiter is a Get.
type waiter struct {
	arrived int // evictions when it came
	leave   context.CancelCauseFunc
	got     *answer // nil: it waits
	want    *answer // nil: it is to wait
}

func newModel(seed uint64, c *cache.Cache[string, int]) *model {
	m := &model{cache: c, rng: rand.New(rand.NewPCG(seed, 0))}
	for i, name := range []string{"a", "b", "c"} {
		m.keys = append(m.keys, &modelKey{name: name, rng: rand.New(rand.NewPCG(seed, uint64(i+1)))})
	}
	return m
}

// step does one thing, chosen at random, and says how long to rest after it.
func (m *model) step(t *testing.T) (rest time.Duration) {
	k := m.keys[m.rng.IntN(len(m.keys))]
	k.mu.Lock()
	defer k.mu.Unlock()
	switch dice := m.rng.IntN(20); {
	case dice < 8:
		k.ask(t, m.cache)
	case dice < 14:
		k.evictions++
		k.stored = cache.Entry[int]{}
		m.cache.Evict(k.name)
	case dice < 16 && len(k.waiters) > 0:
		w := k.waiters[m.rng.IntN(len(k.waiters))]
		w.want = &answer{err: errBoom}
		w.leave(errBoom)
	case dice < 19:
		return time.Duration(m.rng.IntN(40)) * time.Second / 10
	default:
		return ttl
	}
	return 0
}

func (k *modelKey) fresh() bool { return time.Now().Before(k.stored.Expires) }

// ask sends a Get on its way.
func (k *modelKey) ask(t *testing.T, c *cache.Cache[string, int]) {
	ctx, leave := context.WithCancelCause(t.Context())
	w := &waiter{arrived: k.evictions, leave: leave}
	if k.fresh() {
		w.want = &answer{entry: k.stored}
	}
	k.waiters = append(k.waiters, w)
	go func() {
		defer leave(nil)
		entry, err := c.Get(ctx, k.name, k.fetch(t))
		k.mu.Lock()
		defer k.mu.Unlock()
		w.got = &answer{entry, err}
	}()
}

// fetch is slow, at times wrong or short-lived, and tells the model of itself.
func (k *modelKey) fetch(t *testing.T) cache.Fetch[int] {
	return func(context.Context) (int, time.Duration, error) {
		k.mu.Lock()
		if k.running {
			t.Errorf("two fetches of %q at a time", k.name)
		}
		k.running = true
		k.began = k.evictions
		k.fetches++
		k.value++
		took := time.Duration(1+k.rng.IntN(30)) * time.Second / 10
		keep := []time.Duration{own, own, 0, 5 * time.Second, time.Hour}[k.rng.IntN(5)]
		fails := k.rng.IntN(5) == 0
		k.mu.Unlock()

		time.Sleep(took)

		k.mu.Lock()
		defer k.mu.Unlock()
		k.running = false
		if fails {
			k.land(answer{err: errBoom})
			return 0, keep, errBoom
		}
		k.fetched(keep)
		return k.value, keep, nil
	}
}

// fetched is the rule for a value, just now fetched, that asks to be kept so long.
func (k *modelKey) fetched(keep time.Duration) {
	overtaken := k.evictions > k.began
	switch {
	case overtaken && k.fetches < 3:
		return // to be fetched again
	case overtaken:
		keep = 0
	case keep < 0 || keep > ttl:
		keep = ttl
	}
	entry := cache.Entry[int]{Value: k.value, Expires: time.Now().Add(keep), Settled: !overtaken}
	if keep > 0 {
		k.stored = entry
	}
	k.land(answer{entry: entry})
}

// land ends a flight: it answers those who came before the first Evict that its
// last fetch missed, and leaves the others to wait.
func (k *modelKey) land(a answer) {
	k.fetches = 0
	for _, w := range k.waiters {
		if w.want == nil && w.arrived <= k.began {
			w.want = &a
		}
	}
}

// check compares, when nothing moves: what is stored, who fetches, and that
// every Get has exactly the answer that it must have, or waits for a fetch.
func (m *model) check(t *testing.T) {
	for _, k := range m.keys {
		k.mu.Lock()
		defer k.mu.Unlock()
		entry, ok := m.cache.Peek(k.name)
		if ok != k.fresh() || ok && entry != k.stored {
			t.Errorf("Peek(%q) = %+v, %t; want %+v, %t", k.name, entry, ok, k.stored, k.fresh())
		}
		if got := m.cache.InFlight(k.name); got != k.running {
			t.Errorf("InFlight(%q) = %t, want %t", k.name, got, k.running)
		}
		for _, w := range k.waiters {
			w.check(t, k)
		}
		k.waiters = slices.DeleteFunc(k.waiters, func(w *waiter) bool { return w.want != nil })
	}
}

func (w *waiter) check(t *testing.T, k *modelKey) {
	switch {
	case w.want == nil && w.got != nil:
		t.Errorf("a Get(%q) got %+v, and should wait", k.name, *w.got)
	case w.want == nil && !k.running:
		t.Errorf("a Get(%q) waits for nothing", k.name)
	case w.want != nil && w.got == nil:
		t.Errorf("a Get(%q) waits, want %+v", k.name, *w.want)
	case w.want != nil && (w.got.entry != w.want.entry || !errors.Is(w.got.err, w.want.err)):
		t.Errorf("a Get(%q) got %+v, want %+v", k.name, *w.got, *w.want)
	}
}

// drain lets all that is under way end: nobody is to wait longer than the rest
// of one flight and the first fetch of the next.
func (m *model) drain(t *testing.T) {
	time.Sleep(2 * 3 * 3 * time.Second)
	synctest.Wait()
	m.check(t)
	for _, k := range m.keys {
		if n := len(k.waiters); n > 0 {
			t.Errorf("%d Gets of %q were never answered", n, k.name)
		}
	}
}
