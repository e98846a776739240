package prefs

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// longestPause bounds the pauses between attempts at a locked file.
	longestPause = 25 * time.Millisecond
	// lettingGo is how long coffers that run may take to notice that the database
	// was deleted, and to empty its log: see letGo.
	lettingGo = 10 * pollEvery
)

// patiently calls try until it meets with anything but a lock, for as long as
// the store's BusyTimeout and ctx allow.
func (s *Store) patiently(ctx context.Context, try func() error) error {
	begun := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, longestPause) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := try()
		wait := time.Duration(0)
		switch {
		case errors.Is(err, ErrBusy):
			wait = s.opt.BusyTimeout
		case errors.Is(err, errLogAlone):
			wait = min(lettingGo, s.opt.BusyTimeout)
		}
		if time.Since(begun) >= wait {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)): // siblings should not meet again
		}
	}
}

// read runs work on the database.
func (s *Store) read(ctx context.Context, work func(ctx context.Context, db *sql.DB) error) error {
	return s.patiently(ctx, func() error {
		f, err := s.current(ctx)
		if err != nil {
			return err
		}
		return explain(s.path, work(s.ctx, f.db))
	})
}

// write runs work in one transaction that holds the write lock from its start.
// work may run more than once; only the last time counts.
func (s *Store) write(ctx context.Context, work func(ctx context.Context, tx *sql.Tx) error) error {
	var f *file
	try := func() (err error) {
		if f, err = s.current(ctx); err != nil {
			return err
		}
		err = explain(s.path, transact(s.ctx, f.db, work))
		if f.anyMoved() { // then it changed a file that nobody will look at
			return &Error{Path: s.path, Kind: ErrBusy}
		}
		return err
	}
	err := s.patiently(ctx, try)
	if errors.Is(err, ErrReadOnly) && s.abandon(f) { // it may be writable by now
		err = s.patiently(ctx, try)
	}
	return err
}

// abandon closes f so that the next caller opens the file anew. It reports false
// if f is not the open file.
func (s *Store) abandon(f *file) bool {
	s.turn <- struct{}{}
	defer s.give()
	if f == nil || s.file != f {
		return false
	}
	f.close()
	s.file = nil
	return true
}

// transact runs work in a transaction on db.
func transact(ctx context.Context, db *sql.DB, work func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := work(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}
