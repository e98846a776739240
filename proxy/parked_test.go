package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"coffer/jsonrpc"
	"coffer/upstream"
	"coffer/upstream/upstreamtest"
)

// parkedSession is a client of 2026-07-28 before one server of the handshake era,
// and a call of its that the server has got and not answered.
type parkedSession struct {
	t       *testing.T
	session *Session
	server  *upstreamtest.Conn
	asked   chan string // lines that the server got and does not answer by itself
	in      *io.PipeWriter
	out     *bufio.Reader
	call    *exchange
	id      string // of the call, as the server has it
}

const parkedMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}`

func newParkedSession(t *testing.T) *parkedSession {
	p := &parkedSession{t: t, asked: make(chan string, 10)}
	server := upstreamtest.NewServer(upstreamtest.Script{})
	server.Watch = func(c *upstreamtest.Conn, m *jsonrpc.Message, line []byte) bool {
		if m == nil || m.Method == "tools/call" || m.Method == "" {
			p.server = c
			p.asked <- string(line)
			return true
		}
		return false
	}
	spec := upstream.Spec{Name: "fs", AutoEnable: true, ConnectTimeout: time.Minute, ListTimeout: time.Minute}
	p.session = New(Options{
		Config: &upstream.Config{Servers: []upstream.Spec{spec}, MaxNameLength: 64},
		Log:    zerolog.Nop(),
		Dial: func(*upstream.Spec) (io.ReadCloser, io.WriteCloser, error) {
			_, from, to := server.Dial()
			return from, to, nil
		},
	})
	in, toIn := io.Pipe()
	fromOut, out := io.Pipe()
	p.in, p.out = toIn, bufio.NewReader(fromOut)
	ended := make(chan error)
	go func() { ended <- p.session.Serve(context.Background(), in, out) }()
	t.Cleanup(func() {
		toIn.Close()
		fromOut.Close() // what is still to be said, nobody hears
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs__a",%s}}`, parkedMeta)
	p.id = p.next("id")
	p.session.parked.mu.Lock()
	p.call = p.session.parked.running[0]
	p.session.parked.mu.Unlock()
	return p
}

// send writes a line of the client.
func (p *parkedSession) send(format string, args ...any) {
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
}

// next returns a member of the next line that the server gets.
func (p *parkedSession) next(member string) string {
	select {
	case line := <-p.asked:
		return string(jsonrpc.Lookup([]byte(line), member))
	case <-time.After(time.Minute):
		p.t.Fatal("the server gets nothing")
		return ""
	}
}

// answer returns the next line that the client gets.
func (p *parkedSession) answer() []byte {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	return line
}

// ask has the server ask, and finish ends its call.
func (p *parkedSession) ask() {
	p.server.Send([]byte(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`))
}

func (p *parkedSession) finish() {
	p.server.Send([]byte(`{"jsonrpc":"2.0","id":` + p.id + `,"result":{"content":[]}}`))
}

// TestParkedAnswerIsLast: a call whose answer has come is not answered with a
// question that its server had put before it, which is due while the answer is
// still being made ready. The answer would be lost, and the retry never answered.
func TestParkedAnswerIsLast(t *testing.T) { synctest.Test(t, testParkedAnswerIsLast) }

func testParkedAnswerIsLast(t *testing.T) {
	p := newParkedSession(t)
	p.call.rewrite = func(_ string, result []byte) []byte {
		p.session.parked.put(p.call) // as the timer does
		return result
	}
	p.ask()
	p.finish()
	if got := string(p.answer()); !strings.Contains(got, `"resultType":"complete"`) {
		t.Errorf("the call was answered with %s", got)
	}
}

// TestParkedTimerLate: the timer of questions that have been put already does
// nothing when it comes late. (It took the time limit of the parked call away,
// and the retry met nothing where that was.)
func TestParkedTimerLate(t *testing.T) { synctest.Test(t, testParkedTimerLate) }

func testParkedTimerLate(t *testing.T) {
	p := newParkedSession(t)
	p.ask()
	token := jsonrpc.Lookup(p.answer(), "result", "requestState")
	p.session.parked.put(p.call)
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"fs__a","requestState":%s,"inputResponses":{"q1":{"roots":[]}},%s}}`, token, parkedMeta)
	if got := p.next("result"); got != `{"roots":[]}` {
		t.Errorf("the server got %s for its question", got)
	}
	p.finish()
	if got := string(p.answer()); !strings.Contains(got, `"resultType":"complete"`) {
		t.Errorf("the retry was answered with %s", got)
	}
}
