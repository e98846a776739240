package prefs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"coffer/tick"
)

const (
	// pollEvery bounds how late a commit is noticed of which no event tells.
	pollEvery = 100 * time.Millisecond
	// tendEvery is the number of polls between looks at where the files are, the side
	// files above all: nobody moves them who does not mean to. Where there are events
	// one tells of it, and listeningTendEvery is enough.
	tendEvery          = 10
	listeningTendEvery = 50
	// secondLook is when the watch looks again after an event: about half of
	// them come before the commit that they tell of can be seen.
	secondLook = time.Millisecond
	// lastingBusy is how long the file must stay locked to be worth a word: a
	// sibling that makes or recovers it takes milliseconds.
	lastingBusy = 500 * time.Millisecond
	// tellAgain is how long the same trouble, come back, is not worth a word.
	tellAgain = time.Minute
)

// Watch calls changed whenever the snapshot differs from the one it last gave to
// changed (at first: from the one that Open loaded), whether Watch or a Fresh
// noticed; old and new are never the same, and old is nil if there was none. It
// calls failed for trouble with the file, once for each distinct trouble and not
// again within a minute. It calls neither after ctx has ended, never both at once,
// and returns when ctx ends and the call that is running has returned.
func (s *Store) Watch(ctx context.Context, changed func(old, new *Snapshot), failed func(error)) {
	w := watch{store: s, changed: changed, failed: failed, told: map[string]time.Time{}}
	w.reported.Store(s.opened)
	events, losses := w.listen()
	if w.folder != nil {
		defer w.folder.Close()
	}
	due := make(chan bool)
	var polling sync.WaitGroup
	polling.Go(func() { w.poll(ctx, due) })
	defer polling.Wait()
	second := time.NewTimer(0) // runs while resting
	defer second.Stop()
	resting := true // do not look before the second look
	owed := false   // an event came meanwhile, and is owed a second look of its own
	for {
		tend := true
		select {
		case <-ctx.Done():
			return
		case tend = <-due:
		case <-losses: // what was lost may have been about us
		case <-second.C:
			if resting = owed; resting {
				owed = false
				second.Reset(secondLook)
			}
		case event := <-events:
			if !w.concerns(event) {
				continue
			}
			if resting {
				owed = true
				continue
			}
			resting = true
			second.Reset(secondLook)
		}
		w.look(ctx, tend)
	}
}

// poll asks for a look, on due, each time that it finds that one is needed; true:
// the side files are due, too. It returns when ctx ends. Most polls find nothing,
// and do so here, without a system call: whatever wakes another thread costs more
// than the poll does.
func (w *watch) poll(ctx context.Context, due chan<- bool) {
	ticker := tick.New(ctx, pollEvery)
	defer ticker.Stop()
	every := tendEvery
	idle := true
	for polls := 1; ticker.Wait(); polls++ {
		tend := polls%every == 0
		if tend || !idle {
			every = tendEvery
			if w.relisten() {
				every = listeningTendEvery
			}
		}
		if idle = w.store.idle(ctx, w.reported.Load(), tend); idle {
			continue
		}
		select {
		case due <- tend:
		case <-ctx.Done():
		}
	}
}

// watch is one Watch call.
type watch struct {
	store    *Store
	folder   *fsnotify.Watcher        // nil: the poll has to do
	reported atomic.Pointer[Snapshot] // the snapshot last given to changed
	changed  func(old, new *Snapshot)
	failed   func(error)
	told     map[string]time.Time // trouble -> when it was last there
	busy     time.Time            // since when the file is locked; zero: it is not
}

// listen starts watching the folder: its events, and word of events lost. The file
// itself will not do: commits go to the log, and the log is deleted and made anew.
func (w *watch) listen() (<-chan fsnotify.Event, <-chan error) {
	if !mayListen() {
		return nil, nil
	}
	folder, err := fsnotify.NewWatcher()
	if err != nil {
		w.tell(fmt.Errorf("watching for changes of preferences: %w; looking every %v instead", err, pollEvery))
		return nil, nil
	}
	w.folder = folder
	w.relisten()
	return folder.Events, folder.Errors
}

// mayListen reports whether a watch of the folder leaves its files alone. Where
// fsnotify builds on kqueue it opens each of them, and closing one drops SQLite's
// locks on it: see file.
func mayListen() bool { return runtime.GOOS == "linux" || runtime.GOOS == "windows" }

// relisten watches the folder if it is not watched, as after it was deleted. It
// reports whether it was watched all the time.
func (w *watch) relisten() bool {
	if w.folder == nil {
		return false
	}
	if len(w.folder.WatchList()) > 0 {
		return true
	}
	// A folder that is not there is trouble with the file, which look tells.
	w.folder.Add(filepath.Dir(w.store.path))
	return false
}

// concerns reports whether event is about the database and not about some other
// file beside it, such as a log that we write ourselves.
func (w *watch) concerns(event fsnotify.Event) bool {
	name := filepath.Base(event.Name)
	base := filepath.Base(w.store.path)
	return name == base || name == base+"-wal" || name == base+"-shm" ||
		event.Name == filepath.Dir(w.store.path) // it was renamed, or deleted
}

// look reports what is new since the last look, and with tend sees to the side
// files first.
func (w *watch) look(ctx context.Context, tend bool) {
	if ctx.Err() != nil {
		return
	}
	var err error
	if tend {
		err = w.store.tend(ctx)
	}
	snapshot := w.store.Last()
	if err == nil {
		snapshot, err = w.store.Fresh(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	if old := w.reported.Load(); snapshot != old {
		w.reported.Store(snapshot)
		w.changed(old, snapshot)
	}
	switch {
	case !errors.Is(err, ErrBusy):
		w.busy = time.Time{}
	case w.busy.IsZero():
		w.busy = time.Now()
		return
	case time.Since(w.busy) < lastingBusy:
		return
	}
	if err != nil {
		w.tell(err)
	}
}

// tell reports trouble unless it was there within the last minute already.
func (w *watch) tell(err error) {
	text := err.Error()
	last, told := w.told[text]
	w.told[text] = time.Now()
	if !told || time.Since(last) > tellAgain {
		w.failed(err)
	}
}
