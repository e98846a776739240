package prefs

import (
	"runtime"
	"testing"
)

// TestIndexTellsOfEachCommit: what spares a request the question to SQLite must
// see whatever SQLite would have told of.
func TestIndexTellsOfEachCommit(t *testing.T) {
	path := newPath(t)
	s, inProcess := openAt(t, path, Options{}), openAt(t, path, Options{})
	sibling := start(t, "sibling", path)
	sibling.line(t)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"a sibling's", func() { sibling.ask(t, "on a") }},
		{"the same again", func() { sibling.ask(t, "on a") }},
		{"another store's", func() { set(t, inProcess, tool("b"), true) }},
		{"its own", func() { set(t, s, tool("c"), true) }},
		{"a log begun anew", func() {
			if err := inProcess.file.emptyLog(t.Context()); err != nil {
				t.Fatal(err)
			}
			sibling.ask(t, "off a")
		}},
	} {
		fresh(t, s)
		if runtime.GOOS == "linux" && !s.file.untouched() {
			t.Errorf("before %s: the index is not seen to be as it was", step.name)
		}
		step.do()
		if s.file.untouched() {
			t.Errorf("%s commit is not seen in the index", step.name)
		}
	}
	fresh(t, s)
	sibling.end(t)
}

// TestIndexIsNotTrustedWhileItIsWritten: its two copies then differ.
func TestIndexIsNotTrustedWhileItIsWritten(t *testing.T) {
	f := &file{index: make([]byte, indexHeaderSize), loaded: true}
	if !f.untouched() {
		t.Error("a header as it was at the load is not taken for untouched")
	}
	f.index[0] = 1
	f.seenIndex[0] = 1
	if f.untouched() {
		t.Error("half a header is taken for untouched")
	}
}
