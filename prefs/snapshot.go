package prefs

import (
	"context"
	"database/sql"
	"maps"
)

// Snapshot is an immutable copy of all preferences and refresh generations. Two
// snapshots of one store are the same pointer exactly while nothing in them
// differs. A nil *Snapshot is one that knows nothing.
type Snapshot struct {
	enabled     map[Key]bool          // every stored row -> its flag
	generations map[string]generation // server -> its counters; absent: zero
}

// generation counts what people asked of one server.
type generation struct {
	refresh, reconnect int64
}

// NewSnapshot returns a Snapshot with these rows, and with the servers' numbers
// of requests for a fresh list and for a fresh connection. No file is behind
// it: it is for stores in memory, as tests have.
func NewSnapshot(enabled map[Key]bool, refresh, reconnect map[string]int64) *Snapshot {
	s := &Snapshot{enabled: maps.Clone(enabled), generations: map[string]generation{}}
	for server, n := range refresh {
		s.generations[server] = generation{refresh: n}
	}
	for server, n := range reconnect {
		g := s.generations[server]
		g.reconnect = n
		s.generations[server] = g
	}
	return s
}

// Lookup returns what is stored for k; known is false, and enabled too, if
// nothing is.
func (s *Snapshot) Lookup(k Key) (enabled, known bool) {
	if s == nil {
		return false, false
	}
	enabled, known = s.enabled[k]
	return enabled, known
}

// Refresh returns how often people asked for a fresh list of server and how
// often for a fresh connection to it. A number that has grown between two
// snapshots is a new request; numbers never shrink while the file lives.
func (s *Snapshot) Refresh(server string) (refresh, reconnect int64) {
	if s == nil {
		return 0, 0
	}
	g := s.generations[server]
	return g.refresh, g.reconnect
}

// Len returns the number of preferences.
func (s *Snapshot) Len() int {
	if s == nil {
		return 0
	}
	return len(s.enabled)
}

// equal reports whether nothing that a caller can see differs.
func (s *Snapshot) equal(other *Snapshot) bool {
	return s != nil && other != nil &&
		maps.Equal(s.enabled, other.enabled) && maps.Equal(s.generations, other.generations)
}

// load reads a snapshot. A commit between its two statements is no harm: it
// moves data_version, so the next check loads again.
func load(ctx context.Context, conn *sql.Conn) (*Snapshot, error) {
	s := &Snapshot{enabled: map[Key]bool{}, generations: map[string]generation{}}
	err := each(ctx, conn, `SELECT resource_id, capability_type, capability_key, enabled FROM mcp_capability_preferences`,
		func(rows *sql.Rows) error {
			var k Key
			var enabled bool
			err := rows.Scan(&k.Server, &k.Type, &k.Key, &enabled)
			s.enabled[k] = enabled
			return err
		})
	if err != nil {
		return nil, err
	}
	err = each(ctx, conn, `SELECT resource_id, refresh, reconnect FROM mcp_refresh_generations`,
		func(rows *sql.Rows) error {
			var server string
			var g generation
			err := rows.Scan(&server, &g.refresh, &g.reconnect)
			s.generations[server] = g
			return err
		})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// querier is what *sql.DB, *sql.Conn and *sql.Tx have in common here.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// each calls row for every row that query yields, and stops at its first error.
func each(ctx context.Context, q querier, query string, row func(*sql.Rows) error, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
