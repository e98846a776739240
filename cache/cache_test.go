package cache_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"coffer/cache"
)

const (
	ttl  = time.Minute
	slow = time.Second // how long a source takes to answer
	own  = -1          // a fetch's ttl that leaves it to the cache's
)

var errBoom = errors.New("boom")

// source is something to fetch from. Its answer is how often it was asked.
type source struct {
	asked atomic.Int64
	ttl   time.Duration
	err   error
}

func (s *source) fetch(context.Context) (int, time.Duration, error) {
	n := int(s.asked.Add(1))
	time.Sleep(slow)
	return n, s.ttl, s.err
}

func (s *source) expect(t *testing.T, want int64) {
	t.Helper()
	if got := s.asked.Load(); got != want {
		t.Errorf("fetches = %d, want %d", got, want)
	}
}

// answer is what a Get returned.
type answer struct {
	entry cache.Entry[int]
	err   error
}

func (a answer) expect(t *testing.T, value int, settled bool) {
	t.Helper()
	if a.err != nil || a.entry.Value != value || a.entry.Settled != settled {
		t.Errorf("got %d, settled %t, error %v; want %d, settled %t", a.entry.Value, a.entry.Settled, a.err, value, settled)
	}
}

func (a answer) fails(t *testing.T, want error) {
	t.Helper()
	if !errors.Is(a.err, want) || a.entry != (cache.Entry[int]{}) {
		t.Errorf("got %+v, error %v; want error %v", a.entry, a.err, want)
	}
}

// run runs f in a bubble with a cache, which it closes.
func run(t *testing.T, ttl time.Duration, f func(t *testing.T, c *cache.Cache[string, int])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := cache.New[string, int](t.Context(), ttl)
		defer c.Close()
		f(t, c)
	})
}

func get(c *cache.Cache[string, int], key string, fetch cache.Fetch[int]) answer {
	entry, err := c.Get(context.Background(), key, fetch)
	return answer{entry, err}
}

// ask is get in a goroutine; it returns when the Get waits or has its answer.
func ask(ctx context.Context, c *cache.Cache[string, int], key string, fetch cache.Fetch[int]) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		entry, err := c.Get(ctx, key, fetch)
		answers <- answer{entry, err}
	}()
	synctest.Wait()
	return answers
}

func peek(t *testing.T, c *cache.Cache[string, int], key string, want bool) {
	t.Helper()
	if entry, got := c.Peek(key); got != want {
		t.Errorf("Peek(%q) = %+v, %t; want %t", key, entry, got, want)
	}
}

func TestExpiry(t *testing.T) {
	for _, test := range []struct {
		name       string
		cache, ttl time.Duration
		want       time.Duration
	}{
		{"the cache's own", ttl, own, ttl},
		{"shortened", ttl, time.Second, time.Second},
		{"not lengthened", ttl, time.Hour, ttl},
		{"each time", ttl, 0, 0},
		{"a cache that keeps nothing", 0, own, 0},
		{"nor if asked to", 0, time.Hour, 0},
		{"a negative TTL is none", -ttl, own, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			run(t, test.cache, func(t *testing.T, c *cache.Cache[string, int]) {
				src := &source{ttl: test.ttl}
				first := get(c, "k", src.fetch)
				first.expect(t, 1, true)
				if got := time.Until(first.entry.Expires); got != test.want {
					t.Errorf("kept for %v, want %v", got, test.want)
				}
				if test.want > 0 {
					time.Sleep(test.want - time.Nanosecond)
					if entry, ok := c.Peek("k"); !ok || entry != first.entry {
						t.Errorf("Peek = %+v, %t; want %+v", entry, ok, first.entry)
					}
					get(c, "k", src.fetch).expect(t, 1, true)
					time.Sleep(time.Nanosecond)
				}
				peek(t, c, "k", false)
				get(c, "k", src.fetch).expect(t, 2, true)
			})
		})
	}
}

func TestSingleFlight(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		src := &source{ttl: own}
		waiters := make([]<-chan answer, 100)
		for i := range waiters {
			waiters[i] = ask(t.Context(), c, "k", src.fetch)
		}
		if !c.InFlight("k") || c.InFlight("other") {
			t.Error("InFlight is not true of k alone")
		}
		for _, w := range waiters {
			(<-w).expect(t, 1, true)
		}
		synctest.Wait()
		if c.InFlight("k") {
			t.Error("InFlight after the flight")
		}
		src.expect(t, 1)
	})
}

// A value kept for no time still answers all who wait for it.
func TestSingleFlightUnkept(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		src := &source{ttl: 0}
		one, two := ask(t.Context(), c, "k", src.fetch), ask(t.Context(), c, "k", src.fetch)
		(<-one).expect(t, 1, true)
		(<-two).expect(t, 1, true)
		get(c, "k", src.fetch).expect(t, 2, true)
	})
}

func TestWaiterLeaves(t *testing.T) {
	for _, stay := range []bool{true, false} {
		run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
			src := &source{ttl: own}
			ctx, leave := context.WithCancelCause(t.Context())
			starter := ask(ctx, c, "k", src.fetch)
			var other <-chan answer
			if stay {
				other = ask(t.Context(), c, "k", src.fetch)
			}
			before := time.Now()
			leave(errBoom)
			(<-starter).fails(t, errBoom)
			if waited := time.Since(before); waited != 0 {
				t.Errorf("left after %v", waited)
			}
			if stay {
				(<-other).expect(t, 1, true)
			}
			time.Sleep(slow)
			synctest.Wait()
			peek(t, c, "k", true)
			src.expect(t, 1)
		})
	}
}

func TestWaiterGone(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		src := &source{ttl: own}
		ctx, leave := context.WithCancelCause(t.Context())
		leave(errBoom)
		(<-ask(ctx, c, "k", src.fetch)).fails(t, errBoom)
		src.expect(t, 0)
		get(c, "k", src.fetch).expect(t, 1, true)
		(<-ask(ctx, c, "k", src.fetch)).expect(t, 1, true)
	})
}

func TestFetchContext(t *testing.T) {
	type key struct{}
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		ctx := context.WithValue(t.Context(), key{}, "the waiter's")
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		a := <-ask(ctx, c, "k", func(ctx context.Context) (int, time.Duration, error) {
			_, bounded := ctx.Deadline()
			if bounded || ctx.Value(key{}) != nil {
				return 0, own, errors.New("the waiter's context came through")
			}
			return 1, own, nil
		})
		a.expect(t, 1, true)
	})
}

func TestErrorIsNotStored(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		bad, good := &source{err: errBoom, ttl: own}, &source{ttl: own}
		one, two := ask(t.Context(), c, "k", bad.fetch), ask(t.Context(), c, "k", bad.fetch)
		(<-one).fails(t, errBoom)
		(<-two).fails(t, errBoom)
		peek(t, c, "k", false)
		get(c, "k", good.fetch).expect(t, 1, true)
		bad.expect(t, 1)
	})
}

func TestPanic(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		for _, v := range []any{"out of cheese", errBoom} {
			explode := func(context.Context) (int, time.Duration, error) {
				time.Sleep(slow)
				panic(v)
			}
			one, two := ask(t.Context(), c, "k", explode), ask(t.Context(), c, "k", explode)
			for _, w := range []<-chan answer{one, two} {
				err := (<-w).err
				p, ok := errors.AsType[*cache.PanicError](err)
				if !ok || p.Value != v {
					t.Fatalf("error = %v, want a PanicError of %v", err, v)
				}
				if !strings.Contains(string(p.Stack), "TestPanic") {
					t.Errorf("the stack does not show where it was:\n%s", p.Stack)
				}
				if _, isErr := v.(error); errors.Is(err, errBoom) != isErr {
					t.Errorf("errors.Is(%v, errBoom) = %t", err, !isErr)
				}
			}
		}
		_, err := c.Get(t.Context(), "k", func(context.Context) (int, time.Duration, error) { panic("out of cheese") })
		if got, want := err.Error(), "fetch panicked: out of cheese"; got != want {
			t.Errorf("error = %q, want %q", got, want)
		}
		get(c, "k", (&source{ttl: own}).fetch).expect(t, 1, true)
	})
}

// A fetch that ends its goroutine, as t.Fatal does, wedges nothing either.
func TestGoexit(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		a := <-ask(t.Context(), c, "k", func(context.Context) (int, time.Duration, error) {
			runtime.Goexit()
			return 1, own, nil
		})
		if a.err == nil {
			t.Errorf("got %+v, want an error", a.entry)
		}
		get(c, "k", (&source{ttl: own}).fetch).expect(t, 1, true)
	})
}

func TestCloseDuringFetch(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		src := &source{ttl: own}
		get(c, "stored", src.fetch)
		var ended atomic.Bool
		reluctant := func(ctx context.Context) (int, time.Duration, error) {
			<-ctx.Done()
			if got := context.Cause(ctx); got != cache.ErrClosed {
				t.Errorf("cause = %v, want %v", got, cache.ErrClosed)
			}
			time.Sleep(slow)
			ended.Store(true)
			return 1, own, nil
		}
		w := ask(t.Context(), c, "k", reluctant)
		before := time.Now()
		go c.Close()
		(<-w).fails(t, cache.ErrClosed)
		if waited := time.Since(before); waited != 0 {
			t.Errorf("the waiter was told after %v", waited)
		}
		c.Close()
		if !ended.Load() {
			t.Error("Close left a fetch behind")
		}
		for _, key := range []string{"k", "stored", "new"} {
			peek(t, c, key, false)
			get(c, key, src.fetch).fails(t, cache.ErrClosed)
		}
		c.Evict("stored")
		src.expect(t, 1)
	})
}

// A flight that was to fetch again does not once the cache is closed.
func TestCloseAfterEvict(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		src := &source{ttl: own}
		w := ask(t.Context(), c, "k", src.fetch)
		c.Evict("k")
		c.Close()
		(<-w).fails(t, cache.ErrClosed)
		src.expect(t, 1)
	})
}

func TestLifetimeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(t.Context())
		c := cache.New[string, int](ctx, ttl)
		defer c.Close()
		src := &source{ttl: own}
		get(c, "stored", src.fetch)
		w := ask(t.Context(), c, "k", src.fetch)
		end(errBoom)
		(<-w).fails(t, errBoom)
		get(c, "stored", src.fetch).fails(t, errBoom)
		peek(t, c, "stored", false)
		src.expect(t, 2)
	})
}

func TestKeysAreIndependent(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		a, b := &source{ttl: own}, &source{ttl: time.Second}
		wa := ask(t.Context(), c, "a", a.fetch)
		time.Sleep(slow / 2)
		wb := ask(t.Context(), c, "b", b.fetch)
		c.Evict("b")
		(<-wa).expect(t, 1, true)
		(<-wb).expect(t, 2, true)
		time.Sleep(time.Second)
		peek(t, c, "a", true)
		peek(t, c, "b", false)
		bad := &source{err: errBoom}
		get(c, "b", bad.fetch).fails(t, errBoom)
		get(c, "a", a.fetch).expect(t, 1, true)
	})
}
