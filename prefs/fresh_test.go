package prefs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSnapshotIsTheSamePointerUntilSomethingShows is what lets a caller compare
// pointers instead of preferences.
func TestSnapshotIsTheSamePointerUntilSomethingShows(t *testing.T) {
	path := newPath(t)
	s, sibling := openAt(t, path, Options{}), openAt(t, path, Options{})
	reconcile(t, sibling, "fs", true, noon, "a", "b")
	set(t, sibling, tool("b"), false)
	steps := []struct {
		name  string
		do    func()
		shows bool
	}{
		{"nothing", func() {}, false},
		{"the same list, later", func() { reconcile(t, sibling, "fs", true, noon.Add(time.Hour), "a", "b") }, false},
		{"a shorter list", func() { reconcile(t, sibling, "fs", true, noon.Add(2*time.Hour), "a") }, false},
		{"the same choice", func() { set(t, sibling, tool("b"), false) }, false},
		{"to and fro", func() { set(t, sibling, tool("a"), false); set(t, sibling, tool("a"), true) }, false},
		{"another flag", func() { set(t, sibling, tool("a"), false) }, true},
		{"a new row", func() { reconcile(t, sibling, "fs", true, noon, "a", "b", "c") }, true},
		{"a row less", func() {
			if _, err := sibling.Prune(t.Context(), PruneOptions{Server: "fs"}); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"a refresh", func() {
			if err := sibling.BumpRefresh(t.Context(), []string{"fs"}, false); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"its own write", func() { set(t, s, tool("own"), true) }, true},
	}
	before := fresh(t, s)
	for _, step := range steps {
		step.do()
		after := fresh(t, s)
		if (after != before) != step.shows {
			t.Errorf("%s: another snapshot: %t, want %t", step.name, after != before, step.shows)
		}
		if s.Last() != after {
			t.Errorf("%s: Last is not what Fresh returned", step.name)
		}
		before = after
	}
}

func TestBumpRefresh(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	for _, reconnect := range []bool{false, true, false} {
		if err := s.BumpRefresh(t.Context(), []string{"fs", "git"}, reconnect); err != nil {
			t.Fatal(err)
		}
	}
	for server, want := range map[string][2]int64{"fs": {3, 1}, "git": {3, 1}, "other": {0, 0}} {
		refresh, reconnect := fresh(t, s).Refresh(server)
		equal(t, server, [2]int64{refresh, reconnect}, want)
	}
}

// TestFreshSeesEveryCommitThatReturned is the promise to a request: whatever was
// committed before it arrived, by whatever process, is honoured, although many
// requests share each check.
func TestFreshSeesEveryCommitThatReturned(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, Options{})
	sibling := start(t, "sibling", path)
	sibling.line(t)
	var committed atomic.Int64 // the sibling's last commit that has returned
	ctx, stop := context.WithCancel(t.Context())
	var requests sync.WaitGroup
	for range 8 {
		requests.Go(func() {
			for ctx.Err() == nil {
				want := committed.Load()
				snapshot, err := s.Fresh(t.Context())
				if err != nil {
					t.Errorf("Fresh: %v", err)
					return
				}
				if got := int64(snapshot.Len()); got < want {
					t.Errorf("a snapshot of %d commits, %d had returned before", got, want)
					return
				}
			}
		})
	}
	for i := range int64(200) {
		sibling.ask(t, fmt.Sprintf("on key%d", i))
		committed.Store(i + 1)
	}
	stop()
	requests.Wait()
	sibling.end(t)
}

// TestFreshIsSharedByThoseThatWait: callers that wait for the turn cost one check
// together, and the check that was running when they came does not serve them.
func TestFreshIsSharedByThoseThatWait(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	fresh(t, s)
	s.turn <- struct{}{} // a check is running
	before := s.begun.Add(1)
	s.checked = before

	const callers = 10
	var waiting sync.WaitGroup
	arrived := make(chan struct{}, callers)
	for range callers {
		waiting.Go(func() {
			arrived <- struct{}{}
			s.Fresh(t.Context())
		})
	}
	for range callers {
		<-arrived
	}
	<-s.turn
	waiting.Wait()
	checks := s.begun.Load() - before
	if checks < 1 || checks > 3 { // one, and one more for each that came only after it began
		t.Errorf("%d checks for %d callers, want about one", checks, callers)
	}
}

func TestFreshLeavesWithItsContext(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	last := fresh(t, s)
	s.turn <- struct{}{}
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	got, err := s.Fresh(ctx)
	<-s.turn
	if got != last || !errors.Is(err, over) {
		t.Errorf("Fresh: %p %v, want the last snapshot %p and the cause", got, err, last)
	}
}

func BenchmarkFreshUnchanged(b *testing.B) {
	s := openAt(b, newPath(b), Options{})
	reconcileMany(b, s, 100)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Fresh(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFreshUnchangedParallel(b *testing.B) {
	s := openAt(b, newPath(b), Options{})
	reconcileMany(b, s, 100)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Fresh(b.Context()); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkFreshAfterACommit is the cost of the first request after a sibling's
// commit that changed nothing visible, the commit included.
func BenchmarkFreshAfterACommit(b *testing.B) {
	for _, keys := range []int{100, 1000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			path := newPath(b)
			s, sibling := openAt(b, path, Options{}), openAt(b, path, Options{})
			reconcileMany(b, s, keys)
			b.ReportAllocs()
			now := noon
			for b.Loop() {
				now = now.Add(time.Second)
				reconcile(b, sibling, "fs", true, now, "tool_0001")
				fresh(b, s)
			}
		})
	}
}

func BenchmarkReconcileKnown(b *testing.B) {
	s := openAt(b, newPath(b), Options{})
	b.ReportAllocs()
	for b.Loop() {
		reconcileMany(b, s, 100)
	}
}

func BenchmarkLookup(b *testing.B) {
	s := openAt(b, newPath(b), Options{})
	reconcileMany(b, s, 1000)
	snapshot, k := fresh(b, s), tool("tool_0500")
	b.ReportAllocs()
	for b.Loop() {
		if _, known := snapshot.Lookup(k); !known {
			b.Fatal("unknown")
		}
	}
}

// BenchmarkOpen is an ordinary start, on a file that is there.
func BenchmarkOpen(b *testing.B) {
	path := newPath(b)
	reconcileMany(b, openAt(b, path, Options{}), 100)
	for b.Loop() {
		s, err := Open(b.Context(), path, schemaText(), Options{})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

// reconcileMany lists n tools of the server fs.
func reconcileMany(t testing.TB, s *Store, n int) {
	t.Helper()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("tool_%04d", i)
	}
	reconcile(t, s, "fs", true, noon, keys...)
}
