package proxy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"coffer/jsonrpc"
	"coffer/upstream/upstreamtest"
)

// wireClient is the client of a session: C in a transcript.
type wireClient struct {
	w    *wire
	to   *io.PipeWriter
	from *io.PipeReader
	done chan struct{} // closed when there is no more to read

	mu   sync.Mutex
	gate chan struct{} // guarded by mu: closed while the client reads
}

func newWireClient(w *wire, to *io.PipeWriter, from *io.PipeReader) *wireClient {
	c := &wireClient{w: w, to: to, from: from, done: make(chan struct{}), gate: make(chan struct{})}
	close(c.gate)
	return c
}

// read records what the client is sent, until coffer closes its stdout.
func (c *wireClient) read() {
	defer close(c.done)
	r := bufio.NewReader(c.from)
	for {
		line, err := r.ReadBytes('\n')
		c.mu.Lock()
		gate := c.gate
		c.mu.Unlock()
		c.w.say("C", true, line)
		<-gate
		if len(line) > 0 {
			c.w.record("C", string(bytes.TrimSuffix(line, []byte("\n"))))
		}
		if err != nil {
			return
		}
	}
}

func (c *wireClient) send(line []byte) { c.write(append(bytes.Clone(line), '\n')) }

func (c *wireClient) write(text []byte) {
	for line := range bytes.Lines(text) {
		c.w.say("C", false, line)
	}
	// An error means that the session has ended: the transcript shows that.
	_, _ = c.to.Write(text)
}

func (c *wireClient) close() { c.to.Close() }

func (c *wireClient) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.gate:
	default:
		close(c.gate)
	}
}

// act performs `C …`.
func (c *wireClient) act(text string) error {
	verb, rest, _ := strings.Cut(text, " ")
	switch verb {
	case "closes":
		c.close()
	case "stdout": // closes
		c.from.Close()
	case "deaf":
		c.mu.Lock()
		c.gate = make(chan struct{})
		c.mu.Unlock()
	case "hears":
		c.resume()
	case "raw":
		raw, err := strconv.Unquote(rest)
		if err != nil {
			return err
		}
		c.write([]byte(raw))
	default:
		return fmt.Errorf("a client cannot %q", verb)
	}
	return nil
}

// wireUpstream is one upstream of a session: the scripted server, of which the
// transcript tells what is not automatic.
type wireUpstream struct {
	w      *wire
	name   string
	server *upstreamtest.Server

	mu    sync.Mutex
	auto  map[string]bool      // guarded by mu: methods that the server answers by itself
	down  bool                 // guarded by mu: dialling fails
	conns []*upstreamtest.Conn // guarded by mu: all so far
}

// automatic is what a transcript need not tell.
var automatic = []string{
	"initialize", "notifications/initialized", "ping", "server/discover", "subscriptions/listen",
	"tools/list", "resources/list", "resources/templates/list", "prompts/list",
}

// addUpstream adds the upstream of that name and does what its section says.
func (w *wire) addUpstream(name string) {
	u := &wireUpstream{w: w, name: name, server: upstreamtest.NewServer(upstreamtest.Script{}), auto: map[string]bool{}}
	for _, method := range automatic {
		u.auto[method] = true
	}
	u.server.Watch = u.watch
	u.server.Left = func(c *upstreamtest.Conn) { w.record(u.label(c), "(closed)") }
	w.upstreams[name] = u
	for _, line := range w.script.lines(name) {
		if err := u.act(0, line.text); err != nil {
			w.t.Fatalf("%s: section %s: %s: %v", w.script.name, name, line.text, err)
		}
	}
}

// label names a connection: the first by the server's name alone.
func (u *wireUpstream) label(c *upstreamtest.Conn) string {
	if c.Number == 1 {
		return u.name
	}
	return fmt.Sprintf("%s#%d", u.name, c.Number)
}

func (u *wireUpstream) dial() (io.ReadCloser, io.WriteCloser, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down {
		u.w.record(u.name, "(refused)")
		return nil, nil, errors.New("fake: connection refused")
	}
	c, from, to := u.server.Dial()
	u.conns = append(u.conns, c)
	return &overheard{ReadCloser: from, w: u.w, label: u.label(c)}, to, nil
}

// watch records what the transcript has to tell.
func (u *wireUpstream) watch(c *upstreamtest.Conn, m *jsonrpc.Message, line []byte) bool {
	u.w.say(u.label(c), true, line)
	u.mu.Lock()
	defer u.mu.Unlock()
	if m != nil && m.Method != "" && u.auto[m.Method] {
		return false
	}
	u.w.record(u.label(c), string(line))
	return true
}

// conn returns the connection with that number; 0 is the newest.
func (u *wireUpstream) conn(number int) (*upstreamtest.Conn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if number == 0 {
		number = len(u.conns)
	}
	if number == 0 || number > len(u.conns) {
		return nil, fmt.Errorf("%s has no connection %d", u.name, number)
	}
	return u.conns[number-1], nil
}

func (u *wireUpstream) killAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.conns {
		c.Die(0)
	}
}

// act performs `NAME …`, or one line of the upstream's section.
func (u *wireUpstream) act(number int, text string) error {
	verb, rest, _ := strings.Cut(text, " ")
	switch verb {
	case "offers":
		filled, err := fillWords(rest, u.w.vars)
		if err != nil {
			return err
		}
		return u.offer(string(filled))
	case "tells", "answers":
		u.mu.Lock()
		for method := range strings.FieldsSeq(rest) {
			u.auto[method] = verb == "answers"
		}
		u.mu.Unlock()
	case "down", "up":
		u.mu.Lock()
		u.down = verb == "down"
		u.mu.Unlock()
	case "dies":
		c, err := u.conn(number)
		if err != nil {
			return err
		}
		c.Die(1)
	case "raw":
		raw, err := strconv.Unquote(rest)
		if err != nil {
			return err
		}
		return u.w.send(u.name, number, []byte(raw))
	case "rule":
		var rule upstreamtest.Rule
		if err := json.Unmarshal([]byte(rest), &rule); err != nil {
			return err
		}
		u.server.Change(func(s *upstreamtest.Script) { s.Rules = append(s.Rules, rule) })
	default:
		return fmt.Errorf("an upstream cannot %q", verb)
	}
	return nil
}

// offer changes what the upstream has: `tools a b`, `tools t*1000` (t1 to t1000)
// or `tools [{…}]`, and so on.
func (u *wireUpstream) offer(text string) error {
	what, rest, _ := strings.Cut(text, " ")
	if what == "capabilities" || what == "instructions" || what == "versions" || what == "page" || what == "ttl" {
		return u.describe(what, rest)
	}
	if minimal[what] == "" {
		return fmt.Errorf("an upstream cannot offer %q", what)
	}
	var items []json.RawMessage
	if strings.HasPrefix(rest, "[") {
		elements, ok := jsonrpc.Elements([]byte(rest))
		if !ok {
			return errors.New("not a JSON array")
		}
		for _, e := range elements {
			items = append(items, e)
		}
	} else {
		for word := range strings.FieldsSeq(rest) {
			name, count, many := strings.Cut(word, "*")
			n, err := strconv.Atoi(count)
			if !many || err != nil {
				items = append(items, minimalItem(what, word))
			}
			for i := range n {
				items = append(items, minimalItem(what, name+strconv.Itoa(i+1)))
			}
		}
	}
	u.server.Change(func(s *upstreamtest.Script) {
		switch what {
		case "tools":
			s.Tools = items
		case "prompts":
			s.Prompts = items
		case "resources":
			s.Resources = items
		case "templates":
			s.Templates = items
		}
	})
	return nil
}

// minimal is what a word stands for where an item is wanted: no more than the
// schemas require.
var minimal = map[string]string{
	"tools":     `{"name":%q,` + anySchema + `}`,
	"prompts":   `{"name":%q}`,
	"resources": `{"uri":%[1]q,"name":%[1]q}`,
	"templates": `{"uriTemplate":%[1]q,"name":%[1]q}`,
}

func minimalItem(what, word string) json.RawMessage { return fmt.Appendf(nil, minimal[what], word) }

// describe changes what the upstream says of itself at the next handshake.
func (u *wireUpstream) describe(what, text string) (err error) {
	u.server.Change(func(s *upstreamtest.Script) {
		switch what {
		case "capabilities":
			s.Capabilities = json.RawMessage(text)
		case "instructions":
			s.Instructions = text
		case "versions":
			s.Versions = strings.Fields(text)
		case "ttl":
			var ms int
			ms, err = strconv.Atoi(text)
			s.TTL = &ms
		case "page":
			s.Page, err = strconv.Atoi(text)
		}
	})
	return err
}
