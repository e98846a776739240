package jsonrpc

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// pipeSize is how many bytes of waiting small messages go into one write:
	// the capacity of a Linux pipe.
	pipeSize = 64 << 10
	// bigBody is the size from which a member is written as it is instead of
	// being copied behind other messages. Copying 10 MB costs more than the
	// two system calls that it saves.
	bigBody = 32 << 10
	// ownWrites is how many writes a Flush makes itself. More are left to Run,
	// or a peer that others keep busy would hold the caller up.
	ownWrites = 4
	// maxVector is how many chunks go into one of them: what stands before a big
	// member, the member, what stands behind it, and the same of a second.
	maxVector = 5
	// DefaultWriteLimit is how many bytes may wait in a Writer before Room
	// blocks.
	DefaultWriteLimit = 8 << 20
)

// Writer puts messages on a byte stream, whole lines in the order of Post,
// several waiting ones in one write. Post and Flush never wait for the stream;
// those that could flood it call Room first.
type Writer struct {
	dst   io.Writer
	try   func([][]byte) (int, error) // one non-blocking write, or nil
	limit int
	wake  chan struct{} // capacity 1: Run has something to write; never closed
	dead  chan struct{} // closed when err is set

	mu    sync.Mutex
	queue []chunk       // guarded by mu, as are all below; queue[first:] waits
	first int           // what has left the queue is not moved up each time
	rest  []chunk       // what has left the queue and is being written
	size  int           // bytes posted and not yet written
	spare [][]byte      // buffers of small chunks, to be used again
	busy  bool          // one goroutine, Flush or Run, is writing
	texts [][]byte      // of rest, for try; not guarded: whoever is busy uses it
	err   error         // what ended the stream
	moved chan struct{} // closed and replaced by nil when bytes have left; made by waiters
}

// chunk is a piece of the stream: small messages in a buffer of ours, or one
// big member of a message where it was found.
type chunk struct {
	text  []byte
	key   string // the small message that it holds may be superseded
	small bool
}

// NewWriter returns a Writer to dst. limit is in bytes; 0 means
// DefaultWriteLimit. Run must be running for anything that dst does not take
// at once.
func NewWriter(dst io.Writer, limit int) *Writer {
	if limit <= 0 {
		limit = DefaultWriteLimit
	}
	return &Writer{dst: dst, try: nonBlocking(dst), limit: limit, wake: make(chan struct{}, 1), dead: make(chan struct{})}
}

// Post queues m. It never waits and reports no error: a dead stream is seen on
// Dead. The message goes out with the next Flush.
func (w *Writer) Post(m *Message) { w.PostKeyed("", m) }

// PostKeyed is Post for a message that makes an older one with the same key
// superfluous. While more than half of the limit is waiting, the older one
// leaves the queue. The new one goes to the end even then: what it announces
// may be newer than an answer that stands between the two.
func (w *Writer) PostKeyed(key string, m *Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if key != "" && w.size > w.limit/2 {
		w.discard(key)
	}
	c := w.last(key)
	before := len(c.text)
	head, body, tail := m.split(c.text)
	if len(body) < bigBody || key != "" {
		c.text = append(append(append(head, body...), tail...), '\n')
		w.size += len(c.text) - before
		return
	}
	c.text = head
	w.size += len(head) - before
	w.postBig(body, tail)
}

// PostText queues a message whose JSON text is ready, on one line and without
// a line end. The text is not copied if it is big and must not change.
func (w *Writer) PostText(text []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if len(text) >= bigBody {
		w.postBig(text, "")
		return
	}
	c := w.last("")
	c.text = append(append(c.text, text...), '\n')
	w.size += len(text) + 1
}

// postBig queues body as it is, and what is left of its line.
func (w *Writer) postBig(body []byte, tail string) {
	w.queue = append(w.queue, chunk{text: body})
	c := w.last("")
	c.text = append(append(c.text, tail...), '\n')
	w.size += len(body) + len(tail) + 1
}

// last returns the chunk at the end of the queue that a small message can be
// appended to. A message with a key has a chunk of its own.
func (w *Writer) last(key string) *chunk {
	if n := len(w.queue); key == "" && n > w.first {
		if c := &w.queue[n-1]; c.small && c.key == "" && len(c.text) < pipeSize-bigBody {
			return c
		}
	}
	c := chunk{key: key, small: true}
	if n := len(w.spare); n > 0 {
		c.text = w.spare[n-1]
		w.spare = w.spare[:n-1]
	}
	w.queue = append(w.queue, c)
	return &w.queue[len(w.queue)-1]
}

// discard removes the newest message with that key.
func (w *Writer) discard(key string) {
	for i := len(w.queue) - 1; i >= w.first; i-- {
		if c := w.queue[i]; c.key == key {
			w.size -= len(c.text)
			w.recycle(c)
			w.queue = slices.Delete(w.queue, i, i+1)
			return
		}
	}
}

// take removes from the queue what is to be written next. Its caller is the one
// that is busy, and the queue is not empty.
func (w *Writer) take() chunk {
	c := w.queue[w.first]
	w.first++
	for c.small && w.first < len(w.queue) {
		next := w.queue[w.first]
		if !next.small || len(c.text)+len(next.text) > pipeSize {
			break
		}
		c.text = append(c.text, next.text...)
		w.recycle(next)
		w.first++
	}
	if rest := len(w.queue) - w.first; rest <= w.first { // so each chunk is moved once or less
		copy(w.queue, w.queue[w.first:])
		clear(w.queue[rest:])
		w.queue, w.first = w.queue[:rest], 0
	}
	return c
}

// recycle keeps the buffer of a chunk that is written. Two are enough: one is
// filled while the other is written. A big keyed message's buffer is let go.
func (w *Writer) recycle(c chunk) {
	if c.small && len(w.spare) < 2 && cap(c.text) <= 2*pipeSize {
		w.spare = append(w.spare, c.text[:0])
	}
}

// Flush starts writing what is queued: at once and by the caller where the
// stream takes it without waiting, else by Run.
func (w *Writer) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy || w.err != nil {
		return
	}
	w.busy = true
	for turn := 0; w.try != nil && turn < ownWrites && w.waiting(); turn++ {
		w.texts = w.texts[:0]
		for len(w.rest) < maxVector && w.waiting() {
			c := w.take()
			w.rest = append(w.rest, c)
			w.texts = append(w.texts, c.text)
		}
		w.mu.Unlock()
		n, err := w.try(w.texts)
		clear(w.texts)
		w.mu.Lock()
		if !w.wrote(n, err) {
			return
		}
		if w.advance(n); len(w.rest) > 0 {
			break
		}
	}
	if len(w.rest) == 0 && !w.waiting() {
		w.busy = false
		return
	}
	w.wake <- struct{}{} // does not block: capacity 1, and only who is busy sends
}

// advance takes from rest the n bytes that are written.
func (w *Writer) advance(n int) {
	done := 0
	for done < len(w.rest) && n >= len(w.rest[done].text) {
		n -= len(w.rest[done].text)
		w.recycle(w.rest[done])
		done++
	}
	w.rest = slices.Delete(w.rest, 0, done)
	if n > 0 {
		w.rest[0].text = w.rest[0].text[n:]
	}
}

func (w *Writer) waiting() bool { return w.first < len(w.queue) }

// Run writes what Flush left until ctx ends or the stream fails. Exactly one
// Run belongs to a Writer. A write that nothing can interrupt, to a terminal
// for instance, may outlive it.
func (w *Writer) Run(ctx context.Context) {
	done := make(chan struct{})
	go w.work(done) // ends with the stream; waited for unless it cannot be freed
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	w.mu.Lock()
	w.fail(context.Cause(ctx))
	w.mu.Unlock()
	if d, ok := w.dst.(interface{ SetWriteDeadline(time.Time) error }); ok && d.SetWriteDeadline(time.Unix(1, 0)) == nil {
		<-done
	}
}

// work is Run's goroutine: it writes when woken. It closes done at its end.
func (w *Writer) work(done chan<- struct{}) {
	defer close(done)
	for {
		select {
		case <-w.dead:
			return
		case <-w.wake:
			w.drain()
		}
	}
}

// drain writes until nothing is queued. Its caller is the one that is busy.
func (w *Writer) drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil {
		if len(w.rest) == 0 {
			if !w.waiting() {
				w.busy = false
				return
			}
			w.rest = append(w.rest, w.take())
		}
		text := w.rest[0].text
		w.mu.Unlock()
		n, err := w.dst.Write(text)
		w.mu.Lock()
		if w.wrote(n, err) {
			w.advance(n)
		}
	}
}

// wrote takes note of a write and wakes those who wait for room or for the end
// of the queue. It reports whether the stream lives.
func (w *Writer) wrote(n int, err error) bool {
	if err != nil {
		w.fail(err)
	}
	if w.err != nil {
		return false
	}
	w.size -= n
	if w.moved != nil {
		close(w.moved)
		w.moved = nil
	}
	return true
}

// fail ends the stream.
func (w *Writer) fail(err error) {
	if w.err != nil {
		return
	}
	w.err = err
	w.queue, w.first, w.rest, w.spare, w.size = nil, 0, nil, nil, 0
	close(w.dead)
}

// Room waits until fewer bytes than the limit are waiting, the stream is dead,
// or ctx ends. A goroutine that relays what others produce calls it between
// two messages, which bounds the queue by the limit and one message each.
func (w *Writer) Room(ctx context.Context) {
	w.wait(ctx, func() bool { return w.size < w.limit })
}

// Drain waits until everything posted is written, the stream is dead, or ctx
// ends.
func (w *Writer) Drain(ctx context.Context) {
	w.wait(ctx, func() bool { return w.size == 0 })
}

// wait flushes and waits until ready, which is called with mu held.
func (w *Writer) wait(ctx context.Context, ready func() bool) {
	for {
		w.mu.Lock()
		if w.err != nil || ready() {
			w.mu.Unlock()
			return
		}
		if w.moved == nil {
			w.moved = make(chan struct{})
		}
		moved := w.moved
		w.mu.Unlock()
		w.Flush() // or it might wait for somebody who waits here, too
		select {
		case <-moved:
		case <-w.dead:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Queued returns the number of bytes that wait.
func (w *Writer) Queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// Dead is closed when the stream can take no more; Err then says why.
func (w *Writer) Dead() <-chan struct{} { return w.dead }

// Err returns what ended the stream, or nil.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
