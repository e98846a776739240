package upstream

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// numbered says one event with an id and no wait before a new connection.
const numbered = "retry: 1\nid: %s\ndata:%s\n\n"

func TestHTTPResume(t *testing.T) {
	f := newFake(t)
	var id atomic.Pointer[[]byte]
	f.when("tools/call", func(w writer, _ *request, m *message) {
		id.Store(&m.ID)
		stream(w)(numbered, "a", "") // and ends: "poll me"
	})
	f.when("GET", func(w writer, r *request, _ *message) {
		switch last := r.Header.Get("Last-Event-Id"); last {
		case "":
			w.WriteHeader(http.StatusMethodNotAllowed)
		case "a":
			stream(w)(numbered, "b", ` {"jsonrpc":"2.0","method":"notifications/x"}`)
		case "b":
			if len(f.all("GET")) < 5 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", *id.Load())
		}
	})
	p := newProxy()
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, p)
	if a := answer(t, s); string(a.Result) != `{}` {
		t.Errorf("got %+v", a)
	}
	soon(t, p.notified, "notification")
	f.count(t, "tools/call", 1)
	for _, g := range f.all("GET") {
		if g.header.Get("Mcp-Session-Id") != "s-1" || g.header.Get("Mcp-Protocol-Version") != "2025-11-25" {
			t.Errorf("a GET has %v", g.header)
		}
	}
}

// A call whose stream is lost for good ends, was sent once, and says that it
// may have run.
func TestHTTPStreamLost(t *testing.T) {
	for _, c := range []struct {
		name   string
		begin  func(w writer)
		status int // of a GET with Last-Event-ID
		words  string
	}{
		{"without ids", func(w writer) { stream(w)("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n") }, 0, "ended before the answer"},
		{"without ids, cut", func(w writer) {
			stream(w)("data: {")
			conn, _, _ := w.(http.Hijacker).Hijack()
			conn.Close()
		}, 0, "ended before the answer"},
		{"not to be resumed", func(w writer) { stream(w)(numbered, "a", "") }, http.StatusMethodNotAllowed, "cannot be resumed"},
		{"session gone meanwhile", func(w writer) { stream(w)(numbered, "a", "") }, http.StatusNotFound, "cannot be resumed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			f.when("tools/call", func(w writer, _ *request, _ *message) { c.begin(w) })
			f.when("GET", func(w writer, r *request, _ *message) {
				if r.Header.Get("Last-Event-Id") == "" {
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				w.WriteHeader(c.status)
			})
			s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
			says(t, fails(t, s), c.words, "may have run")
			f.count(t, "tools/call", 1)
			f.when("tools/call", nil)
			works(t, s)
		})
	}
}

// A stream that can be resumed for ever and brings nothing ends the call.
func TestHTTPResumeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHandler()
		f.when("tools/call", func(w writer, _ *request, _ *message) { stream(w)(numbered, "a", "") })
		f.when("GET", func(w writer, r *request, _ *message) {
			if r.Header.Get("Last-Event-Id") == "" {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			stream(w)("")
		})
		c := overPipes(t, f, newProxy())
		began := time.Now()
		_, err := c.Call(t.Context(), "tools/call", []byte(`{}`))
		if err == nil {
			t.Fatal("the call has a result")
		}
		says(t, err, "ended before the answer")
		if took := time.Since(began); took < 20*time.Second || took > time.Minute {
			t.Errorf("it was given up after %v", took)
		}
		f.count(t, "GET", maxResumes+2) // the listening one, and one too many
	})
}

// Over an hour a listening stream that always closes at once costs one request
// a minute, and it is given up no more than it is stormed.
func TestHTTPListenClosesForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHandler()
		f.when("GET", func(w writer, _ *request, _ *message) { stream(w)("") })
		c := overPipes(t, f, newProxy())
		time.Sleep(time.Hour)
		if n := len(f.all("GET")); n < 60 || n > 67 {
			t.Errorf("%d GETs within an hour", n)
		}
		if _, err := c.Call(t.Context(), "tools/call", nil); err != nil {
			t.Error(err)
		}
	})
}

// A listening stream that lives for a while, as behind a gateway that cuts
// what is idle, is opened again at once each time.
func TestHTTPListenThatIsCutRegularly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHandler()
		f.when("GET", func(w writer, r *request, _ *message) {
			stream(w)("")
			sleep(r.Context(), 29*time.Second)
		})
		p := newProxy()
		overPipes(t, f, p)
		time.Sleep(10*time.Minute - 5*time.Second)
		if n, missed := len(f.all("GET")), len(p.missed); n != 20 || missed != n-1 {
			t.Errorf("%d GETs within ten minutes, Missed %d times", n, missed)
		}
	})
}

// A call may be cancelled while its stream waits to be resumed.
func TestHTTPCancelDuringResume(t *testing.T) {
	f := newFake(t)
	asked := make(chan struct{}, 10)
	f.when("tools/call", func(w writer, _ *request, _ *message) {
		stream(w)("retry: 600000\nid: a\ndata:\n\n")
		asked <- struct{}{}
	})
	told := make(chan struct{})
	f.when("notifications/cancelled", func(writer, *request, *message) { close(told) })
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	r, _ := call(s, "tools/call", `{}`)
	soon(t, asked, "call")
	r.Cancel(nil)
	soon(t, told, "cancellation")
}

func TestHTTPListen(t *testing.T) {
	f := newFake(t)
	drop := make(chan struct{})
	var withID atomic.Bool
	f.when("GET", func(w writer, r *request, _ *message) {
		if f.all("notifications/initialized") == nil {
			t.Error("GET before notifications/initialized")
		}
		say := stream(w)
		if withID.Load() {
			say("id: 9\n")
		}
		say("retry: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
		select {
		case <-drop:
		case <-r.Context().Done():
		}
	})
	p := newProxy()
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, p)
	works(t, s)
	soon(t, p.notified, "notification")
	select {
	case <-p.missed:
		t.Error("Missed on the first connection")
	default:
	}
	withID.Store(true)
	drop <- struct{}{}
	soon(t, p.missed, "Missed: nothing tells what was lost")
	soon(t, p.notified, "notification")
	drop <- struct{}{} // now there is an id to resume from
	soon(t, p.notified, "notification")
	select {
	case <-p.missed:
		t.Error("Missed although the stream was resumed")
	default:
	}
	if gets := f.all("GET"); len(gets) != 3 || gets[2].header.Get("Last-Event-Id") != "9" || gets[1].header.Get("Last-Event-Id") != "" {
		t.Errorf("the GETs are %v", gets)
	}
	works(t, s)
	f.count(t, "initialize", 1)
}

// What a server says on its own stream because of a call is not lost if the call
// comes right after the handshake: it waits for the server to answer the GET. A
// list does not.
func TestHTTPCallWaitsForTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHandler()
		release, called := make(chan struct{}), make(chan struct{})
		f.when("GET", func(w writer, _ *request, _ *message) {
			<-release
			say := stream(w)
			<-called
			say("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"roots/list\"}\n\n")
		})
		f.when("tools/call", func(w writer, _ *request, m *message) {
			close(called)
			reply(w, m, `{"content":[]}`)
		})
		f.when("tools/list", func(w writer, _ *request, m *message) { reply(w, m, `{"tools":[]}`) })
		p := newProxy()
		c := overPipes(t, f, p)
		_, answers := call(c.server, "tools/call", `{"name":"x"}`)
		if _, err := c.List(t.Context(), Tools); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		f.count(t, "tools/call", 0)
		close(release)
		if a := soon(t, answers, "answer"); string(a.Result) != `{"content":[]}` {
			t.Errorf("got %+v", a)
		}
		soon(t, p.asked, "question").Reply([]byte(`{"roots":[]}`))
	})
}

// A server that never answers the GET is waited for once, and not long; one that
// refuses it is not.
func TestHTTPCallWaitsNotLong(t *testing.T) {
	for _, c := range []struct {
		name string
		get  func(w writer, r *request, _ *message)
		want time.Duration
	}{
		{"no answer", func(_ writer, r *request, _ *message) { <-r.Context().Done() }, streamWait},
		{"405", nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newHandler()
				f.when("GET", c.get)
				conn := overPipes(t, f, newProxy())
				for _, want := range []time.Duration{c.want, 0} {
					began := time.Now()
					works(t, conn.server)
					if took := time.Since(began); took != want {
						t.Errorf("a call took %v, want %v", took, want)
					}
				}
			})
		})
	}
}

// Whatever becomes of the listening stream, calls work, and the server is not
// stormed.
func TestHTTPListenFailures(t *testing.T) {
	for _, c := range []struct {
		name string
		get  func(w writer)
		most int // GETs in a little more than a second
	}{
		{"405", func(w writer) { w.WriteHeader(405) }, 1},
		{"404", func(w writer) { w.WriteHeader(404) }, 1},
		{"400", func(w writer) { w.WriteHeader(400) }, 1},
		{"501", func(w writer) { w.WriteHeader(501) }, 1},
		{"a page", func(w writer) { w.Header().Set("Content-Type", "text/html") }, 1},
		{"500", func(w writer) { w.WriteHeader(500) }, 2},
		{"closes at once", func(w writer) { stream(w)("") }, 2},
		{"a greeting, then closes", func(w writer) { stream(w)("event: hello\ndata: x\n\n") }, 2},
		{"cut off", func(w writer) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			conn.Close()
		}, 8}, // net/http tries a GET again by itself, on each connection that it kept
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newHandler()
				f.when("GET", func(w writer, _ *request, _ *message) { c.get(w) })
				conn := overPipes(t, f, newProxy())
				time.Sleep(1300 * time.Millisecond)
				synctest.Wait()
				if n := len(f.all("GET")); n < 1 || n > c.most {
					t.Errorf("%d GETs, want 1 to %d", n, c.most)
				}
				works(t, conn.server)
				f.count(t, "initialize", 1)
			})
		})
	}
}

// A listening stream that comes back as 404 tells that the session is gone
// before any call has to find out.
func TestHTTPListenFindsSessionGone(t *testing.T) {
	f := newFake(t)
	var gone atomic.Bool
	f.when("GET", func(w writer, _ *request, _ *message) {
		if gone.Swap(true) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		stream(w)("retry: 1\ndata:\n\n")
	})
	p := newProxy()
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, p)
	connected(t, s)
	soon(t, p.down, "Down")
	works(t, s)
	f.count(t, "initialize", 2)
	f.count(t, "DELETE", 0)
}

// An id that the server does not know any more is dropped: better a stream
// with a gap, which is told, than none.
func TestHTTPListenUnknownID(t *testing.T) {
	f := newFake(t)
	again := make(chan struct{})
	f.when("GET", func(w writer, r *request, _ *message) {
		switch n := len(f.all("GET")); {
		case n == 1:
			stream(w)(numbered, "old", "")
		case r.Header.Get("Last-Event-Id") != "":
			http.Error(w, "unknown event", http.StatusBadRequest)
		default:
			stream(w)("")
			close(again)
			<-r.Context().Done()
		}
	})
	p := newProxy()
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, p)
	connected(t, s)
	soon(t, again, "stream")
	soon(t, p.missed, "Missed")
	f.count(t, "GET", 3)
}

// A notification may be the first to find the session gone.
func TestHTTPNoticeFindsSessionGone(t *testing.T) {
	f := newFake(t)
	p := newProxy()
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, p)
	c := connected(t, s)
	f.when("notifications/roots/list_changed", func(w writer, _ *request, _ *message) { w.WriteHeader(http.StatusNotFound) })
	c.Notify("notifications/roots/list_changed", nil)
	soon(t, p.down, "Down")
	works(t, s)
	f.count(t, "initialize", 2)
	f.count(t, "tools/call", 1)
}

func TestCursorPause(t *testing.T) {
	var got []string
	for n := range 10 {
		got = append(got, (&cursor{fruitless: n}).pause().String())
	}
	if text := strings.Join(got, " "); text != "1s 1s 2s 4s 8s 16s 32s 1m0s 1m0s 1m0s" {
		t.Errorf("got %s", text)
	}
	if got := (&cursor{retry: 500 * time.Millisecond, fruitless: 1}).pause(); got != 500*time.Millisecond {
		t.Errorf("the server's own wait became %v", got)
	}
	if got := (&cursor{retry: 5 * time.Minute, fruitless: 9}).pause(); got != 5*time.Minute {
		t.Errorf("the server's own wait became %v", got)
	}
}
