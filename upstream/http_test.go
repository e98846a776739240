package upstream

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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
