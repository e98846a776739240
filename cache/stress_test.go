package cache_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coffer/cache"
)

// TestStress has readers chase a source that changes at full speed, for what a
// bubble's quiet moments cannot show. A change is made, then evicted, then made
// known; no Get may return less than was known before it.
func TestStress(t *testing.T) {
	c := cache.New[string, int64](t.Context(), ttl)
	defer c.Close()
	var source, known atomic.Int64
	fetch := func(context.Context) (int64, time.Duration, error) {
		v := source.Load()
		runtime.Gosched()
		if v%7 == 0 {
			return 0, own, errBoom
		}
		return v, own, nil
	}
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 2000 {
				least := known.Load()
				entry, err := c.Get(t.Context(), "k", fetch)
				if err == nil && entry.Value < least {
					t.Errorf("got %d, and %d was known", entry.Value, least)
				}
				if entry, ok := c.Peek("k"); ok && entry.Value < least {
					t.Errorf("peeked at %d, and %d was known", entry.Value, least)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		readers.Wait()
	}()
	for {
		select {
		case <-done:
			return
		default:
			v := source.Add(1)
			c.Evict("k")
			known.Store(v)
			runtime.Gosched()
		}
	}
}

// TestStressSingleFlight has readers meet where a fetch has just ended, and
// its value must be found.
func TestStressSingleFlight(t *testing.T) {
	c := cache.New[int, int](t.Context(), ttl)
	defer c.Close()
	const keys = 5000
	var fetches atomic.Int64
	fetch := func(context.Context) (int, time.Duration, error) {
		return int(fetches.Add(1)), own, nil
	}
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for key := range keys {
				if _, err := c.Get(t.Context(), key, fetch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers.Wait()
	if got := fetches.Load(); got != keys {
		t.Errorf("fetches = %d, want one for each of %d keys", got, keys)
	}
}

// warm returns a cache that holds key, and a fetch that is not to be called.
func warm(tb testing.TB) (*cache.Cache[[2]string, []byte], [2]string, cache.Fetch[[]byte]) {
	c := cache.New[[2]string, []byte](tb.Context(), time.Hour)
	tb.Cleanup(c.Close)
	key := [2]string{"everything", "tools/list"}
	fetched := false
	fetch := func(context.Context) ([]byte, time.Duration, error) {
		if fetched {
			tb.Error("fetched a stored value")
		}
		fetched = true
		return []byte("{}"), own, nil
	}
	if _, err := c.Get(tb.Context(), key, fetch); err != nil {
		tb.Fatal(err)
	}
	return c, key, fetch
}

func TestHitsDoNotAllocate(t *testing.T) {
	c, key, fetch := warm(t)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { c.Peek(key) }); n != 0 {
		t.Errorf("Peek allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { c.Get(ctx, key, fetch) }); n != 0 {
		t.Errorf("Get allocates %v times on a hit", n)
	}
}

func BenchmarkPeek(b *testing.B) {
	c, key, _ := warm(b)
	b.ReportAllocs()
	for b.Loop() {
		c.Peek(key)
	}
}

func BenchmarkGetHit(b *testing.B) {
	c, key, fetch := warm(b)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		c.Get(ctx, key, fetch)
	}
}
