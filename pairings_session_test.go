package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"coffer/jsonrpc"
	"coffer/upstream/upstreamtest"
)

// pairingLimit is how long a step may take; it takes some milliseconds.
const pairingLimit = time.Minute

// pairing is a client of one era, line by line, and a coffer with one upstream,
// "up".
type pairing struct {
	*testing.T // the step under way
	modern     bool
	cmd        *exec.Cmd
	stdin      io.WriteCloser
	messages   chan *jsonrpc.Message // closed at coffer's EOF
	stderr     bytes.Buffer
	trace      string // what the upstream has said and heard
	ids        int
	listen     string // id of the client's subscriptions/listen

	mu      sync.Mutex
	traffic *upstreamtest.Traffic // guarded by mu: what coffer sends to the client
	faults  []upstreamtest.Fault  // guarded by mu
}

func raws(texts ...[]byte) []json.RawMessage {
	var all []json.RawMessage
	for _, text := range texts {
		all = append(all, text)
	}
	return all
}

// pairingSchemas are read once for all pairings.
var pairingSchemas = sync.OnceValues(func() (*upstreamtest.Schemas, error) {
	return upstreamtest.ReadSchemas("testdata/schema")
})

// startPairing starts coffer between a client and an upstream, with the
// handshake done if the client's era has one. open starts or serves the
// upstream, which writes its trace where it is told.
func startPairing(t *testing.T, version string, open func(trace string) realServer) *pairing {
	t.Helper()
	schemas, err := pairingSchemas()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	p := &pairing{
		T: t, modern: version == statelessVersion, messages: make(chan *jsonrpc.Message, 100),
		trace: filepath.Join(folder, "trace"), traffic: schemas.Check(true),
	}
	config := filepath.Join(folder, "config.json")
	entry := open(p.trace)
	entry.patience = patience{ListTimeout: pairingLimit.String(), ConnectTimeout: pairingLimit.String()}
	writeServers(t, config, map[string]realServer{"up": entry})

	p.cmd = exec.Command(cofferBinary(t), "serve", "--config", config, "--db", filepath.Join(folder, "coffer.db"), "--log-level", "debug")
	p.cmd.Env = append(os.Environ(), "GORACE="+atOnce)
	p.cmd.Stderr = &p.stderr
	p.stdin, err = p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() }) // or the upstream would wait for it when a step has failed
	go p.read(stdout)
	if !p.modern {
		p.result(p.request("initialize", `{"protocolVersion":"`+version+`","capabilities":{"elicitation":{},"roots":{}},"clientInfo":{"name":"pairing","version":"1"}}`))
		p.notify("notifications/initialized", `{}`)
	}
	return p
}

// read hands on what coffer says, once it has been checked.
func (p *pairing) read(stdout io.Reader) {
	defer close(p.messages)
	r := bufio.NewReader(stdout)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		line = bytes.TrimSpace(line)
		p.mu.Lock()
		p.faults = append(p.faults, p.traffic.Sent(line)...)
		p.mu.Unlock()
		if m, err := jsonrpc.Parse(line); err == nil {
			p.messages <- m
		}
	}
}

// within runs one step as a test of its own.
func (p *pairing) within(t *testing.T, run func(*pairing)) {
	whole := p.T
	defer func() { p.T = whole }()
	p.T = t
	run(p)
}

func (p *pairing) send(line string) {
	p.Helper()
	p.mu.Lock()
	p.traffic.Received([]byte(line))
	p.mu.Unlock()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.Fatal(err)
	}
}

func (p *pairing) notify(method, params string) {
	p.Helper()
	p.send(`{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`)
}

// request sends a request, with what every one of 2026-07-28 carries, and
// returns its id.
func (p *pairing) request(method, params string) (id string) {
	p.Helper()
	p.ids++
	id = fmt.Sprint(p.ids)
	if p.ids%2 == 0 {
		id = fmt.Sprintf("%q", id)
	}
	if p.modern {
		meta := jsonrpc.Lookup([]byte(params), "_meta")
		if meta == nil {
			meta = []byte(`{}`)
		}
		meta = jsonrpc.Set(meta, "io.modelcontextprotocol/protocolVersion", []byte(`"`+statelessVersion+`"`))
		meta = jsonrpc.Set(meta, "io.modelcontextprotocol/clientCapabilities", []byte(`{"elicitation":{},"roots":{}}`))
		params = string(jsonrpc.Set([]byte(params), "_meta", meta))
	}
	p.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
	return id
}

// next returns what coffer says next.
func (p *pairing) next() *jsonrpc.Message {
	p.Helper()
	select {
	case m, open := <-p.messages:
		if !open {
			p.Fatal("coffer has gone")
		}
		return m
	case <-time.After(pairingLimit):
		p.Fatalf("nothing came within %v", pairingLimit)
		return nil
	}
}

// result returns the result of a request, which must be what comes next.
func (p *pairing) result(id string) []byte {
	p.Helper()
	m := p.next()
	if string(m.ID) != id || m.Result == nil {
		p.Fatalf("got id %s, %s %s error %s; want the result of %s", m.ID, m.Method, m.Params, m.Error, id)
	}
	return m.Result
}

// notification returns the notification that must come next.
func (p *pairing) notification(method string) *jsonrpc.Message {
	p.Helper()
	m := p.next()
	if m.Method != method || !m.IsNotification() {
		p.Fatalf("got id %s, %s result %s error %s; want %s", m.ID, m.Method, m.Result, m.Error, method)
	}
	return m
}

// ofEra checks that a result has what only those of 2026-07-28 have, or nothing
// of it.
func (p *pairing) ofEra(result []byte, members ...string) {
	p.Helper()
	for _, name := range members {
		if has := jsonrpc.Lookup(result, name) != nil; has != p.modern {
			p.Errorf("%s there is %v in %s", name, has, result)
		}
	}
}

// tagged checks that a notification says which subscription it is of, where
// there are such.
func (p *pairing) tagged(m *jsonrpc.Message) {
	p.Helper()
	if got := string(jsonrpc.Lookup(m.Params, "_meta", "io.modelcontextprotocol/subscriptionId")); got != p.listen {
		p.Errorf("%s %s is tagged %q, want %q", m.Method, m.Params, got, p.listen)
	}
}

// end ends the session. Nothing may be left that no step has waited for, and
// nothing of all that coffer has said may break a schema.
func (p *pairing) end(t *testing.T) {
	p.stdin.Close()
	if p.listen != "" {
		p.result(p.listen) // a server that shuts down ends subscriptions
	}
	for m := range p.messages {
		t.Errorf("there came also: id %s, %s %s result %s error %s", m.ID, m.Method, m.Params, m.Result, m.Error)
	}
	if err := waitFor(t, p.cmd); err != nil {
		t.Errorf("coffer ended with: %v", err)
	}
	for _, fault := range append(p.faults, upstreamFaults(t, p.trace)...) {
		t.Errorf("coffer sends what breaks the schema: %s", fault)
	}
	if t.Failed() {
		t.Logf("coffer's stderr:\n%s", p.stderr.String())
		trace, _ := os.ReadFile(p.trace)
		t.Logf("at the upstream:\n%s", trace)
	}
}

// upstreamFaults checks what coffer has said to an upstream.
func upstreamFaults(t *testing.T, trace string) []upstreamtest.Fault {
	t.Helper()
	schemas, err := pairingSchemas()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var faults []upstreamtest.Fault
	conns := map[string]*upstreamtest.Traffic{}
	for line := range strings.Lines(string(text)) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 3)
		conn := conns[words[0]]
		if conn == nil {
			conn = schemas.Check(false)
			conns[words[0]] = conn
		}
		if words[1] == "<" {
			faults = append(faults, conn.Sent([]byte(words[2]))...)
		} else {
			conn.Received([]byte(words[2]))
		}
	}
	return faults
}
