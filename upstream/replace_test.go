package upstream

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// TestReplaceFileLeftovers: a write removes what killed writers left of the file
// and of its backups, and nothing else.
func TestReplaceFileLeftovers(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "mcp.json")
	others := []string{".mcp.json.1.tmp", ".mcp.json.coffer-1", ".other.json.coffer-1.tmp", "mcp.json.coffer-1.tmp", "mcp.json.X.coffer-backup"}
	ours := []string{".mcp.json.coffer-1.tmp", ".mcp.json.20260101T000000Z.coffer-replaced.coffer-23.tmp"}
	for _, name := range slices.Concat(others, ours) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := ReplaceFile(path, nil, []byte("whole")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	want := append(others, "mcp.json")
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("there are %q (%v), want %q", got, err, want)
	}
}

// TestReplaceFileUnlocked: of writers that share no lock, which take each other's
// temporary files for leftovers, each succeeds or is told to begin anew.
func TestReplaceFileUnlocked(t *testing.T) {
	const writers, writes = 4, 20
	path := filepath.Join(t.TempDir(), "config.json")
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			text := []byte{byte('a' + i)}
			for done := 0; done < writes; {
				old, err := ReadFile(path)
				if err == nil {
					err = ReplaceFile(path, old, text)
				}
				switch {
				case err == nil:
					done++
				case !errors.Is(err, ErrChanged):
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
