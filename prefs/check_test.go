package prefs

import (
	"database/sql"
	"testing"
)

func TestCheck(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, Options{})
	set(t, s, tool("a"), false)
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	db, err := sql.Open("sqlite3", dsn(path, "", false))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	// What no coffer writes, and no query of ours meets.
	for _, statement := range []string{
		`PRAGMA ignore_check_constraints = ON`,
		`INSERT INTO mcp_refresh_generations VALUES ('fs', -1, 0)`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, s.Check(t.Context()), path, ErrCorrupt,
		"preferences PATH: damaged, or not a preference file: CHECK constraint failed in mcp_refresh_generations", hintCorrupt)
}
