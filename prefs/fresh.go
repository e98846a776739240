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

// check makes the last snapshot current. The caller has the turn.
func (s *Store) check() error {
	if err := s.settle((*file).moved); err != nil {
		return err
	}
	err := explain(s.path, s.reload())
	if err != nil && !errors.Is(err, ErrBusy) { // a new connection may fare better
		s.file.close()
		s.file = nil
		s.noteTrouble(err)
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
		s.file.letGo(s.ctx)
		s.file = nil
		s.trouble = trouble{}
	}
	if s.trouble.stands(s.path) {
		return s.trouble.err
	}
	f, err := opener{path: s.path, schema: s.schema, create: s.create, vfs: s.opt.vfs}.open(s.ctx)
	if err != nil {
		s.noteTrouble(err)
		return err
	}
	s.file, s.create = f, false
	return nil
}

// reload loads a snapshot if anybody has committed since the last time, and keeps
// it if it differs from the one before.
func (s *Store) reload() error {
	// The version first: a commit between the two is then loaded once more,
	// and never missed.
	version, err := s.file.dataVersion(s.ctx)
	if err != nil || version == s.file.seen {
		return err
	}
	snapshot, err := load(s.ctx, s.file.conn)
	if err != nil {
		return err
	}
	s.file.seen = version
	if !snapshot.equal(s.Last()) {
		s.last.Store(snapshot)
	}
	return nil
}

// trouble is the last failed attempt at the file. The zero value is none.
type trouble struct {
	err  error
	at   time.Time
	file os.FileInfo // what was at the path after the attempt; nil: nothing
}

func (s *Store) noteTrouble(err error) {
	info, _ := os.Stat(s.path)
	s.trouble = trouble{err: err, at: time.Now(), file: info}
}

// stands reports whether another attempt would be too early.
func (t trouble) stands(path string) bool {
	if t.err == nil || time.Since(t.at) > retryAfter {
		return false
	}
	info, _ := os.Stat(path)
	if info == nil || t.file == nil {
		return info == t.file
	}
	return os.SameFile(info, t.file) && info.Size() == t.file.Size() && info.ModTime().Equal(t.file.ModTime())
}
