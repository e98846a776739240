package upstreamtest

import (
	"bytes"
	"io"
	"sync"
)

// outbox is a queue of lines without a bound: a Server never waits for its
// client.
type outbox struct {
	trace func(line []byte) // is given each line before anyone else

	mu      sync.Mutex
	lines   [][]byte      // guarded by mu, as are all below
	readers int           // who is in drain
	busy    int           // lines taken and not yet written by a drain
	closed  bool          // no more lines will be put
	changed chan struct{} // closed and replaced at each change
}

func newOutbox(trace func(line []byte)) *outbox {
	return &outbox{trace: trace, changed: make(chan struct{})}
}

// change makes a change and wakes those who wait for one.
func (o *outbox) change(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
	close(o.changed)
	o.changed = make(chan struct{})
}

func (o *outbox) put(line []byte) {
	o.trace(line)
	o.change(func() { o.lines = append(o.lines, line) })
}

func (o *outbox) close() { o.change(func() { o.closed = true }) }

// wait waits until ready, which is called with mu held, or stop is closed; it
// reports which.
func (o *outbox) wait(stop <-chan struct{}, ready func() bool) bool {
	for {
		o.mu.Lock()
		if ready() {
			o.mu.Unlock()
			return true
		}
		changed := o.changed
		o.mu.Unlock()
		select {
		case <-changed:
		case <-stop:
			return false
		}
	}
}

// drain writes lines to w until the outbox is closed and empty, or stop is
// closed. When w fails, the rest is lost.
func (o *outbox) drain(w io.Writer, stop <-chan struct{}) {
	o.change(func() { o.readers++ })
	defer o.change(func() { o.readers-- })
	for {
		var line []byte
		more := o.wait(stop, func() bool {
			if len(o.lines) > 0 {
				line, o.lines = o.lines[0], o.lines[1:]
				o.busy++
			}
			return line != nil || o.closed
		})
		if !more || line == nil {
			return
		}
		if _, err := w.Write(append(bytes.Clone(line), '\n')); err != nil {
			w = io.Discard
		}
		o.change(func() { o.busy-- })
	}
}

// flush waits until every line has been written, if anybody writes them.
func (o *outbox) flush() {
	o.wait(nil, func() bool { return o.readers == 0 || o.busy == 0 && len(o.lines) == 0 })
}
