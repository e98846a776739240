// Package prefs keeps what a person switched on or off, in one SQLite file that
// every coffer on the machine shares.
//
// A Store is one open preference file. Readers never touch the tables: they ask
// for a Snapshot, an immutable copy of all preferences. Fresh proves it current
// in a few microseconds before each request; Watch tells an idle process that a
// sibling committed. Commands and the reconciler write through Set, Reconcile,
// Import, Prune and BumpRefresh, each one transaction.
//
// Where something goes wrong with the file the last good snapshot stays in
// force, and the error says what is wrong (an *Error, with a hint). The file is
// never overwritten: a damaged one, one from a newer coffer and one that was
// deleted while in use are reported and left alone.
//
// Times that callers hand in are kept to the millisecond, in UTC.
package prefs

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"
)

// Type is the kind of a capability.
type Type string

// The four kinds, as they stand in the file and on the command line.
const (
	Tool             Type = "tool"
	Resource         Type = "resource"
	ResourceTemplate Type = "resource_template"
	Prompt           Type = "prompt"
)

// ParseType returns the Type that text names, or an error that lists them all.
func ParseType(text string) (Type, error) {
	switch t := Type(text); t {
	case Tool, Resource, ResourceTemplate, Prompt:
		return t, nil
	default:
		return "", fmt.Errorf("unknown type %q: tool, resource, resource_template or prompt", text)
	}
}

// Key names one capability of one upstream.
type Key struct {
	Server string // the server's key in the config
	Type   Type
	Key    string // the upstream's own name or URI, never the merged name
}

// Row is one stored preference.
type Row struct {
	Key
	Enabled   bool
	FirstSeen time.Time // when it was first listed; zero: not listed yet
	LastSeen  time.Time // when it was last listed; zero exactly when FirstSeen is
	SetAt     time.Time // when a person last chose Enabled; zero: nobody did
}

// Options say how Open and the store it returns deal with trouble.
type Options struct {
	// BusyTimeout is how long Open, the writing methods and the reading ones
	// (Rows, Get, Match) wait while another process holds the file locked; zero
	// means ten seconds. Fresh and Watch never wait longer than 50 ms.
	BusyTimeout time.Duration

	// KeepTrying makes Open return a store although the file cannot be opened
	// now, for a reason that may pass (locked, not writable, disk full). Last is
	// nil until a later Fresh or Watch succeeds. A file that is damaged or from
	// a newer coffer fails even so.
	KeepTrying bool

	vfs string // tests: another of SQLite's file systems; empty: the platform's
}

// defaultBusyTimeout suits commands: long enough for any honest writer.
const defaultBusyTimeout = 10 * time.Second

// Store is one open preference file. It is safe for concurrent use.
type Store struct {
	path   string // absolute, symbolic links resolved
	schema string // the newest schema, whole
	opt    Options

	// ctx is the one Open was given, without its end: a statement that can be
	// interrupted costs a goroutine and may leave its connection unusable, and
	// none of ours runs longer than lockWait plus its own work.
	ctx context.Context

	// turn holds one token while somebody checks, opens or lets go of the file.
	// It guards the fields down to result. It is never closed.
	turn    chan struct{}
	file    *file   // the open file; nil while there is none
	create  bool    // no file was open yet, so a missing one may be made
	closed  bool    // Close was called
	trouble trouble // why file is nil, and when that was last tried
	checked int64   // the number of the last check that ended
	result  error   // what that check ended with

	begun  atomic.Int64             // how many checks have begun
	last   atomic.Pointer[Snapshot] // the last good snapshot; nil: none yet
	opened *Snapshot                // what Open loaded; nil: nothing
}

// Open opens the preference file at path, creating it (mode 0600, missing
// folders 0700) or migrating it as needed; schema is the newest schema, whole.
// Errors are *Error: see the sentinels for what callers can tell apart.
func Open(ctx context.Context, path, schema string, opt Options) (*Store, error) {
	if opt.BusyTimeout <= 0 {
		opt.BusyTimeout = defaultBusyTimeout
	}
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	s := &Store{
		path:   path,
		schema: schema,
		opt:    opt,
		ctx:    context.WithoutCancel(ctx),
		turn:   make(chan struct{}, 1),
		create: true,
	}
	err = s.patiently(ctx, s.firstCheck)
	s.opened = s.Last()
	if err == nil || opt.KeepTrying && mayPass(err) {
		return s, nil
	}
	s.Close() // what went wrong first is what counts
	return nil, err
}

// resolve returns path as an absolute path without symbolic links: SQLite puts
// its side files beside the file that a link leads to, and so must the watch.
func resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("preferences %s: %w", path, err)
	}
	if target, err := filepath.EvalSymlinks(abs); err == nil {
		return target, nil
	}
	return abs, nil // not there yet: Open will make it
}

// Path returns the absolute path of the preference file.
func (s *Store) Path() string { return s.path }

// Last returns the last good snapshot without any I/O; nil if there was none.
func (s *Store) Last() *Snapshot { return s.last.Load() }

// Close lets go of the file. Methods called afterwards return ErrClosed; Last
// and Fresh still return the last good snapshot.
func (s *Store) Close() error {
	s.turn <- struct{}{}
	defer s.give()
	s.closed = true
	if s.file == nil {
		return nil
	}
	err := s.file.close()
	s.file = nil
	return err
}
