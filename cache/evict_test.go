package cache_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"coffer/cache"
)

func TestEvictStored(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		src := &source{ttl: own}
		c.Evict("k")
		get(c, "k", src.fetch).expect(t, 1, true)
		c.Evict("other")
		peek(t, c, "k", true)
		c.Evict("k")
		peek(t, c, "k", false)
		get(c, "k", src.fetch).expect(t, 2, true)
	})
}

// evictEach evicts k in the middle of each of the next n fetches.
func evictEach(c *cache.Cache[string, int], n int) {
	time.Sleep(slow / 2)
	for i := range n {
		if i > 0 {
			time.Sleep(slow)
		}
		c.Evict("k")
	}
}

func TestEvictDuringFetch(t *testing.T) {
	for _, test := range []struct {
		name      string
		evictions int
		value     int // also the number of fetches
		settled   bool
	}{
		{"never", 0, 1, true},
		{"once", 1, 2, true},
		{"twice", 2, 3, true},
		{"three times", 3, 3, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
				src := &source{ttl: own}
				w := ask(t.Context(), c, "k", src.fetch)
				evictEach(c, test.evictions)
				a := <-w
				a.expect(t, test.value, test.settled)
				synctest.Wait()
				peek(t, c, "k", test.settled)
				if kept := time.Until(a.entry.Expires); (kept == ttl) != test.settled || kept < 0 {
					t.Errorf("expires in %v", kept)
				}
				src.expect(t, int64(test.value))
			})
		})
	}
}

// Several evictions during one fetch cost one fetch more, as one would.
func TestEvictTwiceDuringOneFetch(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		src := &source{ttl: own}
		w := ask(t.Context(), c, "k", src.fetch)
		c.Evict("k")
		c.Evict("k")
		(<-w).expect(t, 2, true)
	})
}

// A fetch that evicts its own key, as one does that finds its session new, is
// overtaken as by any other eviction.
func TestEvictByFetch(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		src := &source{ttl: own}
		get(c, "k", func(ctx context.Context) (int, time.Duration, error) {
			if src.asked.Load() == 0 {
				c.Evict("k")
			}
			return src.fetch(ctx)
		}).expect(t, 2, true)
	})
}

// No Get is answered by a fetch that began before an Evict before it.
func TestGetAfterEvict(t *testing.T) {
	for _, test := range []struct {
		name         string
		evictions    int
		early, late  int // the fetch that answers a Get before and after them
		earlySettled bool
	}{
		{"joins the flight", 1, 2, 2, true},
		{"joins it once more", 2, 3, 3, true},
		{"needs the next flight", 3, 3, 4, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
				src := &source{ttl: own}
				early := ask(t.Context(), c, "k", src.fetch)
				evictEach(c, test.evictions)
				late := ask(t.Context(), c, "k", src.fetch)
				later := ask(t.Context(), c, "k", src.fetch)
				(<-early).expect(t, test.early, test.earlySettled)
				(<-late).expect(t, test.late, true)
				(<-later).expect(t, test.late, true)
				src.expect(t, int64(test.late))
			})
		})
	}
}

// A Get that needs the next flight, and leaves before that, starts none.
func TestGetAfterEvictLeaves(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		src := &source{ttl: own}
		early := ask(t.Context(), c, "k", src.fetch)
		evictEach(c, 3)
		ctx, leave := context.WithCancelCause(t.Context())
		late := ask(ctx, c, "k", src.fetch)
		leave(errBoom)
		(<-late).fails(t, errBoom)
		(<-early).expect(t, 3, false)
		synctest.Wait()
		if c.InFlight("k") {
			t.Error("a flight for nobody")
		}
		src.expect(t, 3)
	})
}

// An error that an Evict overtook is not fetched again for those who asked
// before it; who asked after it gets a fetch that began after it.
func TestErrorOvertaken(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		bad, good := &source{err: errBoom, ttl: own}, &source{ttl: own}
		early := ask(t.Context(), c, "k", bad.fetch)
		c.Evict("k")
		late := ask(t.Context(), c, "k", good.fetch)
		(<-early).fails(t, errBoom)
		(<-late).expect(t, 1, true)
		bad.expect(t, 1)
		good.expect(t, 1)
	})
}

// A value fetched before an error in the same flight is not fallen back on.
func TestErrorAfterOvertakenValue(t *testing.T) {
	run(t, ttl, func(t *testing.T, c *cache.Cache[string, int]) {
		src := &source{ttl: own}
		w := ask(t.Context(), c, "k", func(ctx context.Context) (int, time.Duration, error) {
			n, ttl, err := src.fetch(ctx)
			if n > 1 {
				err = errBoom
			}
			return n, ttl, err
		})
		c.Evict("k")
		(<-w).fails(t, errBoom)
		src.expect(t, 2)
	})
}
