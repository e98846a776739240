package prefs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestDeletedWhileOpen: running stores keep what they know and make no new file; a
// command that comes later does, and then they follow it.
func TestDeletedWhileOpen(t *testing.T) {
	for _, sides := range [][]string{nil, {"-wal"}, {"-shm"}, {"-wal", "-shm"}} {
		t.Run(strings.Join(append([]string{"database"}, sides...), ","), func(t *testing.T) {
			path := newPath(t)
			s := openAt(t, path, Options{})
			set(t, s, tool("a"), false)
			last := fresh(t, s)
			w := watchOf(t, s)
			unlink(t, path)
			for _, side := range sides {
				os.Remove(path + side) // SQLite may have been faster
			}
			const message = "preferences PATH: deleted while in use"
			wantError(t, w.trouble(t), path, ErrGone, message, hintGone)
			got, err := s.Fresh(t.Context())
			wantError(t, err, path, ErrGone, message, hintGone)
			if got != last {
				t.Error("the last good snapshot does not rule")
			}
			_, err = s.Set(t.Context(), []Change{{tool("b"), true}}, noon)
			wantError(t, err, path, ErrGone, message, hintGone)
			_, err = s.Reconcile(t.Context(), "fs", nil, true, noon)
			wantError(t, err, path, ErrGone, message, hintGone)
			if _, err := os.Stat(path); err == nil {
				t.Error("the file was made anew")
			}
			write(t, path, "") // as a slow copy begins
			if _, err := s.Fresh(t.Context()); !errors.Is(err, ErrGone) {
				t.Errorf("Fresh of an empty file: %v, want ErrGone", err)
			}

			command := start(t, "sibling", path)
			command.line(t)
			command.ask(t, "off b")
			eventually(t, "the new file", func() bool {
				_, known := s.Last().Lookup(tool("b"))
				return known
			})
			set(t, s, tool("c"), true)
			command.end(t)
			equal(t, "rows", len(allRows(t, openAt(t, path, Options{}))), 2)
		})
	}
}

// TestDeletedAndMadeAnewAtOnce: a command begins a new file before the coffers that
// run have noticed that the old one is gone, whose log and index are still there.
func TestDeletedAndMadeAnewAtOnce(t *testing.T) {
	for round := range 5 {
		path := newPath(t)
		soundFile(t, path)
		siblings := []*child{start(t, "sibling", path), start(t, "sibling", path)}
		for i, c := range siblings {
			c.line(t)
			c.ask(t, fmt.Sprintf("off old%d", i))
		}
		unlink(t, path)
		time.Sleep(time.Duration(round) * time.Millisecond) // at several points of their reaction
		s := openAt(t, path, Options{})
		set(t, s, tool("new"), false)
		for i, c := range siblings {
			c.ask(t, fmt.Sprintf("off new%d", i))
		}
		equal(t, "rows", fresh(t, s).Len(), 3)
		for _, c := range siblings {
			c.end(t)
		}
		s.Close()
		sound(t, path)
	}
}

// TestReplacedWhileOpen: another file is moved to the path, beside the log of the
// old one, which SQLite would take for its own.
func TestReplacedWhileOpen(t *testing.T) {
	path, other := newPath(t), newPath(t)
	replacement := openAt(t, other, Options{})
	reconcileMany(t, replacement, 50)
	replacement.Close()
	s := openAt(t, path, Options{})
	reconcileMany(t, s, 300)
	fresh(t, s)
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	equal(t, "rows of the new file", fresh(t, s).Len(), 50)
	set(t, s, tool("a"), false)
	s.Close()
	s = openAt(t, path, Options{})
	equal(t, "rows of the new file, and ours", s.Last().Len(), 51)
	sound(t, path)
}

// TestReplacedUnderAWriter: a write that ended up in the old file is made again.
func TestReplacedUnderAWriter(t *testing.T) {
	path, other := newPath(t), newPath(t)
	soundFile(t, other)
	s := openAt(t, path, Options{})
	replaced := false
	err := s.write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		if !replaced {
			replaced = true
			if err := os.Rename(other, path); err != nil {
				return err
			}
		}
		return choose(ctx, tx, Change{tool("a"), false}, noon)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, known := fresh(t, s).Lookup(tool("a")); !known {
		t.Error("the choice is not in the file that is there")
	}
}

// TestSideFileDeletedWhileOpen: two processes must not use two of them.
func TestSideFileDeletedWhileOpen(t *testing.T) {
	for _, side := range []string{"-wal", "-shm"} {
		t.Run(side, func(t *testing.T) {
			path := newPath(t)
			s := openAt(t, path, Options{})
			set(t, s, tool("a"), false)
			unlink(t, path+side)
			set(t, s, tool("b"), false)
			sibling := start(t, "sibling", path)
			sibling.line(t)
			sibling.ask(t, "off c")
			set(t, s, tool("d"), false)
			sibling.end(t)
			equal(t, "rows", fresh(t, s).Len(), 4)
			s.Close()
			sound(t, path)
		})
	}
}
