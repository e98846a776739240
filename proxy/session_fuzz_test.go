package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"coffer/jsonrpc"
	"coffer/proxy"
	"coffer/upstream"
	"coffer/upstream/upstreamtest"
)

// fuzzLimit is longer than any session lasts.
const fuzzLimit = time.Hour

// dice makes choices by the bytes of a fuzz input; when they are used up, always
// the first.
type dice struct{ bytes []byte }

func (d *dice) below(n int) int {
	if len(d.bytes) == 0 {
		return 0
	}
	b := d.bytes[0]
	d.bytes = d.bytes[1:]
	return int(b) % n
}

func (d *dice) of(texts ...string) string { return texts[d.below(len(texts))] }

// value is some JSON.
func (d *dice) value(depth int) string {
	kind := d.below(8)
	switch {
	case kind == 0 && depth < 5:
		return "[" + d.space() + d.value(depth+1) + d.space() + "," + d.value(depth+1) + "]"
	case kind == 1 && depth < 5:
		return "{" + d.space() + d.key() + d.space() + ":" + d.space() + d.value(depth+1) + "," + d.key() + ":" + d.value(depth+1) + d.space() + "}"
	case kind == 2:
		n := d.below(40)
		n = min(n, len(d.bytes))
		text := d.bytes[:n]
		d.bytes = d.bytes[n:]
		return string(jsonrpc.Quote(string(bytes.ToValidUTF8(text, nil))))
	case kind == 3:
		size := 1 << d.below(10)
		if d.below(16) == 1 {
			size = 40 << 10 // so long that it is written by itself
		}
		return fmt.Sprintf(`"%s"`, bytes.Repeat([]byte(d.of("x", `\u00e9`, "é", `\\`)), size))
	}
	return d.of(`0`, `-0`, `1.10`, `1e400`, `9007199254740993`, `-12345678901234567890123`, `true`, `null`, `""`, `"é"`, `"\u00e9"`,
		`"\ud83d\ude00"`, `"\ud800"`, `"a\/b"`, `"\u0000"`, `"<&>\u2028"`, `[]`, `{}`, `{"a":1,"a":2}`, `"{\"id\":1}"`)
}

func (d *dice) space() string { return d.of("", "", " ", "\t", "  ") }

func (d *dice) key() string {
	return d.of(`"a"`, `"b"`, `"name"`, `"uri"`, `"id"`, `"_meta"`, `"progressToken"`, `"jsonrpc"`, `"result"`, `"\u006eame"`, `""`, `"é"`)
}

// params are those of a request that is forwarded. Members that mean something
// are there once, wherever.
func (d *dice) params(i int, method string) string {
	own := map[string]string{
		"tools/call":          `"name":` + d.of(`"t1"`, `"t2"`, `"a__b"`, `"näme"`, `"x y"`),
		"prompts/get":         `"name":` + d.of(`"p1"`, `"p 2"`),
		"resources/read":      `"uri":` + d.of(`"mem://a"`, `"mem://unlisted/é"`, `"x:"`),
		"completion/complete": `"ref":{"type":"ref/prompt","name":"p1"},"argument":{"name":"n","value":` + d.of(`"v"`, `"é"`) + `}`,
	}[method]
	members := []string{own, d.of(`"arguments":`, `"more":`) + d.value(0), fmt.Sprintf(`"n":"#%d#"`, i)}
	if d.below(2) == 1 {
		token := d.of(fmt.Sprintf(`"token %d"`, i), fmt.Sprint(i), fmt.Sprint(-i))
		members = append(members, `"_meta":{`+d.space()+d.of(``, `"x/y":1.0,`)+`"progressToken":`+token+d.of(``, `,"z":{"progressToken":0}`)+`}`)
	}
	if own == "" {
		members = members[1:]
	}
	if d.below(2) == 1 {
		slices.Reverse(members)
	}
	var out []byte
	for _, m := range members {
		out = append(append(append(out, ','), d.space()...), m...)
	}
	return "{" + string(out[1:]) + d.space() + "}"
}

// request is the line of a request that is forwarded.
func (d *dice) request(i int) string {
	method := d.of("tools/call", "tools/call", "prompts/get", "resources/read", "completion/complete", "vendor/own")
	id := d.of(fmt.Sprint(i), fmt.Sprint(-i), fmt.Sprintf(`"%d"`, i), fmt.Sprintf(`"id é \" %d"`, i), fmt.Sprintf("90071992547409930%02d", i))
	members := []string{`"jsonrpc":"2.0"`, `"id":` + d.space() + id, `"method":` + `"` + method + `"`, `"params":` + d.params(i, method)}
	if d.below(2) == 1 {
		slices.Reverse(members)
	}
	var out []byte
	for _, m := range members {
		out = append(append(append(out, ','), d.space()...), m...)
	}
	return "{" + string(out[1:]) + "}"
}

// frank answers every request with what it got, and talks before and between.
// What it says depends on the request alone, less id and progress token.
type frank struct {
	mu  sync.Mutex
	got []string // guarded by mu: the requests
}

func (a *frank) watch(c *upstreamtest.Conn, m *jsonrpc.Message, _ []byte) bool {
	if m == nil || !m.IsRequest() || m.Method == "initialize" || m.Method == "server/discover" || strings.HasSuffix(m.Method, "/list") {
		return false // coffer's own
	}
	params := m.Params
	if token := jsonrpc.Lookup(params, "_meta", "progressToken"); token != nil {
		params = jsonrpc.Splice(params, jsonrpc.Edit{Old: token, New: []byte(`"token"`)})
		for i := range len(params) % 3 {
			c.Send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1.%d0,"progressToken":%s,"more":%s}}`, i, token, params))
		}
	}
	a.mu.Lock()
	a.got = append(a.got, m.Method+" "+string(params))
	a.mu.Unlock()
	if len(params)%4 == 1 {
		c.Send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%s}}`, params))
	}
	answer := &jsonrpc.Message{ID: m.ID, Result: fmt.Appendf(nil, `{"got": %s,"method":%q}`, params, m.Method)}
	if len(params)%5 == 0 {
		answer = &jsonrpc.Message{ID: m.ID, Error: fmt.Appendf(nil, `{"code":%d, "message":"no\u0021","data":%s}`, len(params), params)}
	}
	c.Send(answer.Append(nil))
	return true
}

// heard is what a client hears.
type heard struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (h *heard) read(r io.Reader) {
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		h.mu.Lock()
		h.lines = append(h.lines, line)
		h.mu.Unlock()
	}
}

// play has a client shake hands and send text in pieces, and returns what it
// then hears, once all has become quiet.
func play(to io.WriteCloser, from io.Reader, text []byte, piece int) []string {
	var h heard
	var reading sync.WaitGroup
	reading.Go(func() { h.read(from) })
	fmt.Fprintln(to, `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":`+defaultClient+`}`)
	synctest.Wait()
	fmt.Fprintln(to, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	synctest.Wait()
	h.mu.Lock()
	before := len(h.lines)
	h.mu.Unlock()
	for rest := text; len(rest) > 0; {
		n := min(len(rest), piece)
		to.Write(rest[:n])
		rest = rest[n:]
	}
	synctest.Wait()
	to.Close()
	reading.Wait()
	return h.lines[before:]
}

// FuzzSession: whatever valid requests a client sends, it hears from a server
// through coffer, byte for byte and about each request in the same order, what it
// hears from the server itself; and the server gets the same requests.
func FuzzSession(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("one request and another, and so on: the bytes are choices, not text"))
	for i := range 16 {
		seed := make([]byte, 200)
		for at := range seed {
			seed[at] = byte(at*at*(i+1) + at>>2 + i*37)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		d := &dice{choices}
		piece := []int{1 << 20, 4096, 700, 97}[d.below(4)]
		var text []byte
		for i := 1; i == 1 || len(d.bytes) > 0 && i <= 20; i++ {
			text = append(append(text, d.request(i)...), '\n')
		}
		var without, through frank
		var want, got []string
		synctest.Test(t, func(t *testing.T) { want = playDirect(&without, text, piece) })
		synctest.Test(t, func(t *testing.T) { got = playThrough(t, &through, text, piece) })
		compareLines(t, text, "client hears", got, want)
		compareLines(t, text, "server gets", through.got, without.got)
	})
}

// compareLines compares what is about each request. Requests themselves may
// overtake each other: one may have to wait for a list.
func compareLines(t *testing.T, sent []byte, what string, got, want []string) {
	t.Helper()
	about := func(line string) int {
		_, after, _ := strings.Cut(line, `"n":"#`) // within other texts the quotes are escaped
		number, _, _ := strings.Cut(after, "#")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Errorf("the %s what is about no request: %.300q", what, line)
		}
		return n
	}
	for _, lines := range [][]string{got, want} {
		slices.SortStableFunc(lines, func(a, b string) int { return about(a) - about(b) })
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("the client sends\n%.2000s\nand the %s %d lines, the different one is\n%.1000q\nwithout coffer %d lines\n%.1000q",
				sent, what, len(got), got[min(i, len(got)):min(i+1, len(got))], len(want), want[min(i, len(want)):min(i+1, len(want))])
		}
	}
}

func playDirect(a *frank, text []byte, piece int) []string {
	server := upstreamtest.NewServer(upstreamtest.Script{})
	server.Watch = a.watch
	_, from, to := server.Dial()
	return play(to, from, text, piece)
}

func playThrough(t *testing.T, a *frank, text []byte, piece int) []string {
	server := upstreamtest.NewServer(upstreamtest.Script{})
	server.Watch = a.watch
	none := ""
	config := &upstream.Config{
		Servers:       []upstream.Spec{{Name: "one", Prefix: &none, Command: "one", AutoEnable: true, ConnectTimeout: fuzzLimit, ListTimeout: fuzzLimit}},
		MaxNameLength: 64, MaxMessageSize: 1 << 20, CacheTTL: fuzzLimit,
	}
	session := proxy.New(proxy.Options{
		Config: config, Version: "1.0", Log: zerolog.Nop(),
		Dial: func(*upstream.Spec) (io.ReadCloser, io.WriteCloser, error) {
			_, from, to := server.Dial()
			return from, to, nil
		},
	})
	in, to := io.Pipe()
	from, out := io.Pipe()
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := session.Serve(context.Background(), in, out); err != nil {
			t.Error(err)
		}
		in.Close()
		out.Close()
	})
	heard := play(to, from, text, piece)
	serving.Wait()
	return heard
}
