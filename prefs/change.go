package prefs

import (
	"context"
	"database/sql"
	"time"
)

// Change is a person's choice about one capability.
type Change struct {
	Key
	Enabled bool
}

// Set stores changes, all or none, in their order, as chosen by a person at now.
// A key that has no row yet gets one that waits for it, without seen times.
// It returns for each change the row that it met, nil where there was none.
func (s *Store) Set(ctx context.Context, changes []Change, now time.Time) ([]*Row, error) {
	var before []*Row
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		before = make([]*Row, len(changes))
		for i, c := range changes {
			row, known, err := get(ctx, tx, c.Key)
			if err != nil {
				return err
			}
			if known {
				before[i] = &row
			}
			if err := choose(ctx, tx, c, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return before, nil
}

// choose stores one change as made by a person.
func choose(ctx context.Context, tx *sql.Tx, c Change, at time.Time) error {
	_, err := tx.ExecContext(ctx, `
		INSERT INTO mcp_capability_preferences (resource_id, capability_type, capability_key, enabled)
		VALUES (?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET enabled = excluded.enabled`,
		c.Server, c.Type, c.Key.Key, c.Enabled)
	if err != nil {
		return err
	}
	return markChosen(ctx, tx, c.Key, at)
}

// markChosen records that a person set the row of k.
func markChosen(ctx context.Context, tx *sql.Tx, k Key, at time.Time) error {
	_, err := tx.ExecContext(ctx, `
		INSERT INTO mcp_capability_choices (resource_id, capability_type, capability_key, set_at)
		VALUES (?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET set_at = excluded.set_at`,
		k.Server, k.Type, k.Key, stampOf(at))
	return err
}

// BumpRefresh asks every running coffer for a fresh list of each server, and with
// reconnect for a fresh connection too: see Snapshot.Refresh.
func (s *Store) BumpRefresh(ctx context.Context, servers []string, reconnect bool) error {
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, server := range servers {
			_, err := tx.ExecContext(ctx, `
				INSERT INTO mcp_refresh_generations (resource_id, refresh, reconnect) VALUES (?, 1, ?)
				ON CONFLICT DO UPDATE SET refresh = refresh + 1, reconnect = reconnect + excluded.reconnect`,
				server, reconnect)
			if err != nil {
				return err
			}
		}
		return nil
	})
}
