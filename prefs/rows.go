package prefs

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

// Filter picks rows; its zero value picks all.
type Filter struct {
	Server string // only this server's; empty: every server's
	Types  []Type // only these; none: every type
}

// Rows returns the rows that filter picks, sorted by server, type and key.
func (s *Store) Rows(ctx context.Context, filter Filter) ([]Row, error) {
	var all []Row
	err := s.read(ctx, func(ctx context.Context, db *sql.DB) (err error) {
		all, err = rows(ctx, db, `WHERE ?1 = '' OR p.resource_id = ?1`, filter.Server)
		return err
	})
	if len(filter.Types) > 0 {
		all = slices.DeleteFunc(all, func(r Row) bool { return !slices.Contains(filter.Types, r.Type) })
	}
	return all, err
}

// Get returns the row of k; known is false if there is none.
func (s *Store) Get(ctx context.Context, k Key) (row Row, known bool, err error) {
	err = s.read(ctx, func(ctx context.Context, db *sql.DB) (err error) {
		row, known, err = get(ctx, db, k)
		return err
	})
	return row, known, err
}

// Match returns the keys of one server and type that match glob whole, sorted.
// In glob * stands for any text, slashes and colons included, ? for any one
// character, [abc], [a-z] and [^a-z] for one character in or not in a set; [*],
// [?] and [[] stand for these characters themselves. Case counts. A set that is
// not closed matches nothing.
func (s *Store) Match(ctx context.Context, server string, t Type, glob string) ([]Key, error) {
	var keys []Key
	err := s.read(ctx, func(ctx context.Context, db *sql.DB) error {
		keys = nil
		return each(ctx, db, `
			SELECT capability_key FROM mcp_capability_preferences
			WHERE resource_id = ? AND capability_type = ? AND capability_key GLOB ?
			ORDER BY capability_key`,
			func(rows *sql.Rows) error {
				k := Key{Server: server, Type: t}
				err := rows.Scan(&k.Key)
				keys = append(keys, k)
				return err
			}, server, t, glob)
	})
	return keys, err
}

// get returns the row of k.
func get(ctx context.Context, q querier, k Key) (row Row, known bool, err error) {
	found, err := rows(ctx, q, `
		WHERE p.resource_id = ? AND p.capability_type = ? AND p.capability_key = ?`, k.Server, k.Type, k.Key)
	if err != nil || len(found) == 0 {
		return Row{}, false, err
	}
	return found[0], true, nil
}

// rows returns the rows that a WHERE clause over p, the preferences, and c, the
// choices, picks, sorted by key.
func rows(ctx context.Context, q querier, where string, args ...any) ([]Row, error) {
	var all []Row
	err := each(ctx, q, `
		SELECT p.resource_id, p.capability_type, p.capability_key, p.enabled,
			p.first_seen_at, p.last_seen_at, c.set_at
		FROM mcp_capability_preferences p LEFT JOIN mcp_capability_choices c
			USING (resource_id, capability_type, capability_key) `+where+`
		ORDER BY p.resource_id, p.capability_type, p.capability_key`,
		func(rows *sql.Rows) error {
			var r Row
			err := rows.Scan(&r.Server, &r.Type, &r.Key.Key, &r.Enabled,
				(*stamp)(&r.FirstSeen), (*stamp)(&r.LastSeen), (*stamp)(&r.SetAt))
			all = append(all, r)
			return err
		}, args...)
	return all, err
}

// stampLayout is how a time stands in the file, always in UTC.
const stampLayout = "2006-01-02T15:04:05.000Z"

// stamp is a time as the file has it; the zero time is NULL.
type stamp time.Time

// Scan implements sql.Scanner.
func (s *stamp) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*s = stamp{}
		return nil
	case string:
		t, err := time.Parse(time.RFC3339, v)
		*s = stamp(t.UTC())
		return err
	default:
		return fmt.Errorf("a time of type %T", value)
	}
}

// stampOf returns t as a statement's argument.
func stampOf(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(stampLayout)
}
