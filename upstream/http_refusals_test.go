package upstream

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coffer/jsonrpc"
)

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

// A server that cannot even be greeted is named, with the cause, in bounded
// time, and is met again when it is well.
func TestHTTPHandshakeRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(w writer, r *request)
		words  string
	}{
		{"401", func(w writer, _ *request) { w.WriteHeader(401) }, "HTTP 401"},
		{"403", func(w writer, _ *request) { w.WriteHeader(403) }, "HTTP 403"},
		{"429", func(w writer, _ *request) { w.Header().Set("Retry-After", "9"); w.WriteHeader(429) }, "Retry-After: 9"},
		{"500", func(w writer, _ *request) { w.WriteHeader(500) }, "HTTP 500"},
		{"502", func(w writer, _ *request) { http.Error(w, "<h1>no</h1>", http.StatusBadGateway) }, "HTTP 502"},
		{"503 with JSON", func(w writer, _ *request) { http.Error(w, `{"message":"tea"}`, http.StatusServiceUnavailable) }, "tea"},
		{"a page", func(w writer, _ *request) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<p>hi</p>")
		}, "text/html"},
		{"no body", func(w writer, _ *request) { w.Header().Set("Content-Type", "application/json") }, "no answer"},
		{"headers and no more", func(w writer, r *request) {
			w.Header().Set("Content-Type", "application/json")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "no connection within"},
		{"a silent stream", func(w writer, r *request) { stream(w); <-r.Context().Done() }, "no connection within"},
		{"hung up", func(writer, *request) { panic(http.ErrAbortHandler) }, "without an answer"},
		{"half an answer", func(w writer, _ *request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"jsonrpc"`)
		}, "broke off"},
		{"another protocol", func(w writer, _ *request) { io.WriteString(w, `{"ok":true}`) }, "not a JSON-RPC"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			f.when("initialize", func(w writer, r *request, _ *message) { c.answer(w, r) })
			limit := patience
			if c.words == "no connection within" {
				limit = 100 * time.Millisecond
			}
			s := reach(t, Spec{Transport: TransportStreamable, URL: f.URL, ConnectTimeout: limit}, newProxy())
			says(t, fails(t, s), `upstream "u"`, c.words)
			f.count(t, "initialize", 1)
			f.count(t, "tools/call", 0)
			f.when("initialize", nil)
			s.mu.Lock()
			s.spec.ConnectTimeout = patience // to be well may take longer
			s.mu.Unlock()
			works(t, s)
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
