package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"coffer/upstream/upstreamtest"
)

// TestRealServersBytes compares, without the inspector between, the bytes of
// results: of lists item by item, of calls whole.
func TestRealServersBytes(t *testing.T) {
	world := newRealWorld(t)
	direct, through := world.run(t), world.run(t)
	schemas, err := pairingSchemas()
	if err != nil {
		t.Fatal(err)
	}
	coffer := startRaw(t, through.coffer, schemas.Check(true))
	servers := make(map[string]rawPeer)
	for name, entry := range direct.servers {
		if entry.URL != "" {
			servers[name] = openRaw(t, entry.URL)
		} else {
			servers[name] = startRaw(t, entry, nil)
		}
	}

	for _, list := range realLists {
		t.Run(list.method, func(t *testing.T) {
			var want []json.RawMessage
			for _, name := range direct.names() {
				for _, item := range rawItems(t, servers[name], list.method, list.member) {
					if list.qualified {
						item = qualifyRaw(t, name, item)
					}
					want = append(want, item)
				}
			}
			got := rawItems(t, coffer, list.method, list.member)
			if len(got) != len(want) || len(want) == 0 {
				t.Fatalf("coffer lists %d items, want %d\n%s", len(got), len(want), through.explain(""))
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Errorf("item %d is\n%s\nwant\n%s", i, got[i], want[i])
				}
			}
		})
	}

	requests := append([]realRequest{
		{what: "a picture", server: "everything", kind: "tool", name: "get-tiny-image", args: `{}`},
		{what: "2 MB of text", server: "filesystem", kind: "tool", name: "read_text_file", args: `{"path":"FILES/big.txt"}`},
		{what: "arguments that do not fit", server: "everything", kind: "tool", name: "get-sum", args: `{"a":"x"}`},
		{what: "a prompt without its argument", server: "everything", kind: "prompt", name: "args-prompt", args: `{}`},
		{what: "a tool's own failure over HTTP", server: "notes", kind: "tool", name: "grumble", args: `{}`},
	}, realRequests...)
	for _, q := range requests {
		t.Run(q.what, func(t *testing.T) {
			method, format := "tools/call", `{"name":%q,"arguments":%s}`
			if q.kind == "prompt" {
				method = "prompts/get"
			}
			args := strings.ReplaceAll(q.args, "FILES", world.files)
			ask, askMerged := fmt.Sprintf(format, q.name, args), fmt.Sprintf(format, q.merged(), args)
			if q.kind == "read" {
				method = "resources/read"
				ask = fmt.Sprintf(`{"uri":%q}`, q.name)
				askMerged = ask
			}
			want := servers[q.server].request(t, method, ask)
			got := coffer.request(t, method, askMerged)
			if want.Result == nil && want.Error == nil {
				t.Fatal("the server itself answers with neither result nor error")
			}
			if !bytes.Equal(got.Result, want.Result) || !bytes.Equal(got.Error, want.Error) {
				t.Errorf("through coffer\n%s\nwant the bytes that come without it\n%s\n%s",
					shorten(got), shorten(want), through.explain(""))
			}
		})
	}

	for name, peer := range servers {
		if err := peer.close(); err != nil {
			t.Logf("%s after its stdin closed: %v", name, err)
		}
	}
	if err := coffer.close(); err != nil {
		t.Errorf("coffer after its stdin closed: %v, want exit 0\n%s", err, through.explain(""))
	}
	through.checkNothingLeft(t)
}

// rawAnswer has the bytes of a response's result or error.
type rawAnswer struct {
	ID            json.RawMessage
	Method        string
	Result, Error json.RawMessage
}

func shorten(a rawAnswer) string {
	text := fmt.Sprintf("result %s error %s", a.Result, a.Error)
	if len(text) > 2000 {
		text = fmt.Sprintf("%s… (%d bytes)", text[:2000], len(text))
	}
	return text
}

// rawPeer is a server seen from its client, message by message.
type rawPeer interface {
	request(t *testing.T, method, params string) rawAnswer
	close() error
}

const rawInitialize = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`

// rawItems returns the items of a list, of all its pages, or none if the
// server knows no such list.
func rawItems(t *testing.T, p rawPeer, method, member string) []json.RawMessage {
	t.Helper()
	var items []json.RawMessage
	params := `{}`
	for {
		answer := p.request(t, method, params)
		if answer.Error != nil {
			var e struct{ Code int }
			if err := json.Unmarshal(answer.Error, &e); err != nil || e.Code != -32601 {
				t.Fatalf("%s: %s", method, answer.Error)
			}
			return nil
		}
		var page map[string]json.RawMessage
		if err := json.Unmarshal(answer.Result, &page); err != nil {
			t.Fatal(err)
		}
		if page["_meta"] != nil {
			t.Fatalf("%s: unexpected _meta %s", method, page["_meta"])
		}
		var some []json.RawMessage
		if err := json.Unmarshal(page[member], &some); err != nil {
			t.Fatalf("%s: %v in %s", method, err, answer.Result)
		}
		items = append(items, some...)
		if page["nextCursor"] == nil {
			return items
		}
		params = fmt.Sprintf(`{"cursor":%s}`, page["nextCursor"])
	}
}

// qualifyRaw replaces an item's name by coffer's and leaves every other byte.
func qualifyRaw(t *testing.T, server string, item json.RawMessage) json.RawMessage {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(item))
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			t.Fatal(err)
		}
		if key == "name" {
			end := int(dec.InputOffset())
			start := end - len(value)
			return slices.Concat(item[:start+1], []byte(server+"__"), item[start+1:])
		}
	}
	t.Fatalf("no name in %s", item)
	return nil
}

// rawPipe is a server that is a child with pipes.
type rawPipe struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stdout  *bufio.Reader
	cancel  context.CancelFunc
	next    int
	traffic *upstreamtest.Traffic // checks what the server says; nil: nobody does
}

// startRaw starts the server and shakes hands with it.
func startRaw(t *testing.T, entry realServer, traffic *upstreamtest.Traffic) rawPeer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realLimit)
	cmd := exec.CommandContext(ctx, entry.Command, entry.Args...)
	cmd.Env = os.Environ()
	for key, value := range entry.Env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &rawPipe{cmd: cmd, stdin: stdin, stdout: bufio.NewReader(stdout), cancel: cancel, traffic: traffic}
	t.Cleanup(func() { p.close() })
	if answer := p.request(t, "initialize", rawInitialize); answer.Error != nil {
		t.Fatalf("initialize: %s", answer.Error)
	}
	p.send(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return p
}

func (p *rawPipe) send(t *testing.T, message string) {
	t.Helper()
	if p.traffic != nil {
		p.traffic.Received([]byte(message))
	}
	if _, err := io.WriteString(p.stdin, message+"\n"); err != nil {
		t.Fatal(err)
	}
}

// request sends a request, whose id is a number and a string by turns, and
// reads up to its answer.
func (p *rawPipe) request(t *testing.T, method, params string) rawAnswer {
	t.Helper()
	p.next++
	id := fmt.Sprint(p.next)
	if p.next%2 == 0 {
		id = fmt.Sprintf("%q", id)
	}
	p.send(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	for {
		line, err := p.stdout.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%s: waiting for the answer: %v", method, err)
		}
		if p.traffic != nil {
			for _, fault := range p.traffic.Sent(bytes.TrimSuffix(line, []byte("\n"))) {
				t.Errorf("%s: %v", method, fault)
			}
		}
		var got rawAnswer
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%s: %q is not a message: %v", method, line, err)
		}
		switch {
		case got.Method == "" && string(got.ID) == id:
			return got
		case got.Method == "":
			t.Fatalf("%s: answer to %s, want to %s", method, got.ID, id)
		case got.ID != nil: // a question: none of them fits a client without capabilities
			t.Fatalf("%s: the server asks %s", method, line)
		}
	}
}

// close closes stdin and waits for the server's end. Doing it twice is fine.
func (p *rawPipe) close() error {
	p.stdin.Close()
	_, drained := io.Copy(io.Discard, p.stdout)
	if errors.Is(drained, os.ErrClosed) {
		drained = nil
	}
	err := p.cmd.Wait()
	p.cancel()
	return errors.Join(drained, err)
}

// rawHTTP is a server at a URL, of the streamable HTTP transport.
type rawHTTP struct {
	url, session string
	next         int
}

func openRaw(t *testing.T, url string) rawPeer {
	t.Helper()
	p := &rawHTTP{url: url}
	if answer := p.request(t, "initialize", rawInitialize); answer.Error != nil {
		t.Fatalf("initialize: %s", answer.Error)
	}
	p.post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return p
}

func (p *rawHTTP) close() error { return nil }

func (p *rawHTTP) post(t *testing.T, message string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url, strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if p.session != "" {
		req.Header.Set("Mcp-Session-Id", p.session)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("%s: %s %v\n%s", message, resp.Status, err, body)
	}
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" {
		p.session = s
	}
	return body
}

func (p *rawHTTP) request(t *testing.T, method, params string) rawAnswer {
	t.Helper()
	p.next++
	body := p.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, p.next, method, params))
	for line := range bytes.Lines(body) {
		line = bytes.TrimPrefix(line, []byte("data:")) // in case it is an event stream
		var got rawAnswer
		if json.Unmarshal(line, &got) == nil && string(got.ID) == fmt.Sprint(p.next) && got.Method == "" {
			return got
		}
	}
	t.Fatalf("%s: no answer in %s", method, body)
	return rawAnswer{}
}
