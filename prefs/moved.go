package prefs

import (
	"context"
	"os"
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

// letGo closes a file of which a part moved. Of what it does for the next file at
// path nobody could act on a failure; that one is checked as it is opened.
func (f *file) letGo(ctx context.Context) {
	switch {
	case f.frozen:
	case f.moved():
		exclusively(f.path, func() error { return f.clear(ctx) })
	case !sideMoved(f.path+"-shm", f.shm):
		// The log was deleted, and with it would go what only it holds.
		f.emptyLog(ctx)
	}
	f.close()
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
