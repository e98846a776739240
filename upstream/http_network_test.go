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
