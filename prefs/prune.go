package prefs

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// PruneOptions say which rows Prune deletes.
type PruneOptions struct {
	// UnseenBefore: only rows that were not listed since. A row that was never
	// listed counts from the time when a person set it. Zero: however lately
	// listed, which demands a Server.
	UnseenBefore time.Time
	Server       string // only this server's; empty: every server's
	All          bool   // rows that a person set, too
	DryRun       bool   // delete nothing
}

// errPruneAll guards against a call that would clear the file.
var errPruneAll = errors.New("prune needs an age or a server")

// Prune deletes rows and returns those it deleted, or with DryRun would delete,
// sorted by server, type and key. Unless All is set it keeps every row that a
// person set, and every row that was never listed.
func (s *Store) Prune(ctx context.Context, opt PruneOptions) ([]Row, error) {
	if opt.UnseenBefore.IsZero() && opt.Server == "" {
		return nil, errPruneAll
	}
	if opt.DryRun {
		var doomed []Row
		err := s.read(ctx, func(ctx context.Context, db *sql.DB) (err error) {
			doomed, err = prunable(ctx, db, opt)
			return err
		})
		return doomed, err
	}
	var doomed []Row
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if doomed, err = prunable(ctx, tx, opt); err != nil {
			return err
		}
		return remove(ctx, tx, doomed)
	})
	if err != nil {
		return nil, err
	}
	return doomed, nil
}

// prunable returns the rows that opt picks.
func prunable(ctx context.Context, q querier, opt PruneOptions) ([]Row, error) {
	return rows(ctx, q, `
		WHERE (?1 = '' OR p.resource_id = ?1)
			AND (?2 OR c.set_at IS NULL AND p.last_seen_at IS NOT NULL)
			AND (?3 IS NULL OR ifnull(ifnull(p.last_seen_at, c.set_at), '') < ?3)`,
		opt.Server, opt.All, stampOf(opt.UnseenBefore))
}

// remove deletes rows; what is known of a person's choice goes with each.
func remove(ctx context.Context, tx *sql.Tx, doomed []Row) error {
	for _, r := range doomed {
		_, err := tx.ExecContext(ctx, `
			DELETE FROM mcp_capability_preferences
			WHERE resource_id = ? AND capability_type = ? AND capability_key = ?`,
			r.Server, r.Type, r.Key.Key)
		if err != nil {
			return err
		}
	}
	return nil
}
