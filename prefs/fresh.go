package prefs

import (
	"context"
	"errors"
	"os"
	"time"
)

// retryAfter is how long a file that could not be opened is left alone, unless it
// changes: requests that come meanwhile must not pay for an attempt each.
const retryAfter = 100 * time.Millisecond

// Fresh returns a snapshot that holds every preference committed, by any process,
// before Fresh was called. If nothing visible has changed it is the same pointer
// as before. It is cheap enough to be called for every request: one check serves
// all callers that were waiting when it began, and none that came later.
//
// On an error (an *Error, or the cause of ctx's end while it waited for its turn)
// the snapshot is the last good one, nil if there was none. Watch reports lasting
// trouble once, so a request need not.
func (s *Store) Fresh(ctx context.Context) (*Snapshot, error) {
	begun := s.begun.Load()
	if err := s.take(ctx); err != nil {
		return s.Last(), err
	}
	defer s.give()
	if s.checked <= begun { // else the last check began after this call did
		s.checked = s.begun.Add(1)
		s.result = s.check()
	}
	return s.Last(), s.result
}

// take waits for the turn; give passes it on.
func (s *Store) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Store) give() { <-s.turn }

// firstCheck opens the file and loads the first snapshot.
func (s *Store) firstCheck() error {
	s.turn <- struct{}{}
	defer s.give()
	s.trouble = trouble{}
	return s.check()
}

// current returns the file that is at the path now, opening it if it must.
func (s *Store) current(ctx context.Context) (*file, error) {
	if err := s.take(ctx); err != nil {
		return nil, err
	}
	defer s.give()
	s.trouble = trouble{}
	if err := s.settle((*file).anyMoved); err != nil {
		return nil, err
	}
	return s.file, nil
}

// tend looks whether the file and its side files are where they were, which is
// more than a request has time for.
func (s *Store) tend(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	return s.settle((*file).anyMoved)
}

// idle reports whether certainly nobody has committed since the last check, which
// ended well, and known is the snapshot that it left. With tend it also looks
// whether the files are where they were. It asks nothing of SQLite.
func (s *Store) idle(ctx context.Context, known *Snapshot, tend bool) bool {
	if s.take(ctx) != nil {
		return false
	}
	defer s.give()
	return s.file != nil && s.result == nil && s.Last() == known && s.file.untouched() && !(tend && s.file.anyMoved())
}

// check makes the last snapshot current. The caller has the turn.
func (s *Store) check() error {
	if err := s.settle((*file).moved); err != nil {
		return err
	}
	err := explain(s.path, s.reload())
	if err != nil && !errors.Is(err, ErrBusy) { // a new connection may fare better
		gone := s.file.anyMoved()
		s.file.close()
		s.file = nil
		if gone {
			return &Error{Path: s.path, Kind: ErrBusy} // the next attempt will know more
		}
		return s.noteTrouble(err, look(s.path))
	}
	return err
}

// settle makes s.file the file that is at the path, if moved says that it is not
// or if there is none. The caller has the turn.
func (s *Store) settle(moved func(*file) bool) error {
	if s.closed {
		return &Error{Path: s.path, Kind: ErrClosed}
	}
	if s.file != nil {
		if !moved(s.file) {
			return nil
		}
		if err := s.file.letGo(s.ctx); err != nil {
			return err
		}
		s.file = nil
		s.trouble = trouble{}
	}
	if s.trouble.stands(s.path) {
		return s.trouble.err
	}
	before := look(s.path)
	f, err := opener{path: s.path, schema: s.schema, create: s.create, vfs: s.opt.vfs}.open(s.ctx)
	if err != nil {
		return s.noteTrouble(err, before)
	}
	s.file, s.create = f, false
	return nil
}

// reload loads a snapshot if anybody has committed since the last time, and keeps
// it if it differs from the one before.
func (s *Store) reload() error {
	f := s.file
	if f.untouched() {
		return nil
	}
	// The index first, then the version, then the load: a commit between two of
	// them is then loaded once more, and never missed.
	index, visible := f.lookAtIndex()
	version, err := f.dataVersion(s.ctx)
	if err != nil {
		return err
	}
	if version != f.seen {
		snapshot, err := load(s.ctx, f.conn)
		if err != nil {
			return err
		}
		f.seen = version
		if !snapshot.equal(s.Last()) {
			s.last.Store(snapshot)
		}
	}
	f.seenIndex, f.loaded = index, visible
	return nil
}

// trouble is the last failed attempt at the file. The zero value is none.
type trouble struct {
	err   error
	at    time.Time
	found sight // what was there before and after the attempt
}

// sight is what a look at the path saw: the file and its log, nil where there was
// none. A file that is made, or locked, may change in its log alone.
type sight struct{ main, log os.FileInfo }

func look(path string) (s sight) {
	s.main, _ = os.Stat(path)
	s.log, _ = os.Stat(path + "-wal")
	return s
}

// same reports whether nothing has changed between two looks.
func (s sight) same(other sight) bool {
	return unchanged(s.main, other.main) && unchanged(s.log, other.log)
}

func unchanged(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// noteTrouble remembers an attempt that failed, and returns what to say of it.
// before is what was there before it. What came meanwhile was not tried, so another
// attempt is due at once; and what SQLite says of a file that goes from under it
// is beside the point.
func (s *Store) noteTrouble(err error, before sight) error {
	after := look(s.path)
	if before.same(after) {
		s.trouble = trouble{err: err, at: time.Now(), found: after}
		return err
	}
	s.trouble = trouble{}
	known, ok := errors.AsType[*Error](err)
	if ok && !errors.Is(err, errLogAlone) && (known.Kind == nil || known.Kind == ErrCorrupt || known.Kind == ErrLocks) {
		return &Error{Path: s.path, Kind: ErrBusy}
	}
	return err
}

// stands reports whether another attempt would be too early.
func (t trouble) stands(path string) bool {
	return t.err != nil && time.Since(t.at) <= retryAfter && look(path).same(t.found)
}
