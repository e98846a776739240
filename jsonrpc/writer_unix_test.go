//go:build unix

package jsonrpc_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"coffer/jsonrpc"
)

func osPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// A small message goes out with Flush itself: there is no Run here.
func TestFlushWritesAPipeItself(t *testing.T) {
	r, dst := osPipe(t)
	w := jsonrpc.NewWriter(dst, 0)
	for i := range 100 {
		w.Post(note(i, 10))
		w.Flush()
		if got := w.Queued(); got != 0 {
			t.Fatalf("%d bytes wait", got)
		}
	}
	in := bufio.NewReader(r)
	for i := range 100 {
		line, err := in.ReadString('\n')
		if err != nil || number(t, line) != i {
			t.Fatalf("line %q, %v", line, err)
		}
	}
}

// Nobody reads for a while. Neither Post nor Flush waits, writes that were cut
// in two are put together, and nothing is lost or moved.
func TestPipeThatNobodyReads(t *testing.T) {
	for _, c := range []struct {
		name     string
		n, size  int
		flushAll bool
	}{
		{"small", 1000, 1000, true},
		{"small, in few writes", 1000, 1000, false},
		{"odd sizes", 1000, 777, true},
		{"big", 8, 300 << 10, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, dst := osPipe(t)
			w := jsonrpc.NewWriter(dst, 0)
			stop := run(t, w)
			defer stop()
			for i := range c.n {
				w.Post(note(i, c.size))
				if c.flushAll || i%100 == 99 {
					w.Flush()
				}
			}
			w.Flush()
			if got := w.Queued(); got < c.n*c.size-(128<<10) {
				t.Errorf("only %d bytes wait", got)
			}
			in := bufio.NewReader(r)
			for i := range c.n {
				line, err := in.ReadString('\n')
				if err != nil || number(t, line) != i {
					t.Fatalf("line %.50q, %v; want message %d", line, err, i)
				}
			}
			w.Drain(t.Context())
			if got := w.Queued(); got != 0 {
				t.Errorf("%d bytes wait", got)
			}
		})
	}
}

func TestPipeKeepsOrder(t *testing.T) {
	r, dst := osPipe(t)
	w := jsonrpc.NewWriter(dst, 64<<10)
	defer run(t, w)()
	postFromMany(t, w, 8, 100)
	checkOrder(t, r, 8, 100)
	w.Drain(t.Context())
}

func TestBrokenPipe(t *testing.T) {
	for _, c := range []struct {
		name string
		size int
		full bool // the reader goes while a write waits for it
	}{
		{"small, by Flush", 10, false},
		{"big", 1 << 20, false},
		{"while Run waits", 1 << 20, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, dst := osPipe(t)
			w := jsonrpc.NewWriter(dst, 100)
			defer run(t, w)()
			if !c.full {
				r.Close()
			}
			w.Post(note(1, c.size))
			w.Flush()
			if c.full {
				time.AfterFunc(10*time.Millisecond, func() { r.Close() })
			}
			<-w.Dead()
			if !errors.Is(w.Err(), syscall.EPIPE) {
				t.Errorf("error %v", w.Err())
			}
			w.Room(t.Context())
			w.Drain(t.Context())
		})
	}
}

// Run ends with its context while a write waits for a reader that never reads,
// and the error is the context's.
func TestRunLeavesAFullPipe(t *testing.T) {
	_, dst := osPipe(t)
	w := jsonrpc.NewWriter(dst, 100)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("session ended")
	var task sync.WaitGroup
	task.Go(func() { w.Run(ctx) })
	for range 200 {
		w.Post(note(1, 1000))
		w.Flush()
	}
	cancel(cause)
	task.Wait()
	w.Flush()
	if !errors.Is(w.Err(), cause) {
		t.Errorf("error %v", w.Err())
	}
}

// A file on a disk has no poller: Run writes it.
func TestWriterToAFile(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := jsonrpc.NewWriter(f, 0)
	stop := run(t, w)
	w.Post(note(1, 10))
	w.Drain(t.Context())
	stop()
	f.Seek(0, io.SeekStart)
	text, err := io.ReadAll(f)
	if err != nil || number(t, string(text)) != 1 {
		t.Errorf("file %q, %v", text, err)
	}
}

// A member that is written where it lies goes out with what surrounds it, by
// Flush itself as long as it fits into the pipe.
func TestFlushWritesABigMemberItself(t *testing.T) {
	r, dst := osPipe(t)
	jsonrpc.WidenPipe(dst)
	size := 100 << 10
	if runtime.GOOS != "linux" {
		size = 40 << 10 // where no pipe can be widened
	}
	w := jsonrpc.NewWriter(dst, 0)
	in := bufio.NewReader(r)
	for i := range 10 {
		w.Post(note(i, size))
		w.Flush()
		if got := w.Queued(); got != 0 {
			t.Fatalf("%d bytes wait", got)
		}
		if line, err := in.ReadString('\n'); err != nil || number(t, line) != i || len(line) < size {
			t.Fatalf("line %.50q of %d bytes, %v", line, len(line), err)
		}
	}
}
