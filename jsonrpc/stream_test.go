package jsonrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"coffer/jsonrpc"
)

// peer is one end of a conversation under test.
type peer struct {
	*jsonrpc.Stream
	requests
	bad     []string
	batches bool
	answer  func(r *jsonrpc.Request) // nil: the test answers
	idles   int
}

func newPeer(r io.Reader, w io.Writer, opts jsonrpc.StreamOptions) *peer {
	p := &peer{}
	opts.Bad = func(line []byte, err error) { p.bad = append(p.bad, fmt.Sprintf("%s: %v", line, err)) }
	opts.Idle = func() { p.idles++; p.Out.Flush() }
	opts.Batches = func() bool { return p.batches }
	p.Stream = jsonrpc.NewStream(r, w, p, opts)
	return p
}

func (p *peer) HandleRequest(r *jsonrpc.Request) {
	if p.answer != nil {
		p.answer(r)
		return
	}
	p.requests.HandleRequest(r)
}

func (p *peer) HandleNotification(method string, params []byte) {
	if method == "cancel" {
		p.Cancel(params, nil)
		return
	}
	p.requests.HandleNotification(method, params)
}

// serve serves text to the end and returns what came back.
func (p *peer) serve(t *testing.T, out *record) string {
	t.Helper()
	stop := run(t, p.Out)
	defer stop()
	if err := p.Serve(t.Context()); err != nil {
		t.Error(err)
	}
	p.Out.Drain(t.Context())
	return out.text.String()
}

func pong(r *jsonrpc.Request) { r.Reply([]byte(`{}`)) }

func TestStream(t *testing.T) {
	const ping, answer = `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n"
	for _, c := range []struct {
		name    string
		in      string
		batches bool
		out     string
		bad     []string
		notes   []string
	}{
		{"request", ping + "\n", false, answer, nil, nil},
		{"without newline", ping, false, answer, nil, nil},
		{"CRLF, blanks and a byte-order mark", "\uFEFF" + ping + "\r\n\r\n\n" + ping, false, answer + answer, nil, nil},
		{"notification", `{"jsonrpc":"2.0","method":"n","params":{}}`, false, "", nil, []string{"n {}"}},
		{"noise", "hello\n" + ping + "\n{\"a\":1}\n", false, answer, []string{"hello: not JSON", `{"a":1}: not a JSON-RPC 2.0 message`}, nil},
		{"half a line and the end", ping[:20], false, "", []string{ping[:20] + ": not JSON"}, nil},
		{"answer to nothing", `{"jsonrpc":"2.0","id":1,"result":{}}`, false, "", []string{`{"jsonrpc":"2.0","id":1,"result":{}}: response to no open request`}, nil},
		{"too long", strings.Repeat(" ", 300) + "\n" + ping, false, answer, []string{": message too long"}, nil},
		{"batch where there are none", "[" + ping + "]", false, "", []string{"[" + ping + "]: not a JSON-RPC 2.0 message"}, nil},
		{"batch", "[" + ping + "]\n" + ping, true, "[" + answer[:len(answer)-1] + "]\n" + answer, nil, nil},
		{"empty batch", "[]", true, "", []string{"[]: not a JSON-RPC 2.0 message"}, nil},
		{"broken batch", "[" + ping, true, "", []string{"[" + ping + ": not JSON"}, nil},
		{"no batch, though there are", "12\n" + ping, true, answer, []string{"12: not a JSON-RPC 2.0 message"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := &record{}
			p := newPeer(strings.NewReader(c.in), out, jsonrpc.StreamOptions{MaxMessage: 200})
			p.batches, p.answer = c.batches, pong
			if got := p.serve(t, out); got != c.out {
				t.Errorf("sent %q, want %q", got, c.out)
			}
			if !slices.Equal(p.bad, c.bad) || !slices.Equal(p.notes, c.notes) {
				t.Errorf("bad %q, notes %q; want %q, %q", p.bad, p.notes, c.bad, c.notes)
			}
		})
	}
}

// An answer must go out before the reader waits, whatever line ends stand
// behind the request.
func TestStreamFlushesBeforeItWaits(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\n\n", "\r\n\r\n", "\n \n\t\n", "\n\uFEFF\n", "\n{\"half"} {
		t.Run(fmt.Sprintf("%q", end), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, client := io.Pipe()
				out := &record{}
				p := newPeer(r, out, jsonrpc.StreamOptions{})
				p.answer = pong
				defer run(t, p.Out)()
				go p.Serve(t.Context())
				io.WriteString(client, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+end)
				synctest.Wait()
				if out.text.Len() == 0 {
					t.Error("the reader waits and the answer is not sent")
				}
				client.Close()
			})
		})
	}
}

// What arrives together is answered together.
func TestStreamAnswersABurstInOneWrite(t *testing.T) {
	out := &record{}
	text := strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n", 100)
	p := newPeer(strings.NewReader(text), out, jsonrpc.StreamOptions{})
	p.answer = pong
	if got := strings.Count(p.serve(t, out), "\n"); got != 100 || out.writes != 1 || p.idles > 3 {
		t.Errorf("%d answers in %d writes, idle %d times", got, out.writes, p.idles)
	}
}

// A request that is kept does not change when later messages come.
func TestStreamRequestsKeepTheirBytes(t *testing.T) {
	var in bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&in, `{"jsonrpc":"2.0","id":%d,"method":"m%d","params":{"n":%d}}`+"\n", i, i, i)
	}
	p := newPeer(&in, &record{}, jsonrpc.StreamOptions{})
	p.serve(t, &record{})
	for i, r := range p.got {
		if want := fmt.Sprintf(`id=%d method=m%d params={"n":%d}`, i, i, i); show(&r.Message) != want {
			t.Fatalf("request %d became %s", i, show(&r.Message))
		}
	}
	if len(p.got) != 1000 {
		t.Errorf("%d requests", len(p.got))
	}
}

func TestServeEnds(t *testing.T) {
	boom, cause := errors.New("boom"), errors.New("session ended")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for _, c := range []struct {
		name string
		ctx  context.Context
		in   io.Reader
		want error
	}{
		{"end of file", t.Context(), strings.NewReader(""), nil},
		{"read error", t.Context(), iotest.ErrReader(boom), boom},
		{"context", ended, strings.NewReader("x\nx\n"), cause},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(c.in, &record{}, jsonrpc.StreamOptions{})
			if err := p.Serve(c.ctx); !errors.Is(err, c.want) || len(p.bad) > 0 {
				t.Errorf("Serve = %v, bad %q", err, p.bad)
			}
			if p.idles == 0 {
				t.Error("not idle at the end: what handlers posted stays")
			}
		})
	}
}

// Gate holds the reader before each line.
func TestStreamGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		gates := 0
		p := newPeer(strings.NewReader("1\n2\n3\n"), &record{}, jsonrpc.StreamOptions{Gate: func() { gates++; time.Sleep(time.Second) }})
		p.Serve(t.Context())
		if got := time.Since(start); got != 4*time.Second || gates != 4 || len(p.bad) != 3 {
			t.Errorf("%d gates in %v for %d lines and the end", gates, got, len(p.bad))
		}
	})
}

// A relay's gate is the Room of another stream's Writer. A big message and a
// small one that arrive together must not lock it up: the big one is over the
// limit, and nobody else flushes it.
func TestGateFlushesWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &record{}
		w := jsonrpc.NewWriter(out, 1000)
		defer run(t, w)()
		text := fmt.Sprintf(`{"jsonrpc":"2.0","method":"a","params":"%s"}`+"\n"+`{"jsonrpc":"2.0","method":"b"}`+"\n", strings.Repeat("x", 5000))
		s := jsonrpc.NewStream(strings.NewReader(text), io.Discard, &relay{w}, jsonrpc.StreamOptions{
			Bad: func([]byte, error) {}, Idle: w.Flush, Gate: func() { w.Room(t.Context()) },
		})
		if err := s.Serve(t.Context()); err != nil {
			t.Error(err)
		}
		w.Drain(t.Context())
		if got := len(out.lines()); got != 2 {
			t.Errorf("%d lines relayed", got)
		}
	})
}

// relay posts each notification to another stream.
type relay struct{ to *jsonrpc.Writer }

func (r *relay) HandleRequest(*jsonrpc.Request) {}
func (r *relay) HandleNotification(method string, params []byte) {
	r.to.Post(&jsonrpc.Message{Method: method, Params: params})
}

// Two streams talk in both directions, with many calls at once, cancellations,
// and answers from other goroutines. Each call gets its own answer, once, and
// after the notices that were sent before it.
func TestConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, each = 8, 40
		left, right := net.Pipe()
		a := newPeer(left, left, jsonrpc.StreamOptions{Prefix: "a-"})
		b := newPeer(right, right, jsonrpc.StreamOptions{})
		var answering sync.WaitGroup
		for _, p := range []*peer{a, b} {
			p.answer = func(r *jsonrpc.Request) {
				answering.Go(func() {
					ctx, cancel := r.Context(t.Context())
					defer cancel()
					if bytes.Contains(r.Params, []byte("slow")) {
						<-ctx.Done()
					}
					p.Notify("progress", r.Params)
					r.Reply(r.Params)
					p.Out.Flush()
				})
			}
			defer run(t, p.Out)()
			go p.Serve(t.Context())
		}
		var calling sync.WaitGroup
		for _, p := range []*peer{a, b} {
			for g := range callers {
				calling.Go(func() {
					for i := range each {
						converse(t, p, fmt.Sprintf(`{"n":"%d-%d"}`, g, i))
					}
				})
			}
		}
		calling.Wait()
		answering.Wait()
		synctest.Wait()
		for _, p := range []*peer{a, b} {
			if p.Pending() != 0 || p.Incoming() != 0 || len(p.bad) > 0 {
				t.Errorf("%d pending, %d incoming, bad %q", p.Pending(), p.Incoming(), p.bad)
			}
		}
		left.Close()
		right.Close()
	})
}

// converse makes a call, or one that it cancels, and checks the answer.
func converse(t *testing.T, p *peer, params string) {
	done := make(chan jsonrpc.Answer, 2)
	slow := strings.HasSuffix(params, `3"}`)
	if slow {
		params = `{"slow":` + params + `}`
	}
	call := &jsonrpc.Call{Method: "m", Params: []byte(params), Done: func(a jsonrpc.Answer) {
		p.mu.Lock()
		if !slices.Contains(p.notes, "progress "+params) {
			t.Errorf("the answer to %s came before its notice", params)
		}
		p.mu.Unlock()
		done <- a
	}}
	p.Start(call)
	p.Out.Flush()
	if slow {
		time.Sleep(time.Millisecond)
		if !p.Abandon(call) {
			t.Errorf("%s was answered", params)
		}
		p.Notify("cancel", p.ID(call.Number))
		p.Out.Flush()
		return
	}
	if a := <-done; string(a.Result) != params || a.Err != nil {
		t.Errorf("%s answered by %s, %v", params, a.Result, a.Err)
	}
}
