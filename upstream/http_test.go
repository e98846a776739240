package upstream

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coffer/jsonrpc"
)

type (
	writer  = http.ResponseWriter
	request = http.Request
	message = jsonrpc.Message
)

func TestHTTPAnswers(t *testing.T) {
	const result = `{"n":12345678901234567890.10,"u":"\u00e9","x":[ 1,2 ]}`
	for _, c := range []struct {
		name   string
		answer func(w writer, m *message)
	}{
		{"as JSON", func(w writer, m *message) { reply(w, m, result) }},
		{"as JSON with a mark", func(w writer, m *message) {
			fmt.Fprintf(w, "\xEF\xBB\xBF"+`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		}},
		{"with the id as a string", func(w writer, m *message) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":"%s","result":%s}`, m.ID, result)
		}},
		{"as a stream", func(w writer, m *message) {
			stream(w)("id: 1\ndata:\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\ndata: \"result\":%s}\n\n", m.ID, result)
		}},
		{"as a stream with other events", func(w writer, m *message) {
			say := stream(w)
			say("event: ping\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\ndata: noise\n\n", m.ID)
			say("event: message\rdata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\r\r", m.ID, result)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			f.when("tools/call", func(w writer, _ *request, m *message) { c.answer(w, m) })
			s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
			if a := answer(t, s); string(a.Result) != result {
				t.Errorf("got %s %v, want %s", a.Result, a.Err, result)
			}
			f.count(t, "tools/call", 1)
		})
	}
}

// What reaches a client's stdin must be valid UTF-8 on one line.
func TestHTTPAnswerIsMadeOneLine(t *testing.T) {
	f := newFake(t)
	f.when("tools/call", func(w writer, _ *request, m *message) { reply(w, m, "{\n\"a\":\r\n\"\xff\"}") })
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	if a := answer(t, s); string(a.Result) != "{ \"a\":  \"\uFFFD\"}" {
		t.Errorf("got %q", a.Result)
	}
}

func TestHTTPHeaders(t *testing.T) {
	f := newFake(t)
	listening := make(chan struct{}, 1)
	f.when("GET", func(w writer, r *request, _ *message) {
		stream(w)
		listening <- struct{}{}
		<-r.Context().Done()
	})
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL, Headers: map[string]string{
		"authorization": "Bearer secret", "user-agent": "mine", "Accept": "text/plain", "MCP-Session-ID": "theirs", "mcp-protocol-version": "1", "Host": "example.test",
	}}, newProxy())
	works(t, s)
	soon(t, listening, "GET")
	s.Ready().link.stop(politely)
	for _, c := range []struct{ what, session, version, accept string }{
		{"initialize", "", "", "application/json, text/event-stream"},
		{"notifications/initialized", "s-1", "2025-11-25", "application/json, text/event-stream"},
		{"tools/call", "s-1", "2025-11-25", "application/json, text/event-stream"},
		{"GET", "s-1", "2025-11-25", "text/event-stream"},
		{"DELETE", "s-1", "2025-11-25", ""},
	} {
		f.count(t, c.what, 1)
		for _, g := range f.all(c.what) {
			h := g.header
			if got := h.Get("Mcp-Session-Id") + "|" + h.Get("Mcp-Protocol-Version") + "|" + h.Get("Accept"); got != c.session+"|"+c.version+"|"+c.accept {
				t.Errorf("%s: session, version and accept are %s", c.what, got)
			}
			if got := h.Get("Authorization") + "|" + h.Get("User-Agent"); got != "Bearer secret|mine" {
				t.Errorf("%s: the config's headers are %s", c.what, got)
			}
		}
	}
}

// A notification reaches the server before the request that was sent after it,
// and a cancellation after its request.
func TestHTTPOrder(t *testing.T) {
	f := newFake(t)
	var log []string
	var mu sync.Mutex
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, what)
	}
	called, cancelled := make(chan struct{}), make(chan struct{})
	f.when("notifications/roots/list_changed", func(w writer, _ *request, m *message) {
		time.Sleep(20 * time.Millisecond) // slow: what follows could overtake it
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
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	c := connected(t, s)
	c.Notify("notifications/roots/list_changed", []byte(`{"n":1}`))
	c.Notify("notifications/roots/list_changed", []byte(`{"n":2}`))
	r, _ := call(s, "tools/call", `{}`)
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
	f := newFake(t)
	begun, read, cancelled, answered := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	f.when("notifications/cancelled", func(writer, *request, *message) { close(cancelled) })
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 1<<20 {
			close(begun)
			<-read
		}
		f.ServeHTTP(w, r)
	}))
	defer front.Close()
	s := reach(t, Spec{Transport: TransportHTTP, URL: front.URL}, newProxy())
	c := connected(t, s)
	big := &jsonrpc.Call{Method: "tools/call", Params: []byte(`"` + strings.Repeat("x", 24<<20) + `"`), Done: func(jsonrpc.Answer) { close(answered) }}
	c.rpc.Start(big)
	soon(t, begun, "request")
	c.Notify("notifications/cancelled", []byte(`{"requestId":`+string(c.rpc.ID(big.Number))+`}`))
	time.Sleep(50 * time.Millisecond) // for it not to arrive
	f.count(t, "notifications/cancelled", 0)
	close(read)
	soon(t, cancelled, "cancellation")
	soon(t, answered, "answer")
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

func TestHTTPManyAtOnceReuseConnections(t *testing.T) {
	const many = 64
	var sockets atomic.Int64
	f := newFake(t, func(s *httptest.Server) {
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				sockets.Add(1)
			}
		}
	})
	var barrier atomic.Pointer[sync.WaitGroup]
	f.when("tools/call", func(w writer, _ *request, m *message) {
		all := barrier.Load()
		all.Done()
		all.Wait() // none is answered before all are there
		reply(w, m, `{}`)
	})
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	connected(t, s)
	for range 3 {
		all := new(sync.WaitGroup)
		all.Add(many)
		barrier.Store(all)
		var answers []<-chan jsonrpc.Answer
		for range many {
			_, a := call(s, "tools/call", `{}`)
			answers = append(answers, a)
		}
		for _, a := range answers {
			if a := soon(t, a, "answer"); a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	if n := sockets.Load(); n > 2*many {
		t.Errorf("%d connections for 3 × %d calls", n, many)
	}
}

func TestHTTPRefusals(t *testing.T) {
	const secret = "tok-0123456789"
	status := func(code int, kind, body string) func(writer, *request, *message) {
		return func(w writer, _ *request, _ *message) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+secret+`"`)
			w.Header().Set("Retry-After", "17")
			w.WriteHeader(code)
			io.WriteString(w, body)
		}
	}
	for _, c := range []struct {
		name   string
		answer func(writer, *request, *message)
		words  []string
		hint   string
		mayRun bool
	}{
		{"401", status(401, "text/plain", "who are you, "+secret+"?"), []string{"HTTP 401 Unauthorized: who are you, ***?", "asks for Bearer)"}, "headers", false},
		{"401 with JSON-RPC", status(401, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"log in"}}`), []string{"HTTP 401", "log in"}, "headers", false},
		{"403", status(403, "text/html", "<html><head><title>No\n entry</title></head></html>"), []string{"HTTP 403 Forbidden: No entry"}, "headers", false},
		{"404 with a session is not ours", status(410, "text/plain", "gone"), []string{"HTTP 410 Gone"}, "", false},
		{"429", status(429, "application/json", `{"error":"slow down"}`), []string{"HTTP 429", "slow down", "Retry-After: 17"}, "", false},
		{"500", status(500, "text/plain", ""), []string{"HTTP 500 Internal Server Error", "may have run"}, "", true},
		{"502", status(502, "text/html", "<h1>Bad <b>Gateway</b></h1><script>x()</script>"), []string{"HTTP 502 Bad Gateway: Bad Gateway", "may have run"}, "", true},
		{"503 with other JSON", status(503, "application/json", `{"message":"down for tea"}`), []string{"HTTP 503", "down for tea", "Retry-After: 17", "may have run"}, "", true},
		{"a page with 200", status(200, "text/html", "<title>Log in</title>"), []string{"text/html", "Log in"}, "url", true},
		{"202", status(202, "", ""), []string{"no answer", "HTTP 202"}, "", true},
		{"204", status(204, "", ""), []string{"no answer", "HTTP 204"}, "", true},
		{"half a JSON", status(200, "application/json", `{"jsonrpc":"2.0","id":2,"res`), []string{"not JSON"}, "", true},
		{"JSON of another kind", status(200, "application/json", `{"ok":true}`), []string{"not a JSON-RPC 2.0 message"}, "", true},
		{"a batch where none is", status(200, "application/json", `[{"jsonrpc":"2.0","id":2,"result":{}}]`), []string{"not a JSON-RPC 2.0 message"}, "", true},
		{"another's answer", status(200, "application/json", `{"jsonrpc":"2.0","id":77,"result":{}}`), []string{"another request"}, "", true},
		{"a notification", status(200, "application/json", `{"jsonrpc":"2.0","method":"notifications/x"}`), []string{"does not hold the response"}, "", true},
		{"a stream without an answer", status(200, "text/event-stream", ": nothing\n\n"), []string{"stream ended before the answer"}, "", true},
		{"broken off", func(w writer, _ *request, _ *message) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, `{"jsonrpc"`)
		}, []string{"broke off"}, "", true},
		{"hung up", func(w writer, _ *request, _ *message) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			conn.Close()
		}, []string{"closed the connection without an answer"}, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			f.when("tools/call", c.answer)
			// With an Idempotency-Key net/http would send a POST again.
			s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL, Headers: map[string]string{"X-Key": secret, "Idempotency-Key": "1"}}, newProxy())
			connected(t, s)
			e := fails(t, s)
			says(t, e, append(c.words, `upstream "u" unavailable`)...)
			if !strings.Contains(e.Hint, c.hint) || c.hint == "" && e.Hint != "" {
				t.Errorf("the hint is %q", e.Hint)
			}
			if strings.Contains(e.Error()+e.Hint, secret) {
				t.Errorf("a secret is shown: %v", e)
			}
			if may := strings.Contains(e.Error(), "may have run"); may != c.mayRun {
				t.Errorf("may have run: %v, want %v", may, c.mayRun)
			}
			f.count(t, "tools/call", 1) // at most once
			f.when("tools/call", nil)
			works(t, s)
			f.count(t, "initialize", 1)
		})
	}
}

// A JSON-RPC error is the answer, whatever its status and its id.
func TestHTTPErrorObjectIsTheAnswer(t *testing.T) {
	const object = `{"code":-32602,"message":"no","data":{"n":1.10}}`
	for _, c := range []struct {
		name, id string
		status   int
	}{
		{"400, its id", `"id":%s,`, 400}, {"400, null", `"id":null,`, 400}, {"500, none", ``, 500}, {"403", `"id":null,`, 403}, {"200", `"id":%s,`, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			f.when("tools/call", func(w writer, _ *request, m *message) {
				w.WriteHeader(c.status)
				io.WriteString(w, `{"jsonrpc":"2.0",`+strings.ReplaceAll(c.id, "%s", string(m.ID))+`"error":`+object+`}`)
			})
			f.when("tools/list", func(_ writer, r *request, _ *message) { <-r.Context().Done() })
			s := reach(t, Spec{Transport: TransportStreamable, URL: f.URL}, newProxy())
			_, other := call(s, "tools/list", `{}`) // a second open call, which it does not belong to
			if a := answer(t, s); string(a.Error) != object {
				t.Errorf("got %+v", a)
			}
			select {
			case a := <-other:
				t.Errorf("the other call got %+v", a)
			default:
			}
		})
	}
}

// A method that is unknown is no session that is gone.
func TestHTTPMethodNotFoundWith404(t *testing.T) {
	f := newFake(t)
	f.when("tools/call", func(w writer, _ *request, m *message) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
	})
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	if a := answer(t, s); a.Error == nil {
		t.Errorf("got %+v", a)
	}
	f.count(t, "initialize", 1)
}

func TestHTTPSessionGone(t *testing.T) {
	const waiting = 5
	for _, c := range []struct {
		name   string
		status int
		body   string
	}{
		{"404", 404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`},
		{"404 without a body", 404, ``},
		{"400 as in the SDK's examples", 400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`},
		{"400 in plain text", 400, `invalid session`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			p := newProxy()
			s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, p)
			works(t, s)
			f.mu.Lock()
			f.session = "s-2"
			f.mu.Unlock()
			var ran atomic.Int64
			var all sync.WaitGroup
			all.Add(waiting)
			f.when("tools/call", func(w writer, r *request, m *message) {
				if r.Header.Get("Mcp-Session-Id") != "s-2" {
					all.Done()
					all.Wait() // all are refused
					w.WriteHeader(c.status)
					io.WriteString(w, c.body)
					return
				}
				ran.Add(1)
				reply(w, m, `{}`)
			})
			var answers []<-chan jsonrpc.Answer
			for range waiting {
				_, a := call(s, "tools/call", `{}`)
				answers = append(answers, a)
			}
			for _, a := range answers {
				if a := soon(t, a, "answer"); a.Err != nil {
					t.Error(a.Err)
				}
			}
			f.count(t, "initialize", 2)
			soon(t, p.down, "Down")
			if n := ran.Load(); n != waiting {
				t.Errorf("%d calls ran, want %d", n, waiting)
			}
		})
	}
}

// A server that refuses every session is asked twice and no more.
func TestHTTPSessionGoneForEver(t *testing.T) {
	f := newFake(t)
	f.when("tools/call", func(w writer, _ *request, _ *message) { w.WriteHeader(http.StatusNotFound) })
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	e := fails(t, s)
	says(t, e, "session is gone", "HTTP 404")
	f.count(t, "tools/call", 2)
	f.count(t, "initialize", 2)
}

func TestHTTPNotFoundWithoutASession(t *testing.T) {
	f := newFake(t)
	f.session = ""
	f.when("tools/call", func(w writer, _ *request, _ *message) { w.WriteHeader(http.StatusNotFound) })
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	e := fails(t, s)
	says(t, e, "HTTP 404 Not Found")
	if !strings.Contains(e.Hint, "url") {
		t.Errorf("the hint is %q", e.Hint)
	}
	f.count(t, "tools/call", 1)
}

func TestHTTPBadSessionID(t *testing.T) {
	f := newFake(t)
	f.session = "sesión"
	s := reach(t, Spec{Transport: TransportStreamable, URL: f.URL}, newProxy())
	says(t, fails(t, s), "visible ASCII")
}

func TestHTTPUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	s := reach(t, Spec{Transport: TransportHTTP, URL: "http://" + listener.Addr().String()}, newProxy())
	e := fails(t, s)
	says(t, e, "connection refused")
	if !strings.Contains(e.Hint, "start that server") {
		t.Errorf("the hint is %q", e.Hint)
	}
}

// A call that finds the server down is sent again on a fresh connection, and
// since that fails too, the growing waits begin; when it is back all is well.
func TestHTTPServerGoesAndComesBack(t *testing.T) {
	f := newFake(t)
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	works(t, s)
	address := f.Listener.Addr().String()
	f.CloseClientConnections()
	f.Close()
	e := fails(t, s)
	for n := 0; n < 10 && strings.Contains(e.Error(), "may have run"); n++ {
		e = fails(t, s) // the one before went out on a connection that was just dying
	}
	says(t, e, "connection refused")
	if s.Ready() != nil {
		t.Error("the connection is still in use")
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err) // somebody else took the port
	}
	again := &httptest.Server{Listener: listener, Config: &http.Server{Handler: f}}
	again.Start()
	defer again.Close()
	for {
		a := answer(t, s)
		if a.Err == nil {
			break
		}
		if says(t, a.Err, "next attempt in"); t.Failed() {
			return
		}
		time.Sleep(20 * time.Millisecond) // a restart takes its time too
	}
	f.count(t, "tools/call", 2)
	f.count(t, "initialize", 2)
}

func TestHTTPRedirects(t *testing.T) {
	elsewhere := newFake(t)
	f := newFake(t)
	target := atomic.Pointer[string]{}
	code := atomic.Int64{}
	redirect := func(w writer, r *request, _ *message) {
		http.Redirect(w, r, *target.Load(), int(code.Load()))
	}
	for _, c := range []struct {
		name, to string
		code     int
		words    string // "": it is followed
	}{
		{"307 to another port", elsewhere.URL + "/mcp?key=hidden", 307, "another origin, " + elsewhere.URL + "/mcp"},
		{"308 to another host", strings.Replace(f.URL, "127.0.0.1", "localhost", 1), 308, "another origin"},
		{"307 to https", strings.Replace(f.URL, "http:", "https:", 1), 307, "another origin"},
		{"302 on the same origin", "/other", 302, "redirects a POST to " + f.URL + "/other as a GET"},
		{"307 round and round", "/", 307, "more than 5 redirects"},
	} {
		t.Run(c.name, func(t *testing.T) {
			target.Store(&c.to)
			code.Store(int64(c.code))
			f.when("tools/call", redirect)
			s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL, Headers: map[string]string{"Authorization": "x"}}, newProxy())
			connected(t, s)
			e := fails(t, s)
			says(t, e, c.words)
			if e.Hint == "" || strings.Contains(e.Error(), "hidden") {
				t.Errorf("got %v, hint %q", e, e.Hint)
			}
		})
	}
	if n := len(elsewhere.seen); n > 0 {
		t.Errorf("another origin got %d requests", n)
	}
	t.Run("307 on the same origin", func(t *testing.T) {
		f := newFake(t)
		mux := http.NewServeMux()
		mux.Handle("/mcp/", f)
		mux.Handle("/mcp", http.RedirectHandler("/mcp/", http.StatusTemporaryRedirect))
		front := httptest.NewServer(mux)
		defer front.Close()
		works(t, reach(t, Spec{Transport: TransportHTTP, URL: front.URL + "/mcp", Headers: map[string]string{"Authorization": "x"}}, newProxy()))
		if h := f.all("tools/call")[0].header; h.Get("Authorization") != "x" || h.Get("Mcp-Session-Id") != "s-1" {
			t.Errorf("the headers are %v", h)
		}
	})
}

func TestHTTPTooLong(t *testing.T) {
	big := strings.Repeat("x", 5000)
	for name, answer := range map[string]func(w writer, m *message){
		"JSON":  func(w writer, m *message) { reply(w, m, `{"a":"`+big+`"}`) },
		"event": func(w writer, m *message) { stream(w)("data: {\"id\":%s,\"result\":%q}\n\n", m.ID, big) },
		"event, id last": func(w writer, m *message) {
			stream(w)("data: {\"result\":%q,\"jsonrpc\":\"2.0\",\"id\":%s}\n\n", big, m.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.when("tools/call", func(w writer, r *request, m *message) {
				answer(w, m)
				if strings.HasPrefix(name, "event") {
					<-r.Context().Done() // the stream stays: the event itself must end the call
				}
			})
			f.when("tools/list", func(w writer, _ *request, m *message) { reply(w, m, `{}`) })
			s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy(), func(o *Options) { o.MaxMessageSize = 4000 })
			e := fails(t, s)
			says(t, e, "longer than 4000 bytes")
			if !strings.Contains(e.Hint, "max_message_size") {
				t.Errorf("the hint is %q", e.Hint)
			}
			f.count(t, "tools/call", 1)
			_, a := call(s, "tools/list", `{}`)
			if a := soon(t, a, "answer"); a.Err != nil {
				t.Error(a.Err)
			}
		})
	}
}

// What the server says on the stream of a call comes through in order, and its
// questions are answered by POST while the call goes on.
func TestHTTPServerAsksOnTheStreamOfACall(t *testing.T) {
	f := newFake(t)
	answers := make(chan string, 2)
	f.when("response", func(w writer, _ *request, m *message) {
		answers <- string(m.ID) + string(m.Result)
		w.WriteHeader(http.StatusNoContent)
	})
	f.when("tools/call", func(w writer, _ *request, m *message) {
		say := stream(w)
		say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":1}\n\n")
		say("data: {\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}\n\n")
		first := <-answers
		say("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n\n")
		say("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%q}\n\n", m.ID, first+<-answers)
	})
	p := newProxy()
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, p)
	_, a := call(s, "tools/call", `{}`)
	if n := soon(t, p.notified, "notification"); n != "notifications/message1" {
		t.Errorf("got %s", n)
	}
	soon(t, p.asked, "request").Reply([]byte(`{"roots":[]}`))
	if a := soon(t, a, "answer"); string(a.Result) != `"\"p\"{}1{\"roots\":[]}"` {
		t.Errorf("got %s %v", a.Result, a.Err)
	}
}

func TestHTTPBatch(t *testing.T) {
	f := newFake(t)
	f.version = "2025-03-26"
	f.when("tools/call", func(w writer, _ *request, m *message) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":%s,"result":{}}]`, m.ID)
	})
	p := newProxy()
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, p)
	if a := answer(t, s); string(a.Result) != `{}` {
		t.Errorf("got %+v", a)
	}
	soon(t, p.notified, "notification")
}

// The server never answers: whoever waits gives up in his own time, and the
// server is told.
func TestHTTPSilence(t *testing.T) {
	f := newFake(t)
	told := make(chan struct{}, 1)
	f.when("tools/list", func(_ writer, r *request, _ *message) { <-r.Context().Done() })
	f.when("notifications/cancelled", func(writer, *request, *message) { told <- struct{}{} })
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	c := connected(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.List(ctx, Tools); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	soon(t, told, "cancellation")
	works(t, s)
}

func TestHTTPSilentHandshake(t *testing.T) {
	f := newFake(t)
	f.when("initialize", func(_ writer, r *request, _ *message) { <-r.Context().Done() })
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL, ConnectTimeout: 50 * time.Millisecond}, newProxy())
	if e := fails(t, s); !errors.Is(e, ErrTimeout) {
		t.Errorf("got %v", e)
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

// testTLS returns a TLS server of the fake, and the file with its certificate.
func testTLS(t *testing.T, f *fakeServer) (*httptest.Server, string) {
	t.Helper()
	server := httptest.NewUnstartedServer(f)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return server, file
}

func TestHTTPTLS(t *testing.T) {
	f := newFake(t)
	server, _ := testTLS(t, f)
	e := fails(t, reach(t, Spec{Transport: TransportHTTP, URL: server.URL}, newProxy()))
	says(t, e, "certificate")
	if !strings.Contains(e.Hint, "trust") {
		t.Errorf("the hint is %q", e.Hint)
	}
	e = fails(t, reach(t, Spec{Transport: TransportHTTP, URL: strings.Replace(f.URL, "http:", "https:", 1)}, newProxy()))
	if !strings.Contains(e.Hint, "http://") {
		t.Errorf("got %v, hint %q", e, e.Hint)
	}
	e = fails(t, reach(t, Spec{Transport: TransportHTTP, URL: strings.Replace(server.URL, "https:", "http:", 1)}, newProxy()))
	says(t, e, "HTTP request to an HTTPS server")
}

func TestHTTP2(t *testing.T) {
	f := newFake(t)
	server, _ := testTLS(t, f)
	var proto atomic.Value
	f.when("tools/call", func(w writer, r *request, m *message) {
		proto.Store(r.Proto)
		reply(w, m, `{}`)
	})
	s := reach(t, Spec{Transport: TransportStreamable, URL: server.URL}, newProxy())
	c := &Conn{server: s, handler: s.set.opts.Handler, log: s.log}
	if err := c.dialHTTP(); err != nil {
		t.Fatal(err)
	}
	defer c.link.stop(promptly)
	trust := server.Client().Transport.(*http.Transport).TLSClientConfig
	c.link.(*streamable).client.Transport.(*http.Transport).TLSClientConfig = trust
	if err := c.initialize(t.Context(), c.server.set.who()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(t.Context(), "tools/call", nil); err != nil {
		t.Fatal(err)
	}
	if proto.Load() != "HTTP/2.0" {
		t.Errorf("spoke %v", proto.Load())
	}
}

// A server that dies in the middle of reading a request, at every point of it,
// never gets it twice.
func TestHTTPAtMostOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			served.Go(func() { cruel(conn, &calls) })
		}
	})
	t.Cleanup(func() { // after the Set has closed its connections
		listener.Close()
		served.Wait()
	})
	s := reach(t, Spec{Transport: TransportStreamable, URL: "http://" + listener.Addr().String(), Headers: map[string]string{"Idempotency-Key": "k"}}, newProxy())
	const n = 20
	for range n {
		connected(t, s)
		says(t, fails(t, s), "may have run")
	}
	if got := calls.Load(); got != n {
		t.Errorf("%d calls arrived, want %d", got, n)
	}
}

// cruel serves a connection and breaks it when a call arrives.
func cruel(conn net.Conn, calls *atomic.Int64) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(r.Body)
		m, _ := jsonrpc.Parse(body)
		switch {
		case m == nil:
			io.WriteString(conn, "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
		case m.Method == "initialize":
			text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`, m.ID)
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		case m.Method == "tools/call":
			calls.Add(1)
			return
		default:
			io.WriteString(conn, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
		}
	}
}
