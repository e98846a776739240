package upstream

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"coffer/jsonrpc"
)

// A notification reaches the server before the request that was sent after it,
// and a cancellation after its request.
func TestHTTPOrder(t *testing.T) { synctest.Test(t, testHTTPOrder) }

func testHTTPOrder(t *testing.T) {
	f := newHandler()
	var log []string
	var mu sync.Mutex
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, what)
	}
	called, cancelled := make(chan struct{}), make(chan struct{})
	f.when("notifications/roots/list_changed", func(w writer, _ *request, m *message) {
		time.Sleep(100 * time.Millisecond) // whatever does not wait for this has overtaken it by then
		note("notice " + string(m.Params))
		w.WriteHeader(http.StatusAccepted)
	})
	f.when("tools/call", func(_ writer, r *request, _ *message) {
		note("call")
		close(called)
		<-r.Context().Done()
	})
	f.when("notifications/cancelled", func(w writer, _ *request, m *message) {
		note("cancelled")
		w.WriteHeader(http.StatusAccepted)
		close(cancelled)
	})
	c := overPipes(t, f, newProxy())
	c.Notify("notifications/roots/list_changed", []byte(`{"n":1}`))
	c.Notify("notifications/roots/list_changed", []byte(`{"n":2}`))
	r, _ := call(c.server, "tools/call", `{}`)
	soon(t, called, "call")
	r.Cancel(nil)
	soon(t, cancelled, "cancellation")
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(log, ", "); got != `notice {"n":1}, notice {"n":2}, call, cancelled` {
		t.Errorf("got %s", got)
	}
	if first := f.seen[1].m; first.Method != "notifications/initialized" {
		t.Errorf("the second message is %s", first.Method)
	}
}

// A cancellation does not overtake its request, however long that takes to
// be written.
func TestHTTPCancellationWaitsForItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHandler()
		read, cancelled, answered := make(chan struct{}), make(chan struct{}), make(chan struct{})
		f.when("notifications/cancelled", func(writer, *request, *message) { close(cancelled) })
		c := overPipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength > 1<<20 {
				<-read
			}
			f.ServeHTTP(w, r)
		}), newProxy())
		big := &jsonrpc.Call{Method: "tools/call", Params: []byte(`"` + strings.Repeat("x", 2<<20) + `"`), Done: func(jsonrpc.Answer) { close(answered) }}
		c.rpc.Start(big)
		synctest.Wait() // it is being written
		c.Notify("notifications/cancelled", []byte(`{"requestId":`+string(c.rpc.ID(big.Number))+`}`))
		synctest.Wait()
		f.count(t, "notifications/cancelled", 0)
		close(read)
		soon(t, cancelled, "cancellation")
		soon(t, answered, "answer")
	})
}

// A call that is cancelled before it could leave is not sent at all.
func TestHTTPCancelledBeforeItLeft(t *testing.T) {
	f := newFake(t)
	held, release, cancelled := make(chan struct{}), make(chan struct{}), make(chan struct{})
	f.when("notifications/roots/list_changed", func(w writer, _ *request, _ *message) {
		close(held)
		<-release
	})
	f.when("notifications/cancelled", func(writer, *request, *message) { close(cancelled) })
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	c := connected(t, s)
	c.Notify("notifications/roots/list_changed", nil)
	soon(t, held, "notice")
	r, _ := call(s, "tools/call", `{}`)
	r.Cancel(nil)
	soon(t, cancelled, "cancellation")
	close(release)
	works := make(chan struct{})
	f.when("tools/call", func(w writer, _ *request, m *message) { close(works); reply(w, m, `{}`) })
	answer(t, s)
	soon(t, works, "later call")
	f.count(t, "tools/call", 1)
}

func TestHTTPCancelCutsThePOST(t *testing.T) {
	f := newFake(t)
	called, cut := make(chan struct{}), make(chan struct{})
	f.when("tools/call", func(_ writer, r *request, _ *message) {
		close(called)
		<-r.Context().Done()
		close(cut)
	})
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	connected(t, s)
	r, _ := call(s, "tools/call", `{}`)
	soon(t, called, "call")
	r.Cancel([]byte(`{"requestId":"theirs","reason":"enough"}`))
	soon(t, cut, "end of the POST")
}

// A server that does not acknowledge notifications loses their order only.
func TestHTTPUnacknowledgedNotice(t *testing.T) {
	f := newFake(t)
	f.when("notifications/initialized", func(_ writer, r *request, _ *message) { <-r.Context().Done() })
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	works(t, s)
	began := time.Now()
	for range 5 {
		works(t, s)
	}
	if took := time.Since(began); took > orderWait {
		t.Errorf("further calls took %v", took)
	}
}

func TestHTTPStop(t *testing.T) {
	f := newFake(t)
	called := make(chan struct{})
	f.when("tools/call", func(_ writer, r *request, _ *message) { close(called); <-r.Context().Done() })
	f.when("DELETE", func(_ writer, r *request, _ *message) { <-r.Context().Done() }) // stop must not wait for it long
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	c := connected(t, s)
	_, a := call(s, "tools/call", `{}`)
	soon(t, called, "call")
	began := time.Now()
	var both sync.WaitGroup
	both.Go(func() { c.link.stop(politely) })
	both.Go(func() { c.link.stop(promptly) })
	both.Wait()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("stop took %v", took)
	}
	if a := soon(t, a, "answer"); a.Err == nil {
		t.Errorf("got %+v", a)
	}
	f.count(t, "DELETE", 1)
	ended := make(chan jsonrpc.Answer, 1)
	late := &jsonrpc.Call{Method: "tools/call", Done: func(a jsonrpc.Answer) { ended <- a }}
	c.rpc.Start(late)
	if a := soon(t, ended, "answer"); !errors.Is(a.Err, jsonrpc.ErrNotSent) {
		t.Errorf("a call on a stopped link ends with %v", a.Err)
	}
}

// The last words before the end are not lost: cancellations above all.
func TestHTTPStopDeliversNotices(t *testing.T) {
	f := newFake(t)
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	c := connected(t, s)
	for range 10 {
		c.Notify("notifications/roots/list_changed", nil)
	}
	c.link.stop(politely)
	f.count(t, "notifications/roots/list_changed", 10)
	f.count(t, "DELETE", 1)
}
