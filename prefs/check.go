package prefs

import (
	"context"
	"database/sql"
	"errors"
)

// Check reads the whole file and returns an error of the kind ErrCorrupt if it
// is not sound.
func (s *Store) Check(ctx context.Context) error {
	return s.read(ctx, func(ctx context.Context, db *sql.DB) error {
		var found string
		// It answers ok, or one row for each fault, of which the first will do.
		if err := db.QueryRowContext(ctx, `PRAGMA integrity_check(1)`).Scan(&found); err != nil {
			return err
		}
		if found != "ok" {
			return &Error{Path: s.path, Kind: ErrCorrupt, Detail: errors.New(found)}
		}
		return nil
	})
}
