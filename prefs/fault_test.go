package prefs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// short is the busy timeout of stores that are to meet a lock.
const short = 150 * time.Millisecond

// wantError checks what a person sees; PATH and FOLDER in want stand for the file's.
func wantError(t testing.TB, err error, path string, kind error, want, hint string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", want)
	}
	named := strings.NewReplacer("PATH", path, "FOLDER", filepath.Dir(path))
	if got := err.Error(); got != named.Replace(want) {
		t.Errorf("error:\n got %s\nwant %s", got, named.Replace(want))
	}
	trouble, ok := errors.AsType[*Error](err)
	if !ok || !errors.Is(err, kind) {
		t.Fatalf("%#v is not an *Error of the kind %v", err, kind)
	}
	if got := trouble.Hint(); got != named.Replace(hint) {
		t.Errorf("hint:\n got %s\nwant %s", got, named.Replace(hint))
	}
}

// The hints, each at one place.
const (
	hintBusy    = "close the program that has the file open, or try again"
	hintFull    = "free some space where FOLDER is, then try again"
	hintCorrupt = "nothing was changed; put a sound copy in its place, or move it and its -wal file away to start afresh"
	hintGone    = "put the file back; or run a coffer command that sets a preference, or start a client anew, to begin a new file"
	hintNewer   = "update this coffer, or name another file with --db; nothing was changed"
	hintLocks   = "put the file on a local disk: name it with --db"
)

func TestForeignWriteLock(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, Options{BusyTimeout: short})
	set(t, s, tool("a"), false)
	last := fresh(t, s)
	foreign := start(t, "lock", path)
	foreign.line(t)

	begun := time.Now()
	if got := fresh(t, s); got != last {
		t.Error("another snapshot although nothing was committed")
	}
	if took := time.Since(begun); took > lockWait {
		t.Errorf("Fresh took %v beside a writer", took)
	}
	_, err := s.Set(t.Context(), []Change{{tool("a"), true}}, noon)
	wantError(t, err, path, ErrBusy, "preferences PATH: locked by another program", hintBusy)
	_, err = s.Reconcile(t.Context(), "fs", []Listed{{Tool, []string{"b"}}}, true, noon)
	wantError(t, err, path, ErrBusy, "preferences PATH: locked by another program", hintBusy)
	if got, err := s.Rows(t.Context(), Filter{}); err != nil || len(got) != 1 {
		t.Errorf("Rows beside a writer: %v, %v", got, err)
	}
	another := openAt(t, path, Options{BusyTimeout: short}) // a start beside a writer
	equal(t, "its snapshot", another.Last(), last)

	foreign.end(t)
	set(t, s, tool("a"), true)
	if enabled, _ := fresh(t, s).Lookup(tool("a")); !enabled {
		t.Error("the choice made after the lock was gone is not there")
	}
}

// TestForeignLockAgainstReaders: a start finds the file locked for everybody. One
// that keeps trying has no snapshot until the lock is gone, and then tells.
func TestForeignLockAgainstReaders(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, Options{})
	set(t, s, tool("a"), false)
	s.Close()
	foreign := start(t, "exclude", path)
	foreign.line(t)

	_, err := Open(t.Context(), path, schemaText(), Options{BusyTimeout: short})
	wantError(t, err, path, ErrBusy, "preferences PATH: locked by another program", hintBusy)

	s = openAt(t, path, Options{BusyTimeout: short, KeepTrying: true})
	w := watchOf(t, s)
	wantError(t, w.trouble(t), path, ErrBusy, "preferences PATH: locked by another program", hintBusy)
	snapshot, err := s.Fresh(t.Context())
	if snapshot != nil || !errors.Is(err, ErrBusy) {
		t.Errorf("Fresh: %v, %v, want nil and ErrBusy", snapshot, err)
	}
	foreign.end(t)
	old, new := w.change(t)
	if _, known := new.Lookup(tool("a")); old != nil || !known {
		t.Errorf("told of %v to %v, want nil to what is stored", old, new)
	}
}

// unsound are files that must be left as they are: what they are called, how each
// is made at path from a sound one there, and what a person sees.
var unsound = []struct {
	name    string
	make    func(t testing.TB, path string)
	kind    error
	message string
	hint    string
}{
	{"truncated", func(t testing.TB, path string) { resize(t, path, 3*4096) }, ErrCorrupt,
		"preferences PATH: damaged, or not a preference file: database disk image is malformed", hintCorrupt},
	{"truncated within its first page", func(t testing.TB, path string) { resize(t, path, 100) }, ErrCorrupt,
		"preferences PATH: damaged, or not a preference file: database disk image is malformed", hintCorrupt},
	{"not a database", func(t testing.TB, path string) { write(t, path, strings.Repeat("this is a letter to my aunt\n", 500)) }, ErrCorrupt,
		"preferences PATH: damaged, or not a preference file: file is not a database", hintCorrupt},
	{"one line of text", func(t testing.TB, path string) { write(t, path, "{}\n") }, ErrCorrupt,
		"preferences PATH: damaged, or not a preference file: file is not a database", hintCorrupt},
	{"another program's database", func(t testing.TB, path string) {
		unlink(t, path)
		run(t, raw(t, path), "CREATE TABLE bookmarks (url); PRAGMA user_version = 1")
	}, ErrCorrupt, "preferences PATH: damaged, or not a preference file: a database of another program", hintCorrupt},
	{"another program's database without a version", func(t testing.TB, path string) {
		unlink(t, path)
		run(t, raw(t, path), "CREATE TABLE bookmarks (url)")
	}, ErrCorrupt, "preferences PATH: damaged, or not a preference file: a database of another program", hintCorrupt},
	{"from a newer coffer", func(t testing.TB, path string) {
		db := raw(t, path)
		run(t, db, "PRAGMA user_version = 7")
		db.Close()
	}, ErrNewerSchema, "preferences PATH: written by a newer coffer: schema 7, this one knows 1", hintNewer},
	{"a folder", func(t testing.TB, path string) {
		unlink(t, path)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}, ErrCorrupt, "preferences PATH: damaged, or not a preference file: not a regular file", hintCorrupt},
}

func resize(t testing.TB, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func unlink(t testing.TB, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// soundFile makes a preference file of several pages at path.
func soundFile(t testing.TB, path string) {
	t.Helper()
	s := openAt(t, path, Options{})
	reconcileMany(t, s, 200)
	set(t, s, tool("tool_0001"), false)
	s.Close()
}

// content returns what every file in the folder of path holds: name -> content.
func content(t testing.TB, path string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			text, err := os.ReadFile(filepath.Join(filepath.Dir(path), e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			all[e.Name()] = string(text)
		}
	}
	return all
}

func TestUnsoundFileIsLeftAlone(t *testing.T) {
	for _, test := range unsound {
		t.Run(test.name, func(t *testing.T) {
			path := newPath(t)
			soundFile(t, path)
			test.make(t, path)
			before := content(t, path)
			for _, opt := range []Options{{}, {KeepTrying: true}} {
				_, err := Open(t.Context(), path, schemaText(), opt)
				wantError(t, err, path, test.kind, test.message, test.hint)
			}
			equal(t, "files", content(t, path), before)
		})
	}
}

// TestUnsoundFileTakesThePlaceOfASoundOne: the last good snapshot rules, and a
// sound file that comes later is read.
func TestUnsoundFileTakesThePlaceOfASoundOne(t *testing.T) {
	for _, test := range unsound {
		t.Run(test.name, func(t *testing.T) {
			path, bad, good := newPath(t), newPath(t), newPath(t)
			soundFile(t, bad)
			test.make(t, bad)
			set(t, openAt(t, good, Options{}), tool("restored"), true)
			s := openAt(t, path, Options{})
			set(t, s, tool("a"), false)
			last := fresh(t, s)
			w := watchOf(t, s)

			unlink(t, path)
			if err := w.trouble(t); !errors.Is(err, ErrGone) {
				t.Fatalf("trouble %v, want ErrGone", err)
			}
			if err := os.Rename(bad, path); err != nil {
				t.Fatal(err)
			}
			wantError(t, w.trouble(t), path, test.kind, test.message, test.hint)
			got, err := s.Fresh(t.Context())
			if got != last {
				t.Error("the last good snapshot does not rule")
			}
			wantError(t, err, path, test.kind, test.message, test.hint)
			_, err = s.Set(t.Context(), []Change{{tool("b"), true}}, noon)
			wantError(t, err, path, test.kind, test.message, test.hint)

			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			run(t, raw(t, good), "VACUUM INTO '"+path+"'")
			if _, new := w.change(t); new.Len() != 1 {
				t.Fatalf("%d rows, want the one of the file put back", new.Len())
			}
			if _, known := fresh(t, s).Lookup(tool("restored")); !known {
				t.Error("the file put back is not read")
			}
			set(t, s, tool("restored"), false)
		})
	}
}

func TestEmptyFileIsANewOne(t *testing.T) {
	path := newPath(t)
	write(t, path, "")
	s := openAt(t, path, Options{})
	set(t, s, tool("a"), true)
}

// TestLogWithoutItsDatabase: the log may hold choices, and SQLite would delete it.
func TestLogWithoutItsDatabase(t *testing.T) {
	path := newPath(t)
	write(t, path+"-wal", "choices")
	const message = "preferences PATH: damaged, or not a preference file: the database is empty, but its -wal file is not"
	_, err := Open(t.Context(), path, schemaText(), Options{})
	wantError(t, err, path, ErrCorrupt, message, hintCorrupt)
	write(t, path, "")
	_, err = Open(t.Context(), path, schemaText(), Options{})
	wantError(t, err, path, ErrCorrupt, message, hintCorrupt)
	equal(t, "files", content(t, path), map[string]string{"coffer.db": "", "coffer.db-wal": "choices", "coffer.db.lock": ""})
}

// TestSideFilesOfAKilledProcess: with both, with the log alone, and without any.
func TestSideFilesOfAKilledProcess(t *testing.T) {
	for _, test := range []struct {
		name string
		lost []string
		want int
	}{
		{"both left", nil, 2},
		{"index missing", []string{"-shm"}, 2},
		{"index stale", []string{"=-shm"}, 2},
		{"log missing", []string{"-wal"}, 1},
		{"both missing", []string{"-wal", "-shm"}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := newPath(t)
			s := openAt(t, path, Options{})
			set(t, s, tool("kept"), false)
			s.Close() // what the log held is in the database
			victim := start(t, "sibling", path)
			victim.line(t)
			victim.ask(t, "off a")
			victim.cmd.Process.Kill()
			victim.cmd.Wait()
			for _, side := range test.lost {
				if stale, ok := strings.CutPrefix(side, "="); ok {
					write(t, path+stale, string(bytes.Repeat([]byte{0xa5}, 32768)))
					continue
				}
				unlink(t, path+side)
			}
			equal(t, "rows", len(allRows(t, openAt(t, path, Options{}))), test.want)
		})
	}
}

// sound runs SQLite's own check.
func sound(t testing.TB, path string) {
	t.Helper()
	var verdict string
	if err := raw(t, path).QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity_check: %q, %v", verdict, err)
	}
}

func TestDiskFull(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, Options{})
	set(t, s, tool("a"), false)
	last := fresh(t, s)
	// The store's one connection for writing is idle, so this is the one it gets.
	if _, err := s.file.db.ExecContext(t.Context(), "PRAGMA max_page_count = 1"); err != nil {
		t.Fatal(err)
	}
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = strings.Repeat("x", i)
	}
	_, err := s.Reconcile(t.Context(), "fs", []Listed{{Tool, keys}}, true, noon)
	wantError(t, err, path, ErrFull, "preferences PATH: no space left to write it", hintFull)
	if got := fresh(t, s); got != last {
		t.Error("another snapshot although nothing was committed")
	}
}
