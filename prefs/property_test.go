package prefs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestChoicesSurviveEverything: any sequence of set, reconcile, prune, export,
// import and restart, by two coffers on one file, leaves every choice that a person
// made as it was last made. (An import is a choice about what is in it.)
func TestChoicesSurviveEverything(t *testing.T) {
	for seed := range uint64(15) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			l := newLife(t, seed)
			for range 60 {
				l.step()
				l.check()
				if t.Failed() {
					t.Fatalf("after %q", l.log)
				}
			}
		})
	}
}

// life is one file, and what a person should find in it.
type life struct {
	t      testing.TB
	rand   *rand.Rand
	path   string
	stores [2]*Store
	s      *Store       // the one whose turn it is
	now    time.Time    // moves by a day at each step
	chosen map[Key]bool // what a person chose last
	export []Row        // the last export
	log    []string     // the steps so far
}

func newLife(t testing.TB, seed uint64) *life {
	l := &life{t: t, rand: rand.New(rand.NewPCG(seed, 3)), path: newPath(t), now: noon, chosen: map[Key]bool{}}
	for i := range l.stores {
		l.stores[i] = openAt(t, l.path, Options{})
	}
	return l
}

func (l *life) key() Key {
	return Key{
		Server: []string{"fs", "git"}[l.rand.IntN(2)],
		Type:   []Type{Tool, Resource}[l.rand.IntN(2)],
		Key:    string(rune('a' + l.rand.IntN(5))),
	}
}

func (l *life) flag() bool { return l.rand.IntN(2) == 0 }

// step does one thing at random.
func (l *life) step() {
	steps := []func() error{l.set, l.set, l.reconcile, l.reconcile, l.reconcile, l.prune, l.keep, l.restore, l.reopen}
	l.now = l.now.Add(24 * time.Hour)
	l.s = l.stores[l.rand.IntN(2)]
	if err := steps[l.rand.IntN(len(steps))](); err != nil {
		l.t.Fatalf("after %q: %v", l.log, err)
	}
}

func (l *life) note(format string, args ...any) { l.log = append(l.log, fmt.Sprintf(format, args...)) }

func (l *life) set() error {
	var changes []Change
	for range 1 + l.rand.IntN(3) {
		changes = append(changes, Change{l.key(), l.flag()})
	}
	l.note("set %v", changes)
	for _, c := range changes {
		l.chosen[c.Key] = c.Enabled
	}
	_, err := l.s.Set(l.t.Context(), changes, l.now)
	return err
}

func (l *life) reconcile() error {
	k := l.key()
	list := Listed{Type: k.Type}
	for range l.rand.IntN(6) {
		list.Keys = append(list.Keys, l.key().Key)
	}
	auto := l.flag()
	l.note("reconcile %s %v %t", k.Server, list, auto)
	_, err := l.s.Reconcile(l.t.Context(), k.Server, []Listed{list}, auto, l.now)
	return err
}

func (l *life) prune() error {
	opt := PruneOptions{UnseenBefore: l.now.Add(-time.Duration(l.rand.IntN(5)) * 24 * time.Hour), All: l.rand.IntN(4) == 0}
	if l.flag() {
		opt.Server = l.key().Server
	}
	l.note("prune %+v", opt)
	rows, err := l.s.Prune(l.t.Context(), opt)
	for _, r := range rows {
		if _, chosen := l.chosen[r.Key]; chosen && !opt.All {
			return fmt.Errorf("pruned %v, which a person set", r)
		}
		delete(l.chosen, r.Key)
	}
	return err
}

func (l *life) keep() (err error) {
	l.note("export")
	l.export, err = l.s.Rows(l.t.Context(), Filter{})
	return err
}

func (l *life) restore() error {
	replace := l.flag()
	l.note("import, replace %t", replace)
	before, err := l.s.Rows(l.t.Context(), Filter{})
	if err != nil {
		return err
	}
	if replace {
		clear(l.chosen)
	}
	for _, r := range l.export {
		_, chosen := l.chosen[r.Key]
		other := slices.ContainsFunc(before, func(b Row) bool { return b.Key == r.Key && b.Enabled != r.Enabled })
		if chosen || !r.SetAt.IsZero() || other && !replace {
			l.chosen[r.Key] = r.Enabled
		}
	}
	_, err = l.s.Import(l.t.Context(), l.export, replace, l.now)
	if err == nil && replace {
		rows, err := l.s.Rows(l.t.Context(), Filter{})
		equal(l.t, "rows after an import that replaces", rows, l.export)
		return err
	}
	return err
}

func (l *life) reopen() error {
	l.note("restart")
	i := slices.Index(l.stores[:], l.s)
	if err := l.s.Close(); err != nil {
		return err
	}
	l.s = openAt(l.t, l.path, Options{})
	l.stores[i] = l.s
	return nil
}

// check looks for every choice in both stores.
func (l *life) check() {
	for _, s := range l.stores {
		snapshot, err := s.Fresh(l.t.Context())
		if err != nil {
			l.t.Error(err)
		}
		for k, want := range l.chosen {
			if got, known := snapshot.Lookup(k); !known || got != want {
				l.t.Errorf("%v is %t (known: %t), a person chose %t", k, got, known, want)
			}
		}
	}
	rows, err := l.s.Rows(l.t.Context(), Filter{})
	if err != nil {
		l.t.Error(err)
	}
	byHand := map[Key]bool{}
	for _, r := range rows {
		if !r.SetAt.IsZero() {
			byHand[r.Key] = r.Enabled
		}
	}
	if !maps.Equal(byHand, l.chosen) {
		l.t.Errorf("by hand:\n got %v\nwant %v", byHand, l.chosen)
	}
}
