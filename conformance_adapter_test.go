package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// adapterMain is the command "httpadapter URL": a stdio server that is nothing
// but a streamable HTTP server seen through a pipe. It gives the suite's
// fixtures, which are reached over HTTP only, as stdio upstreams.
func adapterMain() {
	ctx, cancel := context.WithCancel(context.Background())
	a := &adapter{ctx: ctx, url: os.Args[1], out: os.Stdout, open: make(map[string]context.CancelFunc)}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			a.take(line)
		}
		if err != nil {
			break
		}
	}
	cancel()
	a.requests.Wait()
	a.mu.Lock()
	session := a.session
	a.mu.Unlock()
	if session != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if resp, err := a.do(ctx, http.MethodDelete, nil, nil); err == nil {
			resp.Body.Close()
		}
	}
}

type adapter struct {
	ctx      context.Context // the process's own
	url      string
	requests sync.WaitGroup // open POSTs and the GET stream

	writing sync.Mutex // guards out
	out     io.Writer

	mu      sync.Mutex // guards the fields below
	session string
	version string
	open    map[string]context.CancelFunc // by raw id of the request
}

// take sends one message on. Requests run beside one another; all else, and
// initialize, whose answer names the session, is finished before the next.
func (a *adapter) take(line []byte) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name, URI string
			RequestID json.RawMessage `json:"requestId"`
			Meta      struct {
				Version string `json:"io.modelcontextprotocol/protocolVersion"`
			} `json:"_meta"`
		}
	}
	if err := json.Unmarshal(line, &m); err != nil {
		fmt.Fprintf(os.Stderr, "adapter: %q: %v\n", line, err)
		return
	}
	header := http.Header{}
	if m.Params.Meta.Version != "" {
		header.Set("Mcp-Protocol-Version", m.Params.Meta.Version)
		header.Set("Mcp-Method", m.Method)
		if name := m.Params.Name + m.Params.URI; name != "" {
			header.Set("Mcp-Name", name)
		}
	}
	ctx, cancel := context.WithCancel(a.ctx)
	if m.ID == nil || m.Method == "" {
		defer cancel()
		a.mu.Lock()
		abort := a.open[string(m.Params.RequestID)]
		legacy := a.session != ""
		a.mu.Unlock()
		if m.Method == "notifications/cancelled" && abort != nil && !legacy {
			abort() // what cancels over HTTP in 2026-07-28
			return
		}
		a.post(ctx, line, header, "")
		if m.Method == "notifications/initialized" {
			a.listen()
		}
		return
	}
	a.mu.Lock()
	a.open[string(m.ID)] = cancel
	a.mu.Unlock()
	request := func() {
		defer cancel()
		a.post(ctx, line, header, string(m.ID))
		a.mu.Lock()
		delete(a.open, string(m.ID))
		a.mu.Unlock()
	}
	if m.Method == "initialize" {
		request()
	} else {
		a.requests.Go(request)
	}
}

// post sends a message and writes all that comes back.
func (a *adapter) post(ctx context.Context, line []byte, header http.Header, id string) {
	resp, err := a.do(ctx, http.MethodPost, line, header)
	if err == nil {
		defer resp.Body.Close()
		if session := resp.Header.Get("Mcp-Session-Id"); session != "" {
			a.mu.Lock()
			a.session = session
			a.mu.Unlock()
		}
		err = a.copy(resp)
	}
	if err != nil && id != "" && ctx.Err() == nil {
		a.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":%q}}`, id, err.Error()))
	}
}

// listen opens the GET stream, which must be there before a tool asks the
// client something, and has what comes on it written from then on.
func (a *adapter) listen() {
	resp, err := a.do(a.ctx, http.MethodGet, nil, nil)
	if err != nil {
		return
	}
	a.requests.Go(func() {
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			a.copy(resp)
		}
	})
}

// copy writes each message of a response's body, JSON or event stream, as a
// line. (mcp-go may put several JSON texts into one body: each counts.)
func (a *adapter) copy(resp *http.Response) error {
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		dec := json.NewDecoder(resp.Body)
		for n := 0; ; n++ {
			var message json.RawMessage
			if err := dec.Decode(&message); err == io.EOF {
				return nil
			} else if err != nil {
				return fmt.Errorf("%s: %w", resp.Status, err)
			}
			a.sniff(message)
			a.write(message)
		}
	}
	lines := bufio.NewReader(resp.Body)
	var data []byte
	for {
		line, err := lines.ReadBytes('\n')
		line = bytes.TrimRight(line, "\r\n")
		if text, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(text, []byte(" "))...)
		} else if len(line) == 0 && len(data) > 0 {
			a.sniff(data)
			a.write(data)
			data = nil
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// sniff remembers the protocol version that an initialize result settles.
func (a *adapter) sniff(message []byte) {
	var m struct {
		Result struct{ ProtocolVersion string }
	}
	if json.Unmarshal(message, &m) == nil && m.Result.ProtocolVersion != "" {
		a.mu.Lock()
		a.version = m.Result.ProtocolVersion
		a.mu.Unlock()
	}
}

func (a *adapter) write(message []byte) {
	a.writing.Lock()
	defer a.writing.Unlock()
	message = bytes.ReplaceAll(message, []byte("\n"), []byte(" ")) // between tokens only: strings have none
	a.out.Write(append(message, '\n'))
}

func (a *adapter) do(ctx context.Context, method string, body []byte, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodGet {
		req.Header.Set("Accept", "text/event-stream")
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for key, values := range header {
		req.Header[key] = values
	}
	a.setSession(req.Header, body)
	return http.DefaultClient.Do(req)
}

// setSession adds the headers that a message without those of 2026-07-28 needs.
func (a *adapter) setSession(header http.Header, body []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case header.Get("Mcp-Method") != "":
	case a.session != "":
		header.Set("Mcp-Session-Id", a.session)
		header.Set("Mcp-Protocol-Version", a.version)
	case !bytes.Contains(body, []byte(`"initialize"`)):
		// Neither of a session nor with the _meta of 2026-07-28: without this
		// the server would take it for a request of an old revision.
		header.Set("Mcp-Protocol-Version", "2026-07-28")
		header.Set("Mcp-Method", "none")
	}
}
