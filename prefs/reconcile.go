package prefs

import (
	"context"
	"database/sql"
	"time"
)

// Listed is one successful list: the keys of one type that an upstream offers,
// in any order. A key that stands in it twice counts once.
type Listed struct {
	Type Type
	Keys []string
}

// Diff is what a reconcile found.
type Diff struct {
	New  []Key // listed for the first time, in the order of the lists
	Gone []Row // were listed once, of the types asked for, and are not any more
}

// Reconcile records what server listed at now, in one transaction. A new key gets
// a row whose flag is autoEnable; a known one keeps its flag and is seen at now; a
// key that is gone keeps its row. Types that lists does not name are left alone.
func (s *Store) Reconcile(ctx context.Context, server string, lists []Listed, autoEnable bool, now time.Time) (Diff, error) {
	var diff Diff
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		diff = Diff{}
		for _, list := range lists {
			if err := diff.reconcile(ctx, tx, server, list, autoEnable, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Diff{}, err
	}
	return diff, nil
}

// reconcile adds to d what one list changes.
func (d *Diff) reconcile(ctx context.Context, tx *sql.Tx, server string, list Listed, autoEnable bool, now time.Time) error {
	before, err := rows(ctx, tx, `WHERE p.resource_id = ? AND p.capability_type = ?`, server, list.Type)
	if err != nil {
		return err
	}
	// Another process may have listed later and committed sooner: hence max.
	see, err := tx.PrepareContext(ctx, `
		INSERT INTO mcp_capability_preferences VALUES (?1, ?2, ?3, ?4, ?5, ?5)
		ON CONFLICT DO UPDATE SET
			first_seen_at = ifnull(first_seen_at, excluded.first_seen_at),
			last_seen_at = max(ifnull(last_seen_at, ''), excluded.last_seen_at)`)
	if err != nil {
		return err
	}
	defer see.Close()

	unseen := make(map[string]bool, len(before)) // known keys never listed
	gone := make(map[string]bool, len(before))   // known keys not met in list so far
	for _, r := range before {
		gone[r.Key.Key] = true
		unseen[r.Key.Key] = r.FirstSeen.IsZero()
	}
	for _, key := range list.Keys {
		first, known := unseen[key]
		if first || !known {
			d.New = append(d.New, Key{Server: server, Type: list.Type, Key: key})
		}
		unseen[key] = false
		delete(gone, key)
		if _, err := see.ExecContext(ctx, server, list.Type, key, autoEnable, stampOf(now)); err != nil {
			return err
		}
	}
	for _, r := range before {
		if gone[r.Key.Key] && !r.FirstSeen.IsZero() {
			d.Gone = append(d.Gone, r)
		}
	}
	return nil
}
