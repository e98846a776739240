package prefs

import (
	"context"
	"errors"
	"os"
	"time"
)

// moved reports whether path leads to anything but the file that f has open.
func (f *file) moved() bool {
	info, err := os.Stat(f.path)
	if err != nil {
		return true
	}
	return !os.SameFile(info, f.main) || f.frozen && !f.sameContent(info)
}

// sameContent reports whether a frozen file is as it was read.
func (f *file) sameContent(info os.FileInfo) bool {
	return info.Size() == f.main.Size() && info.ModTime().Equal(f.main.ModTime()) && quiet(f.path)
}

// anyMoved is moved for the side files too. Whoever opens the database next would
// use other ones than f, to the harm of both.
func (f *file) anyMoved() bool {
	return f.moved() || sideMoved(f.path+"-wal", f.wal) || sideMoved(f.path+"-shm", f.shm)
}

// sideMoved reports whether a side file was deleted or replaced since it was was.
func sideMoved(path string, was os.FileInfo) bool {
	if was == nil {
		return false
	}
	info, err := os.Stat(path)
	return err != nil || !os.SameFile(info, was)
}

// letGo closes a file of which a part moved. While it returns an error, f is open
// still, and the file at its path must not be opened: SQLite would read that one
// through the log and index of f, a mixture of the two. That passes, since what it
// takes are a sibling that does the same just now, or readers of f. Of all else
// that goes wrong here nobody could make anything: the next file at path is checked
// as it is opened.
func (f *file) letGo(ctx context.Context) error {
	switch {
	case f.frozen:
	case f.moved():
		err := f.clearAlone(ctx)
		if errors.Is(err, ErrBusy) || f.shadows() {
			return &Error{Path: f.path, Kind: ErrBusy}
		}
	case !sideMoved(f.path+"-shm", f.shm):
		// The log was deleted, and with it would go what only it holds.
		f.emptyLog(ctx)
	}
	f.close()
	return nil
}

// clearAlone is clear under the lock. It waits a little for siblings, which take a
// millisecond each: a choice that is in the next file already counts at once.
func (f *file) clearAlone(ctx context.Context) error {
	for begun := time.Now(); ; <-time.After(time.Millisecond) {
		err := exclusively(f.path, func() error { return f.clear(ctx) })
		if !errors.Is(err, ErrBusy) || time.Since(begun) > lockWait {
			return err
		}
	}
}

// shadows reports whether f's log, not empty, lies beside another database.
func (f *file) shadows() bool {
	if f.wal == nil || sideMoved(f.path+"-wal", f.wal) || quiet(f.path) {
		return false
	}
	_, err := os.Stat(f.path)
	return err == nil && f.moved()
}

// clear removes the side files that a database leaves which was itself deleted or
// replaced: SQLite would read the next one at path through them. The caller has
// the lock, so no coffer is making that one just now.
func (f *file) clear(ctx context.Context) error {
	log, err := os.Stat(f.path + "-wal")
	if err != nil || f.wal == nil || !os.SameFile(log, f.wal) {
		return err // they are another's
	}
	if _, err := os.Stat(f.path); err == nil && sideMoved(f.path+"-shm", f.shm) {
		return nil // a database is there, and others may be appending to the log
	}
	if err := f.emptyLog(ctx); err != nil || !quiet(f.path) {
		return err // the log may hold choices still
	}
	return removeSides(f.path)
}

// emptyLog moves what the log holds into the file that it belongs to.
func (f *file) emptyLog(ctx context.Context) error {
	_, err := f.conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}
