package jsonrpc_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"coffer/jsonrpc"
)

// wire is a Sender that keeps what is sent.
type wire struct {
	mu   sync.Mutex
	sent []string
}

func (w *wire) Send(m *jsonrpc.Message, _ *jsonrpc.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, string(m.Append(nil)))
}

// expect checks what has been sent since the last expect.
func (w *wire) expect(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.sent, want) {
		t.Errorf("sent %q, want %q", w.sent, want)
	}
	w.sent = nil
}

// requests is a Handler that leaves the answers to the test.
type requests struct {
	mu    sync.Mutex
	got   []*jsonrpc.Request
	notes []string
}

func (h *requests) HandleRequest(r *jsonrpc.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got = append(h.got, r)
}

func (h *requests) HandleNotification(method string, params []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, method+" "+string(params))
}

func newConn(prefix string) (*jsonrpc.Conn, *wire, *requests) {
	w, h := &wire{}, &requests{}
	return jsonrpc.NewConn(w, h, prefix), w, h
}

func receive(t *testing.T, c *jsonrpc.Conn, text string) bool {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c.Receive(m)
}

// answers keeps how a call ended.
type answers struct {
	mu  sync.Mutex
	got []string
}

func (a *answers) done(got jsonrpc.Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case got.Err != nil:
		a.got = append(a.got, got.Err.Error())
	case got.Error != nil:
		a.got = append(a.got, "error "+string(got.Error))
	default:
		a.got = append(a.got, string(got.Result))
	}
}

func (a *answers) expect(t *testing.T, want ...string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.got, want) {
		t.Errorf("answers %q, want %q", a.got, want)
	}
}

func TestAnswersFindTheirCall(t *testing.T) {
	for _, c := range []struct {
		name   string
		prefix string
		calls  int
		answer string
		want   [2]string // how the first two calls ended
		used   bool
	}{
		{"integer", "", 2, `{"jsonrpc":"2.0","id":1,"result":{"a":1.10}}`, [2]string{`{"a":1.10}`}, true},
		{"the second", "", 2, `{"jsonrpc":"2.0","id":2,"result":null}`, [2]string{"", `null`}, true},
		{"integer echoed as a string", "", 2, `{"jsonrpc":"2.0","id":"1","result":{}}`, [2]string{`{}`}, true},
		{"error", "", 2, `{"jsonrpc":"2.0","id":2,"error":{"code":1}}`, [2]string{"", `error {"code":1}`}, true},
		{"string", "coffer-", 2, `{"jsonrpc":"2.0","id":"coffer-2","result":{}}`, [2]string{"", `{}`}, true},
		{"string without our prefix", "coffer-", 2, `{"jsonrpc":"2.0","id":"2","result":{}}`, [2]string{}, false},
		{"integer where ours are strings", "coffer-", 2, `{"jsonrpc":"2.0","id":2,"result":{}}`, [2]string{}, false},
		{"prefix alone", "coffer-", 2, `{"jsonrpc":"2.0","id":"coffer-","result":{}}`, [2]string{}, false},
		{"never asked", "", 2, `{"jsonrpc":"2.0","id":3,"result":{}}`, [2]string{}, false},
		{"zero", "", 2, `{"jsonrpc":"2.0","id":0,"result":{}}`, [2]string{}, false},
		{"empty", "", 2, `{"jsonrpc":"2.0","id":"","result":{}}`, [2]string{}, false},
		{"negative", "", 2, `{"jsonrpc":"2.0","id":-1,"result":{}}`, [2]string{}, false},
		{"zeros in front", "", 2, `{"jsonrpc":"2.0","id":"01","result":{}}`, [2]string{}, false},
		{"a sign in front", "", 2, `{"jsonrpc":"2.0","id":"+1","result":{}}`, [2]string{}, false},
		{"quotes inside", "", 2, `{"jsonrpc":"2.0","id":"\"1\"","result":{}}`, [2]string{}, false},
		{"too big", "", 2, `{"jsonrpc":"2.0","id":18446744073709551617,"result":{}}`, [2]string{}, false},
		{"error without an id, one call", "", 1, `{"jsonrpc":"2.0","error":{"code":-32700}}`, [2]string{`error {"code":-32700}`}, true},
		{"error with a null id, one call", "coffer-", 1, `{"jsonrpc":"2.0","id":null,"error":{}}`, [2]string{`error {}`}, true},
		{"error without an id, two calls", "", 2, `{"jsonrpc":"2.0","error":{"code":-32700}}`, [2]string{}, false},
		{"error without an id, no call", "", 0, `{"jsonrpc":"2.0","error":{"code":-32700}}`, [2]string{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, _, _ := newConn(c.prefix)
			var ended [2]answers
			for i := range c.calls {
				conn.Start(&jsonrpc.Call{Method: "m", Done: ended[i].done})
			}
			if used := receive(t, conn, c.answer); used != c.used {
				t.Errorf("used: %t, want %t", used, c.used)
			}
			pending := c.calls
			for i, want := range c.want {
				if want == "" {
					ended[i].expect(t)
				} else {
					ended[i].expect(t, want)
					pending--
				}
			}
			if got := conn.Pending(); got != pending {
				t.Errorf("%d calls pending, want %d", got, pending)
			}
			if c.used && receive(t, conn, c.answer) {
				t.Error("the same answer was used twice")
			}
		})
	}
}

func TestCallsOnTheWire(t *testing.T) {
	conn, w, _ := newConn("")
	number := conn.Reserve()
	conn.Start(&jsonrpc.Call{Method: "a", Params: []byte(`{"_meta":{"progressToken":1}}`), Number: number})
	conn.Start(&jsonrpc.Call{Method: "b"})
	conn.Notify("c", nil)
	conn.Notify("d", []byte(`{}`))
	w.expect(t,
		`{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"progressToken":1}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"b"}`,
		`{"jsonrpc":"2.0","method":"c"}`,
		`{"jsonrpc":"2.0","method":"d","params":{}}`)
	conn, w, _ = newConn("coffer-")
	conn.Start(&jsonrpc.Call{Method: "a"})
	w.expect(t, `{"jsonrpc":"2.0","id":"coffer-1","method":"a"}`)
	if got := string(conn.ID(-9223372036854775808)); got != `"coffer--9223372036854775808"` {
		t.Errorf("ID = %s", got)
	}
}

func TestAbandonAndFinish(t *testing.T) {
	conn, _, _ := newConn("")
	var ended answers
	call := &jsonrpc.Call{Method: "m", Done: ended.done}
	if conn.Abandon(call) {
		t.Error("abandoned before it was started")
	}
	conn.Start(call)
	if conn.Waiting(1) != call || conn.Waiting(2) != nil {
		t.Error("Waiting does not find it")
	}
	stranger := &jsonrpc.Call{Method: "m", Number: 1, Done: ended.done}
	if conn.Abandon(stranger) || conn.Finish(stranger, jsonrpc.Answer{}) {
		t.Error("another call with its number took it back")
	}
	if !conn.Abandon(call) || conn.Abandon(call) || conn.Waiting(1) != nil {
		t.Error("not abandoned once")
	}
	if receive(t, conn, `{"jsonrpc":"2.0","id":1,"result":{}}`) || conn.Finish(call, jsonrpc.Answer{}) {
		t.Error("a late answer was used")
	}
	ended.expect(t)

	call = &jsonrpc.Call{Method: "m", Done: ended.done}
	conn.Start(call)
	if !conn.Finish(call, jsonrpc.Answer{Err: errors.New("HTTP 401")}) || conn.Finish(call, jsonrpc.Answer{}) {
		t.Error("not finished once")
	}
	ended.expect(t, "HTTP 401")
}

func TestClose(t *testing.T) {
	for _, c := range []struct {
		name      string
		err       error
		want      string
		afterward string
	}{
		{"with a reason", errors.New("it died"), "it died", "not sent: it died"},
		{"without", nil, "connection closed", "not sent: connection closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, w, h := newConn("")
			var first, second, late answers
			conn.Start(&jsonrpc.Call{Method: "m", Done: first.done})
			conn.Start(&jsonrpc.Call{Method: "m", Done: second.done})
			receive(t, conn, `{"jsonrpc":"2.0","id":"r","method":"ping"}`)
			notice := []byte("none yet")
			h.got[0].OnCancel(func(n []byte) { notice = n })
			w.sent = nil
			conn.Close(c.err)
			conn.Close(errors.New("a second time"))
			first.expect(t, c.want)
			second.expect(t, c.want)
			if !h.got[0].Ended() || notice != nil || h.got[0].Reply([]byte(`{}`)) || conn.Incoming() != 0 || conn.Pending() != 0 {
				t.Errorf("the peer's request was not cancelled: notice %q", notice)
			}
			conn.Start(&jsonrpc.Call{Method: "m", Done: func(a jsonrpc.Answer) {
				if !errors.Is(a.Err, jsonrpc.ErrNotSent) || c.err != nil && !errors.Is(a.Err, c.err) {
					t.Errorf("error %v", a.Err)
				}
				late.done(a)
			}})
			late.expect(t, c.afterward)
			if receive(t, conn, `{"jsonrpc":"2.0","id":1,"result":{}}`) {
				t.Error("an answer was used after Close")
			}
			receive(t, conn, `{"jsonrpc":"2.0","id":"s","method":"ping"}`)
			if len(h.got) != 1 || conn.Incoming() != 0 {
				t.Error("a request was handled after Close")
			}
			w.expect(t)
		})
	}
}

// Whatever races, each call ends exactly once: by an answer, by Close, or by
// Abandon and then not at all.
func TestCallsEndOnce(t *testing.T) {
	for range 50 {
		conn, _, _ := newConn("")
		const n = 64
		var done, abandoned, answered atomic.Int64
		calls := make([]*jsonrpc.Call, n)
		ended := make([]atomic.Int64, n)
		for i := range calls {
			calls[i] = &jsonrpc.Call{Method: "m", Done: func(jsonrpc.Answer) { done.Add(1); ended[i].Add(1) }}
		}
		var tasks sync.WaitGroup
		tasks.Go(func() {
			for _, c := range calls {
				conn.Start(c)
			}
		})
		tasks.Go(func() {
			for i := range n * 4 {
				if conn.Receive(&jsonrpc.Message{ID: conn.ID(int64(i%n + 1)), Result: []byte(`{}`)}) {
					answered.Add(1)
				}
			}
		})
		tasks.Go(func() {
			for i := range n * 4 {
				if c := conn.Waiting(int64(i%n + 1)); c != nil && i%2 == 0 && conn.Abandon(c) {
					abandoned.Add(1)
					ended[i%n].Add(1)
				}
			}
		})
		tasks.Go(func() {
			time.Sleep(20 * time.Microsecond)
			conn.Close(nil)
		})
		tasks.Wait()
		if got := done.Load() + abandoned.Load(); got != n || conn.Pending() != 0 {
			t.Fatalf("%d done, %d abandoned, %d answered, %d pending; want %d in all", done.Load(), abandoned.Load(), answered.Load(), conn.Pending(), n)
		}
		for i := range ended {
			if got := ended[i].Load(); got != 1 {
				t.Fatalf("call %d ended %d times", i, got)
			}
		}
	}
}

// A Sender that cannot deliver says so from within Send.
func TestSenderMayFinishACall(t *testing.T) {
	s := &refusing{}
	s.conn = jsonrpc.NewConn(s, &requests{}, "")
	var ended answers
	s.conn.Start(&jsonrpc.Call{Method: "m", Done: ended.done})
	ended.expect(t, "not sent: full")
}

type refusing struct{ conn *jsonrpc.Conn }

func (s *refusing) Send(_ *jsonrpc.Message, call *jsonrpc.Call) {
	s.conn.Finish(call, jsonrpc.Answer{Err: fmt.Errorf("%w: full", jsonrpc.ErrNotSent)})
}

func TestNotifications(t *testing.T) {
	conn, w, h := newConn("")
	receive(t, conn, `{"jsonrpc":"2.0","method":"a"}`)
	receive(t, conn, `{"jsonrpc":"2.0","method":"b","params":{"x":1}}`)
	if want := []string{"a ", `b {"x":1}`}; !slices.Equal(h.notes, want) {
		t.Errorf("got %q, want %q", h.notes, want)
	}
	w.expect(t)
}

// Quiet returns when the sender has the last answer, not earlier.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowWire{}
		h := &requests{}
		conn := jsonrpc.NewConn(w, h, "")
		start := time.Now()
		conn.Quiet(t.Context()) // nothing to wait for
		for _, id := range []string{"1", "2", "3"} {
			receive(t, conn, `{"jsonrpc":"2.0","id":`+id+`,"method":"m"}`)
		}
		go func() {
			time.Sleep(time.Second)
			conn.Cancel([]byte("1"), nil)
			h.got[1].Fail([]byte(`{}`))
			h.got[2].Reply([]byte(`{}`))
		}()
		conn.Quiet(t.Context())
		if got := time.Since(start); got != 3*time.Second || len(w.sent) != 2 {
			t.Errorf("quiet after %v with %q sent, want both answers after 3s", got, w.sent)
		}
		receive(t, conn, `{"jsonrpc":"2.0","id":4,"method":"m"}`)
		go func() {
			time.Sleep(time.Second)
			conn.Close(nil)
		}()
		conn.Quiet(t.Context())
		if got := time.Since(start); got != 4*time.Second {
			t.Errorf("quiet after %v, want 4s, when Close cancels", got)
		}
	})
}

// slowWire takes a second for each message.
type slowWire struct{ wire }

func (w *slowWire) Send(m *jsonrpc.Message, c *jsonrpc.Call) {
	time.Sleep(time.Second)
	w.wire.Send(m, c)
}
