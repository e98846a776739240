package main

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// httpBridge is a streamable HTTP server in front of a stdio server, for a
// client that can reach its server by URL only. It is as transparent as the
// two transports allow: every message travels as the text that it is.
//
// A legacy session is one child of its own. Modern requests, which belong to
// no session, share one child, or one more for as long as two requests with
// one id are open.
type httpBridge struct {
	start func() *exec.Cmd // makes a child's command, not started

	mu       sync.Mutex // guards the fields below
	sessions map[string]*bridgeChild
	order    []string // ids of sessions, oldest first
	shared   []*bridgeChild
	ended    []*bridgeChild // asked to end, not yet waited for
}

// maxBridgeSessions is how many children may wait for a client that never says
// that it is done (the suite does not).
const maxBridgeSessions = 10

func newHTTPBridge(start func() *exec.Cmd) *httpBridge {
	return &httpBridge{start: start, sessions: make(map[string]*bridgeChild)}
}

// bridgeMessage is what the bridge has to know of a message.
type bridgeMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Error  *struct {
		Code int `json:"code"`
	} `json:"error"`
	Params struct {
		Name          string          `json:"name"`
		URI           string          `json:"uri"`
		ProgressToken json.RawMessage `json:"progressToken"`
		Meta          struct {
			ProgressToken   json.RawMessage `json:"progressToken"`
			ProtocolVersion string          `json:"io.modelcontextprotocol/protocolVersion"`
			LogLevel        json.RawMessage `json:"io.modelcontextprotocol/logLevel"`
			SubscriptionID  json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
		} `json:"_meta"`
	} `json:"params"`
}

func (b *httpBridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !isLoopback("//"+r.Host) || r.Header.Get("Origin") != "" && !isLoopback(r.Header.Get("Origin")) {
		http.Error(w, "not from here", http.StatusForbidden) // the defence against DNS rebinding
		return
	}
	switch r.Method {
	case http.MethodPost:
		b.post(w, r)
	case http.MethodGet:
		if c := b.session(w, r); c != nil {
			c.serveEvents(w, r)
		}
	case http.MethodDelete:
		if c := b.session(w, r); c != nil {
			b.end(r.Header.Get("Mcp-Session-Id"))
		}
	default:
		http.Error(w, "POST, GET or DELETE", http.StatusMethodNotAllowed)
	}
}

// mismatch says which header does not repeat what the message says, as
// 2026-07-28 asks of a request (streamable HTTP, "Standard Headers"): that is
// between the client and the bridge, since stdio has no headers.
func (m *bridgeMessage) mismatch(h http.Header) string {
	if m.ID == nil || m.Method == "" {
		return ""
	}
	want := map[string]string{
		"Mcp-Protocol-Version": m.Params.Meta.ProtocolVersion,
		"Mcp-Method":           m.Method,
	}
	switch m.Method {
	case "tools/call", "prompts/get":
		want["Mcp-Name"] = m.Params.Name
	case "resources/read":
		want["Mcp-Name"] = m.Params.URI
	}
	for name, value := range want {
		got := strings.TrimSpace(h.Get(name))
		if text, ok := strings.CutPrefix(got, "=?base64?"); ok {
			text, ok = strings.CutSuffix(text, "?=")
			plain, err := base64.StdEncoding.DecodeString(text)
			if !ok || err != nil {
				return name + " is not well-formed"
			}
			got = string(plain)
		}
		if got != value {
			return fmt.Sprintf("%s is %q, the message says %q", name, got, value)
		}
	}
	return ""
}

func isLoopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// session returns the child of the session that a request names, or answers
// the request and returns nil.
func (b *httpBridge) session(w http.ResponseWriter, r *http.Request) *bridgeChild {
	id := r.Header.Get("Mcp-Session-Id")
	if id == "" {
		http.Error(w, "no session", http.StatusMethodNotAllowed)
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.sessions[id]
	if c == nil {
		http.Error(w, "no such session", http.StatusNotFound)
	}
	return c
}

func (b *httpBridge) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	// White space between tokens may be a line break; inside strings there is none.
	body = bytes.ReplaceAll(bytes.ReplaceAll(body, []byte("\n"), []byte(" ")), []byte("\r"), []byte(" "))
	var m bridgeMessage
	if err := json.Unmarshal(body, &m); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"}}`)
		return
	}
	var c *bridgeChild
	modern := m.Params.Meta.ProtocolVersion != ""
	if wrong := m.mismatch(r.Header); modern && wrong != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":%q}}`, m.ID, wrong)
		return
	}
	switch {
	case m.Method == "initialize" && !modern:
		c, err = b.open(w)
	case modern || r.Header.Get("Mcp-Session-Id") == "":
		modern = true
		c, err = b.pool(string(m.ID))
	default:
		if c = b.session(w, r); c == nil {
			return
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if m.ID == nil || m.Method == "" {
		c.write(body)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	s := c.openStream(m)
	c.write(body)
	if c.serveAnswer(w, r, s, modern) == nil || !modern {
		return // a legacy client that hangs up has not cancelled
	}
	c.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, m.ID))
}

// open starts a session. Where there are many, the oldest that nobody listens
// to ends.
func (b *httpBridge) open(w http.ResponseWriter) (*bridgeChild, error) {
	c, err := b.startChild(false)
	if err != nil {
		return nil, err
	}
	id := rand.Text()
	b.mu.Lock()
	b.sessions[id] = c
	b.order = append(b.order, id)
	idle := -1
	if len(b.order) > maxBridgeSessions {
		idle = slices.IndexFunc(b.order, func(id string) bool { return !b.sessions[id].inUse() && b.sessions[id] != c })
	}
	var oldest string
	if idle >= 0 {
		oldest = b.order[idle]
	}
	b.mu.Unlock()
	if oldest != "" {
		b.end(oldest)
	}
	w.Header().Set("Mcp-Session-Id", id)
	return c, nil
}

// end ends a session: its child's stdin is closed.
func (b *httpBridge) end(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.sessions[id]; c != nil {
		delete(b.sessions, id)
		b.order = slices.DeleteFunc(b.order, func(other string) bool { return other == id })
		b.ended = append(b.ended, c)
		c.stdin.Close()
	}
}

// pool returns a shared child that has no open request of that id.
func (b *httpBridge) pool(id string) (*bridgeChild, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.shared {
		if !c.has(id) {
			return c, nil
		}
	}
	c, err := b.startChild(true)
	if err == nil {
		b.shared = append(b.shared, c)
	}
	return c, err
}

// close ends all children and returns what is wrong with how they ended.
func (b *httpBridge) close(limit time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Concat(b.ended, b.shared)
	for _, c := range b.sessions {
		all = append(all, c)
	}
	var errs []error
	late := time.After(limit)
	for _, c := range all {
		c.stdin.Close()
	}
	for _, c := range all {
		select {
		case <-c.done:
		case <-late:
			errs = append(errs, fmt.Errorf("a child is still there %v after its stdin closed", limit))
			late = time.After(0)
			c.cmd.Process.Kill()
			<-c.done
		}
		errs = append(errs, c.exit)
	}
	return errors.Join(errs...)
}
