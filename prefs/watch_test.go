package prefs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// watched is a running Watch, and what it has reported.
type watched struct {
	changes  chan [2]*Snapshot
	troubles chan error
}

// watchOf watches s until the test ends. What has changed since s was opened is
// reported already when it returns.
func watchOf(t testing.TB, s *Store) *watched {
	t.Helper()
	w := &watched{changes: make(chan [2]*Snapshot, 1000), troubles: make(chan error, 1000)}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		s.Watch(ctx, func(old, new *Snapshot) { w.changes <- [2]*Snapshot{old, new} }, func(err error) { w.troubles <- err })
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	for last, reported := s.Last(), s.opened; reported != last; {
		_, reported = w.change(t)
	}
	return w
}

// patience is how long a test waits for what must come: long past any bound, which
// tests that are about time measure for themselves.
const patience = 10 * time.Second

func (w *watched) change(t testing.TB) (old, new *Snapshot) {
	t.Helper()
	select {
	case c := <-w.changes:
		return c[0], c[1]
	case err := <-w.troubles:
		t.Fatalf("trouble instead of a change: %v", err)
	case <-time.After(patience):
		t.Fatal("no change was reported")
	}
	panic("unreachable")
}

func (w *watched) trouble(t testing.TB) error {
	t.Helper()
	select {
	case err := <-w.troubles:
		return err
	case <-time.After(patience):
		t.Fatal("no trouble was reported")
	}
	panic("unreachable")
}

// eventually waits until done.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: has not come", what)
		}
	}
}

// TestWatchTellsOfASiblingInTime: an idle coffer has 250 ms to tell its client.
func TestWatchTellsOfASiblingInTime(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, Options{})
	w := watchOf(t, s)
	sibling := start(t, "sibling", path)
	sibling.line(t)
	before := s.Last()
	var took []time.Duration
	for i := range 100 {
		verb := []string{"on", "off"}[i%2]
		begun := time.Now()
		sibling.ask(t, verb+" a")
		old, new := w.change(t)
		took = append(took, time.Since(begun))
		if old != before {
			t.Fatalf("change %d begins at another snapshot than the one before ended with", i)
		}
		if enabled, known := new.Lookup(tool("a")); !known || enabled != (verb == "on") {
			t.Fatalf("change %d: %s is not in the new snapshot", i, verb)
		}
		before = new
	}
	sibling.end(t)
	slices.Sort(took)
	t.Logf("commit to report: p50 %v, p99 %v, max %v", took[50], took[98], took[99])
	if p99 := took[98]; p99 > 250*time.Millisecond {
		t.Errorf("p99 %v, want at most 250 ms", p99)
	}
}

// TestWatchPollsWhereNoEventComes: the poll alone keeps the promise, too.
func TestWatchPollsWhereNoEventComes(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, Options{})
	w := watchOf(t, s)
	// A watch of a folder ends with the folder; its new namesake is watched only
	// from the next poll on, and may have been filled before.
	folder := filepath.Dir(path)
	if err := os.Rename(folder, folder+".old"); err != nil {
		t.Fatal(err)
	}
	if err := w.trouble(t); !errors.Is(err, ErrGone) {
		t.Fatalf("trouble %v, want ErrGone", err)
	}
	set(t, openAt(t, path, Options{}), tool("a"), false)
	if _, new := w.change(t); new.Len() != 1 {
		// Perhaps it was seen before the row was in it.
		w.change(t)
	}
	if _, known := s.Last().Lookup(tool("a")); !known {
		t.Error("the new file is not read")
	}
}

// TestWatchReportsWhatAFreshSawFirst: a request that notices a commit does not
// swallow the news.
func TestWatchReportsWhatAFreshSawFirst(t *testing.T) {
	path := newPath(t)
	s, sibling := openAt(t, path, Options{}), openAt(t, path, Options{})
	w := watchOf(t, s)
	before := s.Last()
	for i := range 50 {
		set(t, sibling, tool("a"), i%2 == 0)
		after := fresh(t, s)
		old, new := w.change(t)
		if old != before || new != after {
			t.Fatalf("change %d: %p to %p, want %p to %p", i, old, new, before, after)
		}
		before = after
	}
}

// TestStoresThatReconcileLeaveEachOtherAlone: commits that show nothing wake nobody.
func TestStoresThatReconcileLeaveEachOtherAlone(t *testing.T) {
	path := newPath(t)
	const stores = 10
	all := make([]*Store, stores)
	watches := make([]*watched, stores)
	for i := range all {
		all[i] = openAt(t, path, Options{})
		watches[i] = watchOf(t, all[i])
	}
	keys := []string{"a", "b", "c"}
	reconcile(t, all[0], "fs", true, noon, keys...)
	for _, w := range watches {
		w.change(t)
	}
	var done sync.WaitGroup
	for i, s := range all {
		done.Go(func() {
			for j := range 5 {
				_, err := s.Reconcile(t.Context(), "fs", []Listed{{Tool, keys}}, true, noon.Add(time.Duration(10*j+i)*time.Second))
				if err != nil {
					t.Errorf("Reconcile: %v", err)
				}
			}
		})
	}
	done.Wait()
	// A change that shows is the end mark: nothing may come before it.
	set(t, all[0], tool("d"), true)
	for i, w := range watches {
		if _, new := w.change(t); new.Len() != 4 {
			t.Errorf("store %d was told of a change that shows nothing", i)
		}
	}
}

// TestWatchOfAnIdleFileIsCheap: nobody commits, so nothing is loaded, and the poll
// itself sees that no look is needed, where it can see the index.
func TestWatchOfAnIdleFileIsCheap(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	set(t, s, tool("a"), true)
	watchOf(t, s)
	eventually(t, "the first look", func() bool { return s.begun.Load() >= 1 })
	before, begun := s.begun.Load(), time.Now()
	time.Sleep(10 * pollEvery)
	most := int64(3) // second looks
	if runtime.GOOS != "linux" {
		most += int64(time.Since(begun) / pollEvery)
	}
	if looks := s.begun.Load() - before; looks > most {
		t.Errorf("%d looks, want at most %d", looks, most)
	}
}

// TestWatchIgnoresOtherFiles: a log beside the database, written for each look that
// fails, must not cause the next look.
func TestWatchIgnoresOtherFiles(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, Options{})
	watchOf(t, s)
	fresh(t, s)
	before := s.begun.Load()
	begun := time.Now()
	for i := range 200 {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "coffer.log"), fmt.Append(nil, i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	most := 5 + int64(time.Since(begun)/pollEvery)
	if looks := s.begun.Load() - before; looks > most {
		t.Errorf("%d looks, want at most %d", looks, most)
	}
}

// TestWatchTellsTroubleOnce: the same trouble for a second is one line in the log.
func TestWatchTellsTroubleOnce(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, Options{})
	set(t, s, tool("a"), false)
	last := fresh(t, s)
	w := watchOf(t, s)
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.trouble(t); !errors.Is(err, ErrGone) {
		t.Errorf("trouble %v, want ErrGone", err)
	}
	for range 100 {
		if got, err := s.Fresh(t.Context()); got != last || !errors.Is(err, ErrGone) {
			t.Fatalf("Fresh: %p %v, want the last good one, %p, and ErrGone", got, err, last)
		}
	}
	select {
	case err := <-w.troubles:
		t.Errorf("told again: %v", err)
	case c := <-w.changes:
		t.Errorf("told of a change: %v", c)
	case <-time.After(5 * pollEvery): // nothing comes
	}
}
