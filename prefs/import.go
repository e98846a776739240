package prefs

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

// Imported is what an import did.
type Imported struct {
	Added   []Key // had no row
	Changed []Key // had a row with the other flag
	Removed []Key // are not in the import; only with replace
}

// Import stores rows, all or none; what Rows returned comes back as it was.
//
// Each row's flag is stored as it is given: an import is a choice of the person
// who makes it, the latest one. Without replace, rows that are not given stay; a
// row that was there keeps the earlier FirstSeen, the later LastSeen, and a SetAt
// if either has one; one whose flag changes counts as set by a person, at now if
// the import does not say when. With replace, the file holds exactly rows.
func (s *Store) Import(ctx context.Context, rows []Row, replace bool, now time.Time) (Imported, error) {
	given := make(map[Key]bool, len(rows))
	for i, r := range rows {
		if err := r.validate(); err != nil {
			return Imported{}, fmt.Errorf("row %d: %w", i+1, err)
		}
		if given[r.Key] {
			return Imported{}, fmt.Errorf("row %d: %s %s %q is given twice", i+1, r.Server, r.Type, r.Key.Key)
		}
		given[r.Key] = true
	}
	var done Imported
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		done = Imported{}
		before, err := done.add(ctx, tx, rows, replace, now)
		if err != nil || !replace {
			return err
		}
		return done.remove(ctx, tx, before, given)
	})
	if err != nil {
		return Imported{}, err
	}
	return done, nil
}

// validate reports what the tables would refuse, in words for a person.
func (r Row) validate() error {
	if r.Server == "" {
		return fmt.Errorf("%s %q has no server", r.Type, r.Key.Key)
	}
	if _, err := ParseType(string(r.Type)); err != nil {
		return err
	}
	if r.FirstSeen.IsZero() != r.LastSeen.IsZero() {
		return fmt.Errorf("%s %s %q has one seen time without the other", r.Server, r.Type, r.Key.Key)
	}
	return nil
}

// add stores the given rows, notes in done what that changes, and returns the rows
// that were there before.
func (done *Imported) add(ctx context.Context, tx *sql.Tx, given []Row, replace bool, now time.Time) ([]Row, error) {
	before, err := rows(ctx, tx, "")
	if err != nil {
		return nil, err
	}
	old := make(map[Key]Row, len(before))
	for _, r := range before {
		old[r.Key] = r
	}
	for _, r := range given {
		was, known := old[r.Key]
		switch {
		case !known:
			done.Added = append(done.Added, r.Key)
		case was.Enabled != r.Enabled:
			done.Changed = append(done.Changed, r.Key)
		}
		if known && !replace {
			r = merge(was, r, now)
		}
		if err := put(ctx, tx, r); err != nil {
			return nil, err
		}
	}
	return before, nil
}

// remove deletes the rows of before that were not given, and notes them in done.
func (done *Imported) remove(ctx context.Context, tx *sql.Tx, before []Row, given map[Key]bool) error {
	doomed := slices.DeleteFunc(before, func(r Row) bool { return given[r.Key] })
	for _, r := range doomed {
		done.Removed = append(done.Removed, r.Key)
	}
	return remove(ctx, tx, doomed)
}

// merge returns the row that stands when r is imported over was.
func merge(was, r Row, now time.Time) Row {
	if r.SetAt.IsZero() && r.Enabled != was.Enabled {
		r.SetAt = now
	}
	if r.SetAt.Before(was.SetAt) {
		r.SetAt = was.SetAt
	}
	if r.FirstSeen.IsZero() || !was.FirstSeen.IsZero() && was.FirstSeen.Before(r.FirstSeen) {
		r.FirstSeen = was.FirstSeen
	}
	if r.LastSeen.Before(was.LastSeen) {
		r.LastSeen = was.LastSeen
	}
	return r
}

// put stores r as it is.
func put(ctx context.Context, tx *sql.Tx, r Row) error {
	_, err := tx.ExecContext(ctx, `
		INSERT INTO mcp_capability_preferences VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET enabled = excluded.enabled,
			first_seen_at = excluded.first_seen_at, last_seen_at = excluded.last_seen_at`,
		r.Server, r.Type, r.Key.Key, r.Enabled, stampOf(r.FirstSeen), stampOf(r.LastSeen))
	if err != nil {
		return err
	}
	if !r.SetAt.IsZero() {
		return markChosen(ctx, tx, r.Key, r.SetAt)
	}
	_, err = tx.ExecContext(ctx, `
		DELETE FROM mcp_capability_choices
		WHERE resource_id = ? AND capability_type = ? AND capability_key = ?`,
		r.Server, r.Type, r.Key.Key)
	return err
}
