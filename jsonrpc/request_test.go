package jsonrpc_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"coffer/jsonrpc"
)

// The peer's ids keep their bytes and their type, and differ when those do.
func TestIDsAreEchoed(t *testing.T) {
	ids := []string{
		`0`, `""`, `1`, `"1"`, `-1`, `-0`, `"-1"`, `1000000000000000000000000000000`, `9007199254740993`,
		`"\u0031"`, `"a\/b"`, `"é"`, `"\ud800"`, `" 1"`, `"null"`, `"` + strings.Repeat("x", 5000) + `"`,
	}
	conn, w, h := newConn("")
	for _, id := range ids {
		receive(t, conn, `{"jsonrpc":"2.0","id":`+id+`,"method":"m"}`)
	}
	if got := conn.Incoming(); got != len(ids) {
		t.Fatalf("%d requests, want %d", got, len(ids))
	}
	for i, id := range ids {
		if i%2 == 0 {
			h.got[i].Reply([]byte(`[]`))
			w.expect(t, `{"jsonrpc":"2.0","id":`+id+`,"result":[]}`)
		} else {
			h.got[i].Fail([]byte(`{}`))
			w.expect(t, `{"jsonrpc":"2.0","id":`+id+`,"error":{}}`)
		}
	}
	if got := conn.Incoming(); got != 0 {
		t.Errorf("%d requests left", got)
	}
}

func TestDuplicateID(t *testing.T) {
	conn, w, h := newConn("")
	receive(t, conn, `{"jsonrpc":"2.0","id":1,"method":"first"}`)
	receive(t, conn, `{"jsonrpc":"2.0","id":1,"method":"second"}`)
	receive(t, conn, `{"jsonrpc":"2.0","id":"1","method":"third"}`)
	w.expect(t, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"request id 1 is already in use"}}`)
	if len(h.got) != 2 || h.got[0].Method != "first" || h.got[1].Method != "third" {
		t.Fatalf("%d requests handled", len(h.got))
	}
	h.got[0].Reply([]byte(`1`))
	h.got[1].Reply([]byte(`3`))
	w.expect(t, `{"jsonrpc":"2.0","id":1,"result":1}`, `{"jsonrpc":"2.0","id":"1","result":3}`)
	receive(t, conn, `{"jsonrpc":"2.0","id":1,"method":"again"}`)
	if len(h.got) != 3 {
		t.Error("an id cannot be used again after its answer")
	}
}

func TestCancel(t *testing.T) {
	for _, c := range []struct {
		name  string
		id    string // of the notice
		found bool
	}{
		{"its id", `1`, true},
		{"other type", `"1"`, false},
		{"other id", `2`, false},
		{"none", ``, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, w, h := newConn("")
			receive(t, conn, `{"jsonrpc":"2.0","id":1,"method":"m"}`)
			notice := ""
			h.got[0].OnCancel(func(n []byte) { notice = string(n) })
			if got := conn.Cancel([]byte(c.id), []byte(`{"reason":"r"}`)); got != c.found {
				t.Fatalf("cancelled: %t, want %t", got, c.found)
			}
			if replied := h.got[0].Reply([]byte(`{}`)); replied == c.found {
				t.Errorf("replied: %t", replied)
			}
			if c.found {
				w.expect(t)
				if notice != `{"reason":"r"}` {
					t.Errorf("notice %q", notice)
				}
				if conn.Cancel([]byte(c.id), nil) {
					t.Error("cancelled twice")
				}
			}
		})
	}
}

func TestOnCancelAfterTheEnd(t *testing.T) {
	conn, _, h := newConn("")
	for i, end := range []func(r *jsonrpc.Request){
		func(r *jsonrpc.Request) { conn.Cancel(r.ID, []byte(`{"reason":"r"}`)) },
		func(r *jsonrpc.Request) { r.Reply([]byte(`{}`)) },
	} {
		receive(t, conn, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i))
		r := h.got[i]
		if r.Ended() {
			t.Error("ended too early")
		}
		end(r)
		called, notice := 0, ""
		r.OnCancel(func(n []byte) { called++; notice = string(n) })
		if want := []string{`{"reason":"r"}`, ""}[i]; called != 1 || notice != want || !r.Ended() {
			t.Errorf("called %d times with %q, want once with %q", called, notice, want)
		}
		ctx, cancel := r.Context(t.Context())
		if ctx.Err() == nil {
			t.Error("its context goes on")
		}
		cancel()
	}
}

func TestRequestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, h := newConn("")
		receive(t, conn, `{"jsonrpc":"2.0","id":1,"method":"m"}`)
		ctx, cancel := h.got[0].Context(t.Context())
		defer cancel()
		time.AfterFunc(time.Second, func() { conn.Cancel([]byte(`1`), nil) })
		<-ctx.Done()
		if ctx.Err() != context.Canceled {
			t.Error(ctx.Err())
		}
	})
}

// Cancel, Reply, Fail and Close race: exactly one of them decides, an answer is
// sent if and only if one of the repliers did, and OnCancel if none did.
func TestRequestsEndOnce(t *testing.T) {
	for i := range 300 {
		conn, w, h := newConn("")
		receive(t, conn, `{"jsonrpc":"2.0","id":1,"method":"m"}`)
		r := h.got[0]
		var replies, cancels, told atomic.Int64
		count := func(n *atomic.Int64, won bool) {
			if won {
				n.Add(1)
			}
		}
		var tasks sync.WaitGroup
		tasks.Go(func() { count(&replies, r.Reply([]byte(`{}`))) })
		tasks.Go(func() { count(&replies, r.Fail([]byte(`{}`))) })
		tasks.Go(func() { r.OnCancel(func([]byte) { told.Add(1) }) })
		tasks.Go(func() { count(&cancels, conn.Cancel([]byte(`1`), nil)) })
		tasks.Go(func() { conn.Quiet(t.Context()) })
		if i%2 == 0 {
			tasks.Go(func() { conn.Close(nil) })
		}
		tasks.Wait()
		if replies.Load() > 1 || cancels.Load() > 1 || replies.Load()+cancels.Load() > 1 || i%2 == 1 && replies.Load()+cancels.Load() == 0 {
			t.Fatalf("%d replies and %d cancellations", replies.Load(), cancels.Load())
		}
		if got := int64(len(w.sent)); got != replies.Load() {
			t.Fatalf("%d answers sent, %d replies accepted", got, replies.Load())
		}
		if replies.Load() == 0 && told.Load() != 1 {
			t.Fatalf("cancelled, and OnCancel called %d times", told.Load())
		}
		if !r.Ended() || conn.Incoming() != 0 {
			t.Fatal("not ended")
		}
	}
}

func TestBatches(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":%d,"method":"m"}`
	one, two := fmt.Sprintf(call, 1), fmt.Sprintf(call, 2)
	const note = `{"jsonrpc":"2.0","method":"n"}`
	const invalid = `{"jsonrpc":"2.0","error":{"code":-32600,"message":"not a JSON-RPC 2.0 message"}}`
	for _, c := range []struct {
		name  string
		batch string
		ends  string // what happens to the requests, in order: reply, fail or cancel
		want  []string
	}{
		{"one request", `[` + one + `]`, "r1", []string{`[{"jsonrpc":"2.0","id":1,"result":{}}]`}},
		{"two requests, the second is faster", `[` + one + `,` + two + `]`, "r2 f1", []string{`[{"jsonrpc":"2.0","id":2,"result":{}},{"jsonrpc":"2.0","id":1,"error":{}}]`}},
		{"not before all are there", `[` + one + `,` + two + `]`, "r2", nil},
		{"with a notification", `[` + note + `,` + one + `]`, "r1", []string{`[{"jsonrpc":"2.0","id":1,"result":{}}]`}},
		{"only notifications", `[` + note + `,` + note + `]`, "", nil},
		{"one cancelled", `[` + one + `,` + two + `]`, "c1 r2", []string{`[{"jsonrpc":"2.0","id":2,"result":{}}]`}},
		{"the last one cancelled", `[` + one + `,` + two + `]`, "r1 c2", []string{`[{"jsonrpc":"2.0","id":1,"result":{}}]`}},
		{"all cancelled", `[` + one + `,` + two + `]`, "c1 c2", nil},
		{"invalid elements", `[1,{},` + note + `]`, "", []string{`[` + invalid + `,` + invalid + `]`}},
		{"an invalid element beside a request", `[[],` + one + `]`, "r1", []string{`[` + invalid + `,{"jsonrpc":"2.0","id":1,"result":{}}]`}},
		{"an id twice", `[` + one + `,` + one + `]`, "r1", []string{`[{"jsonrpc":"2.0","error":{"code":-32600,"message":"request id 1 is already in use"}},{"jsonrpc":"2.0","id":1,"result":{}}]`}},
		{"a response that nobody waits for", `[{"jsonrpc":"2.0","id":9,"result":{}}]`, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, w, h := newConn("")
			elements, ok := jsonrpc.Batch([]byte(c.batch))
			if !ok {
				t.Fatal("no batch")
			}
			conn.ReceiveBatch(elements, nil)
			for _, r := range h.got {
				if !r.InBatch() {
					t.Error("a request does not know that it came in a batch")
				}
			}
			for end := range strings.FieldsSeq(c.ends) {
				id := end[1:]
				for _, r := range h.got {
					if string(r.ID) != id {
						continue
					}
					switch end[0] {
					case 'r':
						r.Reply([]byte(`{}`))
					case 'f':
						r.Fail([]byte(`{}`))
					case 'c':
						conn.Cancel([]byte(id), nil)
					}
				}
			}
			w.expect(t, c.want...)
		})
	}
}

// A batch that its handler answers at once is still one array.
func TestBatchAnsweredAtOnce(t *testing.T) {
	w := &wire{}
	conn := jsonrpc.NewConn(w, &echo{[]byte(`{}`)}, "")
	elements, _ := jsonrpc.Batch([]byte(`[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]`))
	conn.ReceiveBatch(elements, nil)
	w.expect(t, `[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}}]`)
}

// A batch carries answers to our calls, too.
func TestBatchOfAnswers(t *testing.T) {
	conn, w, _ := newConn("")
	var first, second answers
	conn.Start(&jsonrpc.Call{Method: "m", Done: first.done})
	conn.Start(&jsonrpc.Call{Method: "m", Done: second.done})
	w.sent = nil
	elements, _ := jsonrpc.Batch([]byte(`[{"jsonrpc":"2.0","id":2,"result":2},{"jsonrpc":"2.0","id":1,"result":1}]`))
	conn.ReceiveBatch(elements, nil)
	first.expect(t, "1")
	second.expect(t, "2")
	w.expect(t)
}

// The answers of one batch come from many goroutines.
func TestBatchRaces(t *testing.T) {
	const n = 50
	conn, w, h := newConn("")
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `,{"jsonrpc":"2.0","id":%d,"method":"m"}`, i)
	}
	elements, _ := jsonrpc.Batch([]byte("[" + text.String()[1:] + "]"))
	conn.ReceiveBatch(elements, nil)
	var tasks sync.WaitGroup
	for i, r := range h.got {
		tasks.Go(func() {
			if i%5 == 0 {
				conn.Cancel(r.ID, nil)
			}
			r.Reply([]byte(`{}`))
		})
	}
	tasks.Wait()
	if len(w.sent) != 1 {
		t.Fatalf("%d arrays", len(w.sent))
	}
	if got, _ := jsonrpc.Elements([]byte(w.sent[0])); len(got) != n-n/5 {
		t.Errorf("%d answers, want %d", len(got), n-n/5)
	}
}
