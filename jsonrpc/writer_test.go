package jsonrpc_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"coffer/jsonrpc"
)

// record keeps what is written, and each write's size.
type record struct {
	mu     sync.Mutex
	text   bytes.Buffer
	writes int
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes++
	return r.text.Write(p)
}

func (r *record) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Split(strings.TrimSuffix(r.text.String(), "\n"), "\n")
}

// run runs w until the returned function is called, which waits for it.
func run(t testing.TB, w *jsonrpc.Writer) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var task sync.WaitGroup
	task.Go(func() { w.Run(ctx) })
	return func() { cancel(); task.Wait() }
}

// note is a notification that is told from others by its number and size.
func note(number, size int) *jsonrpc.Message {
	return &jsonrpc.Message{Method: "n", Params: fmt.Appendf(nil, `{"n":%d,"x":"%s"}`, number, strings.Repeat("x", size))}
}

// number is the reverse of note.
func number(t testing.TB, line string) int {
	t.Helper()
	n := -1
	if !json.Valid([]byte(line)) {
		t.Fatalf("a broken line: %.200q", line)
	}
	fmt.Sscanf(string(jsonrpc.Lookup([]byte(line), "params", "n")), "%d", &n)
	return n
}

func TestWriterCoalesces(t *testing.T) {
	type post struct {
		key    string
		number int
	}
	const size = 100 // of the padding; a line is some 150
	for _, c := range []struct {
		name  string
		limit int
		posts []post
		want  []int
	}{
		{"no pressure", 10000, []post{{"k", 1}, {"", 2}, {"k", 3}, {"k", 4}}, []int{1, 2, 3, 4}},
		{"pressure", 500, []post{{"k", 1}, {"", 2}, {"k", 3}, {"", 4}}, []int{2, 3, 4}},
		// What a notice announces may be newer than the answer between the two.
		{"never before an answer", 500, []post{{"k", 1}, {"", 2}, {"", 3}, {"k", 4}}, []int{2, 3, 4}},
		{"again and again", 500, []post{{"k", 1}, {"", 2}, {"k", 3}, {"", 4}, {"k", 5}, {"k", 6}}, []int{2, 4, 6}},
		{"each key for itself", 500, []post{{"a", 1}, {"b", 2}, {"", 3}, {"a", 4}, {"b", 5}}, []int{3, 4, 5}},
		{"another key", 500, []post{{"a", 1}, {"", 2}, {"b", 3}}, []int{1, 2, 3}},
		{"messages without a key are never dropped", 500, []post{{"", 1}, {"", 1}, {"", 1}, {"", 1}, {"", 1}}, []int{1, 1, 1, 1, 1}},
		{"the newest of those that came before the pressure", 700, []post{{"k", 1}, {"k", 2}, {"", 3}, {"k", 4}}, []int{1, 3, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out record
			w := jsonrpc.NewWriter(&out, c.limit)
			for _, p := range c.posts {
				w.PostKeyed(p.key, note(p.number, size))
			}
			queued := w.Queued()
			defer run(t, w)()
			w.Drain(t.Context())
			var got []int
			for _, line := range out.lines() {
				got = append(got, number(t, line))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if out.text.Len() != queued || w.Queued() != 0 {
				t.Errorf("%d bytes waited, %d written, %d wait", queued, out.text.Len(), w.Queued())
			}
		})
	}
}

// A big keyed message leaves the queue as a whole.
func TestWriterCoalescesBigMessages(t *testing.T) {
	var out record
	w := jsonrpc.NewWriter(&out, 100)
	for i := range 5 {
		w.PostKeyed("k", note(i, 100<<10))
		w.Post(note(100+i, 100<<10))
	}
	defer run(t, w)()
	w.Drain(t.Context())
	var got []int
	for _, line := range out.lines() {
		got = append(got, number(t, line))
	}
	if want := []int{100, 101, 102, 103, 4, 104}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWriterGathers(t *testing.T) {
	for _, c := range []struct {
		name   string
		post   func(w *jsonrpc.Writer)
		writes int
	}{
		{"small messages", func(w *jsonrpc.Writer) { times(100, func() { w.Post(note(1, 100)) }) }, 1},
		{"small keyed messages", func(w *jsonrpc.Writer) { times(100, func() { w.PostKeyed("k", note(1, 100)) }) }, 1},
		{"small texts", func(w *jsonrpc.Writer) { times(100, func() { w.PostText([]byte(`{"n":1}`)) }) }, 1},
		{"more than a pipe takes", func(w *jsonrpc.Writer) { times(1000, func() { w.Post(note(1, 100)) }) }, 4},
		{"a big one among small ones", func(w *jsonrpc.Writer) { w.Post(note(1, 1)); w.Post(note(2, 1<<20)); w.Post(note(3, 1)) }, 3},
		{"a big text among small ones", func(w *jsonrpc.Writer) {
			w.PostText([]byte("1"))
			w.PostText([]byte(`"` + strings.Repeat("x", 1<<20) + `"`))
			w.PostText([]byte("2"))
		}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out record
			w := jsonrpc.NewWriter(&out, 0)
			defer run(t, w)()
			c.post(w)
			w.Drain(t.Context())
			for _, line := range out.lines() {
				if !json.Valid([]byte(line)) {
					t.Fatalf("a broken line: %.100s", line)
				}
			}
			if out.writes > c.writes {
				t.Errorf("%d writes, want at most %d", out.writes, c.writes)
			}
		})
	}
}

func times(n int, f func()) {
	for range n {
		f()
	}
}

// Nothing is written without a Flush, and one Flush is enough.
func TestWriterFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out record
		w := jsonrpc.NewWriter(&out, 0)
		defer run(t, w)()
		w.Flush()
		w.Post(note(1, 1))
		synctest.Wait()
		if out.writes != 0 {
			t.Errorf("written without a flush")
		}
		w.Flush()
		synctest.Wait()
		if out.writes != 1 || w.Queued() != 0 {
			t.Errorf("%d writes, %d bytes wait", out.writes, w.Queued())
		}
	})
}

// Posts and flushes of many goroutines: each one's messages keep their order,
// and no line is broken.
func TestWriterKeepsOrder(t *testing.T) {
	r, dst := io.Pipe()
	w := jsonrpc.NewWriter(dst, 64<<10)
	stop := run(t, w)
	postFromMany(t, w, 8, 100)
	checkOrder(t, r, 8, 100)
	w.Drain(t.Context())
	stop()
	dst.Close()
}

// postFromMany starts goroutines that each post a number of messages.
func postFromMany(t *testing.T, w *jsonrpc.Writer, goroutines, each int) {
	var tasks sync.WaitGroup
	t.Cleanup(tasks.Wait)
	for g := range goroutines {
		tasks.Go(func() {
			for i := range each {
				size := 10
				if i%50 == g {
					size = 100 << 10
				}
				m := note(g*each+i, size)
				if i%3 == 0 {
					w.PostText(m.Append(nil))
				} else {
					w.Post(m)
				}
				if i%7 == 0 {
					w.Room(t.Context())
				}
				if i%5 == 0 || i == each-1 {
					w.Flush()
				}
			}
		})
	}
}

// checkOrder reads what postFromMany posts.
func checkOrder(t *testing.T, r io.Reader, goroutines, each int) {
	t.Helper()
	in := bufio.NewReader(r)
	next := make([]int, goroutines)
	for range goroutines * each {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		n := number(t, line)
		if g := n / each; n%each != next[g] {
			t.Fatalf("goroutine %d: message %d, want %d", g, n%each, next[g])
		} else {
			next[g]++
		}
	}
}

func TestWriterRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, dst := io.Pipe()
		w := jsonrpc.NewWriter(dst, 1000)
		stop := run(t, w)
		start := time.Now()
		w.Room(t.Context()) // at once
		for w.Queued() < 1000 {
			w.Post(note(1, 100))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		w.Room(ctx)
		if got := time.Since(start); got != time.Second {
			t.Errorf("Room over the limit took %v, want the context's 1s", got)
		}
		cancel()
		go func() {
			time.Sleep(time.Second)
			r.Read(make([]byte, 4096))
		}()
		w.Room(t.Context()) // flushes by itself: nobody else does
		if got := time.Since(start); got != 2*time.Second || w.Queued() != 0 {
			t.Errorf("Room took %v, want 2s, when the reader reads; %d bytes wait", got, w.Queued())
		}
		stop()
		r.Close()
	})
}

// What is being written still counts: one big message that nobody reads must
// not let others fill the memory.
func TestWriterCountsWhatIsBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, dst := io.Pipe()
		w := jsonrpc.NewWriter(dst, 1000)
		stop := run(t, w)
		w.Post(note(1, 1<<20))
		w.Flush()
		synctest.Wait()
		if got := w.Queued(); got < 1<<20 {
			t.Errorf("%d bytes wait", got)
		}
		r.Close()
		stop()
		if got := w.Queued(); got != 0 {
			t.Errorf("dead, and %d bytes wait", got)
		}
	})
}

// Producers that ask for room between two messages bound the memory.
func TestWriterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, producers, most = 64 << 10, 5, 20 << 10
		r, dst := io.Pipe()
		w := jsonrpc.NewWriter(dst, limit)
		stop := run(t, w)
		var tasks sync.WaitGroup
		for range producers {
			tasks.Go(func() {
				for i := range 200 {
					w.Room(t.Context())
					w.Post(note(i, most/2))
					if got := w.Queued(); got > limit+producers*most {
						t.Errorf("%d bytes wait", got)
					}
				}
				w.Flush()
			})
		}
		synctest.Wait() // all wait for room
		in := bufio.NewReader(r)
		for range producers * 200 {
			if _, err := in.ReadSlice('\n'); err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				t.Error(err)
			} else if err != nil {
				in.ReadString('\n')
			}
		}
		tasks.Wait()
		stop()
	})
}
