package prefs

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// raw opens the database at path as a stranger would.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// definitions returns what sqlite_schema holds: name -> SQL.
func definitions(t testing.TB, db *sql.DB) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := each(t.Context(), db, `SELECT name, ifnull(sql, '') FROM sqlite_schema`, func(rows *sql.Rows) error {
		var name, text string
		err := rows.Scan(&name, &text)
		all[name] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func run(t testing.TB, db *sql.DB, text string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

// TestEveryPastSchemaBecomesTheNewest opens a file of each version, as
// testdata/schema_N.sql has it, and compares it with schema.sql.
func TestEveryPastSchemaBecomesTheNewest(t *testing.T) {
	whole := raw(t, ":memory:")
	whole.SetMaxOpenConns(1)
	run(t, whole, schemaText())
	want := definitions(t, whole)
	for version := range newestVersion(migrations) + 1 {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			path := newPath(t)
			if version > 0 {
				text, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("schema_%d.sql", version)))
				if err != nil {
					t.Fatal(err)
				}
				old := raw(t, path)
				run(t, old, string(text))
				run(t, old, fmt.Sprintf("PRAGMA user_version = %d", version))
				old.Close()
			}
			openAt(t, path, Options{})
			equal(t, "schema", definitions(t, raw(t, path)), want)
		})
	}
}

// TestClimb checks the ladder itself with one that has rungs.
func TestClimb(t *testing.T) {
	const newest = "CREATE TABLE a (x); CREATE TABLE b (x); CREATE TABLE c (x)"
	steps := []string{"CREATE TABLE b (x)", "CREATE TABLE c (x)"}
	for version, start := range []string{"", "CREATE TABLE a (x)", "CREATE TABLE a (x); CREATE TABLE b (x)", newest} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			db := raw(t, ":memory:")
			db.SetMaxOpenConns(1)
			run(t, db, start+fmt.Sprintf("; PRAGMA user_version = %d", version))
			err := transact(t.Context(), db, func(ctx context.Context, tx *sql.Tx) error {
				return climb(ctx, tx, newest, steps)
			})
			if err != nil {
				t.Fatal(err)
			}
			var got int
			if err := db.QueryRow("PRAGMA user_version").Scan(&got); err != nil || got != 3 {
				t.Errorf("user_version %d, %v, want 3", got, err)
			}
			want := map[string]string{"a": "CREATE TABLE a (x)", "b": "CREATE TABLE b (x)", "c": "CREATE TABLE c (x)"}
			equal(t, "schema", definitions(t, db), want)
		})
	}
}

// TestClimbFailsWhole: a step that fails leaves the file as it was.
func TestClimbFailsWhole(t *testing.T) {
	db := raw(t, ":memory:")
	db.SetMaxOpenConns(1)
	run(t, db, "CREATE TABLE a (x); PRAGMA user_version = 1")
	err := transact(t.Context(), db, func(ctx context.Context, tx *sql.Tx) error {
		return climb(ctx, tx, "", []string{"CREATE TABLE b (x); nonsense"})
	})
	if err == nil {
		t.Fatal("no error")
	}
	equal(t, "schema", definitions(t, db), map[string]string{"a": "CREATE TABLE a (x)"})
}

// TestContractOfTheTable pins the six columns that other programs rely on.
func TestContractOfTheTable(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, Options{})
	set(t, s, tool("waits"), false)
	reconcile(t, s, "fs", true, noon, "listed")
	db := raw(t, path)
	var columns []string
	var values [][]any
	err := each(t.Context(), db, `SELECT * FROM mcp_capability_preferences ORDER BY 3`, func(rows *sql.Rows) error {
		columns, _ = rows.Columns()
		row := make([]any, len(columns))
		for i := range row {
			row[i] = new(any)
		}
		err := rows.Scan(row...)
		for i := range row {
			row[i] = *row[i].(*any)
		}
		values = append(values, row)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"resource_id", "capability_type", "capability_key", "enabled", "first_seen_at", "last_seen_at"}
	equal(t, "columns", columns, want)
	const at = "2026-01-02T12:00:00.345Z"
	wantValues := [][]any{{"fs", "tool", "listed", int64(1), at, at}, {"fs", "tool", "waits", int64(0), nil, nil}}
	if !reflect.DeepEqual(values, wantValues) {
		t.Errorf("rows:\n got %v\nwant %v", values, wantValues)
	}
}

// TestTwentyProcessesOpenOneNewFile is the first start of many clients at once.
func TestTwentyProcessesOpenOneNewFile(t *testing.T) {
	const processes = 20
	rounds := 200 // issue 3
	if testing.Short() {
		rounds = 15
	}
	children := make([]*child, processes)
	for i := range children {
		children[i] = start(t, "open", "")
	}
	for range rounds {
		path := newPath(t)
		for _, c := range children {
			c.send(t, path)
		}
		for _, c := range children {
			c.answer(t)
		}
		if got := len(allRows(t, openAt(t, path, Options{}))); got != processes {
			t.Fatalf("%d rows, want one of each of %d processes", got, processes)
		}
	}
	for _, c := range children {
		c.end(t)
	}
}
