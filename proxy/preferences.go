package proxy

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"coffer/prefs"
	"coffer/upstream"
)

// Preferences is the store of what a person chose, as the session needs it.
// *prefs.Store is one; if it is an io.Closer it is closed with the session.
type Preferences interface {
	Last() *prefs.Snapshot
	Fresh(ctx context.Context) (*prefs.Snapshot, error)
	Reconcile(ctx context.Context, server string, lists []prefs.Listed, autoEnable bool, now time.Time) (prefs.Diff, error)
	Watch(ctx context.Context, changed func(old, new *prefs.Snapshot), failed func(error))
}

const (
	// openPatience is how long a request waits for the preferences to be opened
	// before the servers' policies decide alone. Opening takes milliseconds
	// unless the file is locked.
	openPatience = 2 * time.Second
	// maxReopenWait is the longest pause between two attempts to open.
	maxReopenWait = 60 * time.Second
	// complainEvery is how long trouble that was logged is not logged again,
	// whoever meets it.
	complainEvery = time.Minute
)

// What trouble with the file means, for the log.
const (
	msgPolicy    = "preferences cannot be read: each server's auto_enable_new_capabilities decides"
	msgLastGood  = "preferences: the last good ones stay in force"
	msgUnwritten = "preferences cannot be written: what servers list is not recorded"
)

// preferences follows the preference file for a session.
type preferences struct {
	s      *Session
	opened chan struct{} // closed when the first attempt to open is over
	fatal  chan error    // capacity 1: the file must not be used or written over

	checked uint64 // the reader's own: Reads of the newest check

	mu     sync.Mutex
	store  Preferences     // guarded by mu: nil until it could be opened
	obeyed *prefs.Snapshot // guarded by mu: the newest one that obey was given

	complaints map[string]time.Time // guarded by mu: error text -> when it was logged
}

func newPreferences(s *Session) *preferences {
	return &preferences{s: s, opened: make(chan struct{}), fatal: make(chan error, 1), complaints: map[string]time.Time{}}
}

// run opens the file and then watches it until ctx ends.
func (p *preferences) run(ctx context.Context) {
	if p.s.opts.Prefs == nil {
		close(p.opened)
		return
	}
	store := p.open(ctx)
	if store == nil {
		return
	}
	store.Watch(ctx, p.changed, func(err error) {
		if store.Last() == nil {
			p.complain(err, msgPolicy)
		} else {
			p.complain(err, msgLastGood)
		}
	})
}

// complain logs trouble with the file and what follows from it, unless the same
// trouble has just been logged.
func (p *preferences) complain(err error, message string) {
	p.mu.Lock()
	last, told := p.complaints[err.Error()]
	again := !told || time.Since(last) > complainEvery
	if again {
		p.complaints[err.Error()] = time.Now()
	}
	p.mu.Unlock()
	if !again {
		return
	}
	event := p.s.log.Warn().Err(err)
	if e, ok := errors.AsType[*prefs.Error](err); ok && e.Hint() != "" {
		event = event.Str("hint", e.Hint())
	}
	event.Msg(message)
}

// open tries to open the file until that works, ctx ends, or the file turns
// out to be one that must be left alone.
func (p *preferences) open(ctx context.Context) Preferences {
	for wait := time.Second; ; wait = min(2*wait, maxReopenWait) {
		store, err := p.s.opts.Prefs(ctx)
		first := !isClosed(p.opened)
		switch {
		case err == nil:
			p.mu.Lock()
			p.store, p.obeyed = store, store.Last()
			p.mu.Unlock()
			if !first {
				p.s.log.Info().Msg("preferences are readable now")
				p.changed(nil, store.Last())
			}
		case errors.Is(err, prefs.ErrCorrupt) || errors.Is(err, prefs.ErrNewerSchema):
			p.fatal <- err
		case first:
			p.complain(err, msgPolicy)
		}
		if first {
			close(p.opened)
		}
		if err == nil {
			return store
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// verdict returns why the file must not be used, if that is so. A session so
// short that the file is still being opened waits for it.
func (p *preferences) verdict(ctx context.Context) error {
	patience := time.NewTimer(openPatience)
	defer patience.Stop()
	select {
	case <-p.opened:
	case <-patience.C:
	case <-ctx.Done():
	}
	select {
	case err := <-p.fatal:
		return err
	default:
		return nil
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (p *preferences) get() Preferences {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.store
}

// close releases the file. Nothing may use p any more.
func (p *preferences) close() {
	if c, ok := p.get().(io.Closer); ok {
		if err := c.Close(); err != nil {
			p.s.log.Debug().Err(err).Msg("closing preferences")
		}
	}
}

// now returns a snapshot that has every choice committed before the request at
// hand was read (design §7). Only the reader calls it. One check serves all
// requests that arrived in one read. ok is false while the file is being
// opened: the request has to wait elsewhere.
func (p *preferences) now() (snap *prefs.Snapshot, ok bool) {
	if !isClosed(p.opened) {
		return nil, false
	}
	store := p.get()
	if store == nil {
		return nil, true
	}
	if reads := p.s.stream.In.Reads(); reads != p.checked {
		p.checked = reads
		snap, _ = store.Fresh(p.s.ctx) // its trouble is Watch's to report
		p.obey(snap)
		return snap, true
	}
	return store.Last(), true
}

// later is now for a goroutine that may wait, which began after the request
// was read.
func (p *preferences) later(ctx context.Context) *prefs.Snapshot {
	patience := time.NewTimer(openPatience)
	defer patience.Stop()
	select {
	case <-p.opened:
	case <-patience.C:
	case <-ctx.Done():
	}
	store := p.get()
	if store == nil {
		return nil
	}
	snap, _ := store.Fresh(ctx) // its trouble is Watch's to report
	p.obey(snap)
	return snap
}

// last returns the newest snapshot without a look at the file.
func (p *preferences) last() *prefs.Snapshot {
	if store := p.get(); store != nil {
		return store.Last()
	}
	return nil
}

// changed acts on a commit of another process, or of ours: a choice may change
// what lists show, a refresh has lists asked anew.
func (p *preferences) changed(before, after *prefs.Snapshot) {
	s := p.s
	told := map[string]bool{}
	for _, k := range upstream.Kinds() {
		for i, spec := range s.roster().all() {
			at := slot{i, k}
			l := s.catalog.newest(at)
			if l == nil || s.notices.failure(at) != nil || told[changedMethods[k]] {
				continue // the client sees nothing of it, or is told anyway
			}
			if !looksAlike(spec, l, before, l, after) {
				told[changedMethods[k]] = true
				s.notices.send(k)
			}
		}
	}
	p.obey(after)
	s.stream.Out.Flush()
}

// obey asks those servers anew for which a person has asked for that since the
// snapshot that it was given last. A request obeys before it is answered, so
// that what follows a refresh is never answered with what was there before.
func (p *preferences) obey(snap *prefs.Snapshot) {
	p.mu.Lock()
	before := p.obeyed
	if snap == nil || snap == before {
		p.mu.Unlock()
		return
	}
	p.obeyed = snap
	p.mu.Unlock()
	if before == nil {
		return
	}
	for i, spec := range p.s.roster().all() {
		was, wasAgain := before.Refresh(spec.Name)
		is, isAgain := snap.Refresh(spec.Name)
		if is > was || isAgain > wasAgain {
			p.s.refresh(i, isAgain > wasAgain)
		}
	}
}
