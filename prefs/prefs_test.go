package prefs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVar); role {
	case "":
	case unprivilegedRole:
		schemaText() // while we may read it
		dropPrivileges()
	default:
		play(role)
	}
	goleak.VerifyTestMain(m)
}

// noon is when things happen in tests that do not care when.
var noon = time.Date(2026, 1, 2, 12, 0, 0, int(345*time.Millisecond), time.UTC)

// schemaText returns schema.sql.
var schemaText = sync.OnceValue(func() string {
	text, err := os.ReadFile("../schema.sql")
	if err != nil {
		panic(err)
	}
	return string(text)
})

// newPath returns a path for a preference file in a new folder.
func newPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "coffer.db")
}

// openAt opens path for the rest of the test.
func openAt(t testing.TB, path string, opt Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, schemaText(), opt)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func fresh(t testing.TB, s *Store) *Snapshot {
	t.Helper()
	snapshot, err := s.Fresh(t.Context())
	if err != nil {
		t.Fatalf("Fresh: %v", err)
	}
	return snapshot
}

func set(t testing.TB, s *Store, k Key, enabled bool) {
	t.Helper()
	if _, err := s.Set(t.Context(), []Change{{k, enabled}}, noon); err != nil {
		t.Fatalf("Set %v: %v", k, err)
	}
}

func reconcile(t testing.TB, s *Store, server string, autoEnable bool, now time.Time, keys ...string) Diff {
	t.Helper()
	diff, err := s.Reconcile(t.Context(), server, []Listed{{Tool, keys}}, autoEnable, now)
	if err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	return diff
}

func allRows(t testing.TB, s *Store) []Row {
	t.Helper()
	rows, err := s.Rows(t.Context(), Filter{})
	if err != nil {
		t.Fatalf("Rows: %v", err)
	}
	return rows
}

func tool(name string) Key { return Key{Server: "fs", Type: Tool, Key: name} }

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func TestOpenMakesFoldersAndFilesPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state of Zoë?", "100%#1", "coffer.db")
	s := openAt(t, path, Options{})
	set(t, s, tool("a"), false)
	for name, want := range map[string]os.FileMode{
		filepath.Dir(filepath.Dir(path)): 0o700, filepath.Dir(path): 0o700,
		path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600, path + ".lock": 0o600,
	} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s: mode %o, want %o", name, got, want)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 4 {
		t.Errorf("%d files beside the database (%v), want 4: the path was not taken as it is", len(entries), err)
	}
}

func TestOpenFollowsALinkToTheFile(t *testing.T) {
	path := newPath(t)
	set(t, openAt(t, path, Options{}), tool("a"), false)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, link, Options{})
	want, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "path", s.Path(), want)
	enabled, known := s.Last().Lookup(tool("a"))
	equal(t, "lookup", []bool{enabled, known}, []bool{false, true})
}

func TestClosed(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	set(t, s, tool("a"), true)
	last := fresh(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := s.Fresh(t.Context())
	if got != last || !errors.Is(err, ErrClosed) {
		t.Errorf("Fresh after Close: %p %v, want %p and ErrClosed", got, err, last)
	}
	if _, err := s.Rows(t.Context(), Filter{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Rows after Close: %v, want ErrClosed", err)
	}
}

func TestEndOfContextIsHeeded(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	if _, err := s.Set(ctx, []Change{{tool("a"), true}}, noon); !errors.Is(err, over) {
		t.Errorf("Set: %v, want the cause", err)
	}
	equal(t, "rows", allRows(t, s), []Row(nil))
}

func TestParseType(t *testing.T) {
	for _, want := range []Type{Tool, Resource, ResourceTemplate, Prompt} {
		if got, err := ParseType(string(want)); got != want || err != nil {
			t.Errorf("ParseType(%q) = %q, %v", want, got, err)
		}
	}
	_, err := ParseType("tools")
	want := `unknown type "tools": tool, resource, resource_template or prompt`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestNilSnapshotKnowsNothing(t *testing.T) {
	var s *Snapshot
	enabled, known := s.Lookup(tool("a"))
	refresh, reconnect := s.Refresh("fs")
	if enabled || known || refresh != 0 || reconnect != 0 || s.Len() != 0 {
		t.Error("a nil snapshot knows something")
	}
}
