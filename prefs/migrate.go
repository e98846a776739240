package prefs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/gofrs/flock"
)

// table is in every version of the schema, and so tells our files from others.
const table = "mcp_capability_preferences"

// migrations lead from each past schema to the next: migrations[0] from 1 to 2.
// A new file gets the newest schema whole instead. The number is user_version.
// To change the schema: change schema.sql, append here what makes the old one
// equal to it, and copy the old one to testdata.
var migrations = []string{}

// upgrade brings the database up to date, if it is not. Only then does it take
// the lock beside it: an ordinary start costs three reads.
func (f *file) upgrade(ctx context.Context, o opener) error {
	at, err := f.standing(ctx)
	if err != nil || at.newest && (at.wal || f.frozen) {
		return err
	}
	work := func() error { return migrate(ctx, f.path, f.conn, o.schema, migrations) }
	if o.locked {
		return work()
	}
	err = exclusively(f.path, work)
	if at.newest && errors.Is(err, ErrReadOnly) {
		return nil // good to read, though not in the mode that we prefer
	}
	return err
}

// standing is where a database stands.
type standing struct {
	newest bool // it has the newest schema
	wal    bool // it is in WAL mode
}

// standing reads where the database stands; it is an error if that is not a place
// where a coffer of this version or an older one could have left it.
func (f *file) standing(ctx context.Context) (at standing, err error) {
	var version, tables, ours int
	// One statement, so that a sibling's migration is seen whole or not at all.
	row := f.conn.QueryRowContext(ctx, `
		SELECT (SELECT user_version FROM pragma_user_version), count(*), count(*) FILTER (WHERE name = ?)
		FROM sqlite_schema`, table)
	if err := row.Scan(&version, &tables, &ours); err != nil {
		return at, err
	}
	newest := newestVersion(migrations)
	switch {
	case version > newest:
		return at, &Error{Path: f.path, Kind: ErrNewerSchema,
			Detail: fmt.Errorf("schema %d, this one knows %d", version, newest)}
	case (version == 0) != (tables == 0), version != 0 && ours == 0:
		return at, &Error{Path: f.path, Kind: ErrCorrupt, Detail: errors.New("a database of another program")}
	}
	var mode string
	err = f.conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode)
	return standing{newest: version == newest, wal: mode == "wal"}, err
}

// newestVersion returns the user_version that steps lead to.
func newestVersion(steps []string) int { return 1 + len(steps) }

// exclusively runs work while this process holds the lock beside the file at path.
// Where another has it, that is ErrBusy.
func exclusively(path string, work func() error) error {
	lock := flock.New(path + ".lock") // never removed: that would race with a sibling
	locked, err := lock.TryLock()
	if err != nil {
		return writing(path, err)
	}
	if !locked {
		return &Error{Path: path, Kind: ErrBusy}
	}
	defer lock.Close()
	return work()
}

// migrate puts the database on conn into WAL mode and up to the newest schema. The
// caller has the lock, because the switch to WAL waits for nobody.
func migrate(ctx context.Context, path string, conn *sql.Conn, schema string, steps []string) error {
	var mode string
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return &Error{Path: path, Kind: ErrLocks, Detail: errors.New("it refuses WAL mode")}
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := climb(ctx, tx, schema, steps); err != nil {
		return err
	}
	return tx.Commit()
}

// climb runs what leads from the schema that tx finds to the newest.
func climb(ctx context.Context, tx *sql.Tx, schema string, steps []string) error {
	var version int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	newest := newestVersion(steps)
	todo := []string{schema}
	switch {
	case version >= newest: // a sibling was faster
		return nil
	case version > 0:
		todo = steps[version-1:]
	}
	for _, text := range todo {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("migrating from schema %d: %w", version, err)
		}
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", newest))
	return err
}
