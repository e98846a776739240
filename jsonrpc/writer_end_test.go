package jsonrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"coffer/jsonrpc"
)

func TestWriterDies(t *testing.T) {
	for _, c := range []struct {
		name string
		size int
	}{{"small", 10}, {"big", 1 << 20}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, dst := io.Pipe()
				r.Close()
				w := jsonrpc.NewWriter(dst, 100)
				if w.Err() != nil {
					t.Error("dead before the first write")
				}
				stop := run(t, w)
				defer stop()
				w.Post(note(1, c.size))
				w.Drain(t.Context()) // ends with the stream
				<-w.Dead()
				if !errors.Is(w.Err(), io.ErrClosedPipe) {
					t.Errorf("error %v", w.Err())
				}
				w.Post(note(2, 1000)) // nobody minds
				w.PostText([]byte("{}"))
				w.Flush()
				w.Room(t.Context())
				if got := w.Queued(); got != 0 {
					t.Errorf("%d bytes wait for a dead stream", got)
				}
			})
		})
	}
}

// Run ends with its context whatever the reader does: a net.Pipe has
// deadlines, an io.Pipe stands for a terminal, which has none.
func TestRunEndsWithItsContext(t *testing.T) {
	cause := errors.New("session ended")
	for _, c := range []struct {
		name string
		pipe func() (io.Closer, io.Writer)
	}{
		{"deadline", func() (io.Closer, io.Writer) { a, b := net.Pipe(); return a, b }},
		{"no deadline", func() (io.Closer, io.Writer) { r, w := io.Pipe(); return r, w }},
	} {
		for _, size := range []int{0, 10, 1 << 20} {
			t.Run(fmt.Sprint(c.name, " ", size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, dst := c.pipe()
					defer r.Close()
					w := jsonrpc.NewWriter(dst, 100)
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(time.Second, func() { cancel(cause) })
					if size > 0 {
						w.Post(note(1, size))
						w.Flush()
					}
					w.Run(ctx)
					if !errors.Is(w.Err(), cause) {
						t.Errorf("error %v, want the context's", w.Err())
					}
					w.Drain(t.Context())
				})
			})
		}
	}
}
