package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"coffer/testdata/bench/toy"
)

// client is one way to ask something of a server.
type client interface {
	// ask sends one request, a line, and returns the line that answers it,
	// which is good until the next ask.
	ask(request []byte) (answer []byte, err error)
	// tell sends a notification.
	tell(notice []byte) error
	close() error
}

// session is a client of a process, over its stdin and stdout. Its descriptors
// block, so that a read returns without a detour through the runtime's poller.
type session struct {
	cmd  *exec.Cmd
	in   *os.File
	out  *os.File
	buf  []byte
	r, w int // buf[r:w] is read and not yet taken
}

// startSession starts command in a process.
func startSession(command []string) (*session, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, os.Stderr
	err = cmd.Start()
	theirIn.Close()
	theirOut.Close()
	if err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	in.Fd() // makes it block
	out.Fd()
	return &session{cmd: cmd, in: in, out: out, buf: make([]byte, 256<<10)}, nil
}

func (s *session) tell(notice []byte) error {
	_, err := s.in.Write(notice)
	return err
}

func (s *session) ask(request []byte) ([]byte, error) {
	if err := s.tell(request); err != nil {
		return nil, err
	}
	return s.line()
}

// line returns the next line without its end.
func (s *session) line() ([]byte, error) {
	for seen := s.r; ; {
		if i := bytes.IndexByte(s.buf[seen:s.w], '\n'); i >= 0 {
			line := s.buf[s.r : seen+i]
			s.r = seen + i + 1
			return line, nil
		}
		if s.r > 0 {
			s.w = copy(s.buf, s.buf[s.r:s.w])
			s.r = 0
		}
		if s.w == len(s.buf) {
			s.buf = append(s.buf, make([]byte, len(s.buf))...)
		}
		seen = s.w
		n, err := s.out.Read(s.buf[s.w:])
		if n == 0 {
			return nil, fmt.Errorf("%s: its stdout ended: %w", s.cmd.Path, err)
		}
		s.w += n
	}
}

// closeLimit is how long a process may take to end after its stdin was closed.
const closeLimit = 5 * time.Second

func (s *session) close() error {
	s.in.Close()
	late := time.AfterFunc(closeLimit, func() { s.cmd.Process.Kill() })
	defer late.Stop()
	err := s.cmd.Wait()
	s.out.Close()
	if err != nil {
		return fmt.Errorf("%s: %w", s.cmd.Path, err)
	}
	return nil
}

// fan is several clients of which each request, but for a notification, goes to
// the next one.
type fan struct {
	clients []client
	last    int
}

func (f *fan) ask(request []byte) ([]byte, error) {
	f.last++
	return f.clients[f.last%len(f.clients)].ask(request)
}

func (f *fan) tell(notice []byte) error {
	for _, c := range f.clients {
		if err := c.tell(notice); err != nil {
			return err
		}
	}
	return nil
}

func (f *fan) close() error {
	var errs []error
	for _, c := range f.clients {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}

const (
	helloLine = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}` + "\n"
	readyLine = `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
)

// hello does the first half of the handshake.
func hello(c client) error {
	answer, err := c.ask([]byte(helloLine))
	if err != nil {
		return err
	}
	var m struct {
		ID     *int
		Result struct {
			ProtocolVersion string
			Capabilities    struct{ Tools *struct{} }
		}
	}
	if err := json.Unmarshal(answer, &m); err != nil || m.ID == nil || *m.ID != 0 || m.Result.ProtocolVersion != "2025-11-25" || m.Result.Capabilities.Tools == nil {
		return wrong(answer, "a result of initialize")
	}
	return nil
}

// ready does the second half.
func ready(c client) error { return c.tell([]byte(readyLine)) }

// lister asks for lists and checks them.
type lister struct {
	request []byte
	want    []byte
}

// newLister demands list as the result.
func newLister(list []byte) *lister {
	return &lister{
		request: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n"),
		want:    fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":%s}`, list),
	}
}

func (l *lister) list(c client) error {
	answer, err := c.ask(l.request)
	if err == nil && !bytes.Equal(answer, l.want) {
		err = wrong(answer, string(l.want))
	}
	return err
}

// caller makes calls and checks their answers. It counts through the ids of
// one client.
type caller struct {
	id      int
	request []byte
	want    []byte
}

// call makes one call of the tool of that merged name.
func (k *caller) call(c client, name string, size, ms int) error {
	return k.callAs(c, name, name, size, ms)
}

// callAs is call under the name that the server itself knows the tool by.
func (k *caller) callAs(c client, own, merged string, size, ms int) error {
	k.id++
	k.request = toy.AppendCall(k.request[:0], k.id, own, k.id, size, ms)
	answer, err := c.ask(k.request)
	if err == nil {
		err = k.check(answer, k.id, merged, size)
	}
	return err
}

// besideSlow makes a call that takes ms milliseconds, and others one at a time
// until it is answered. It returns how long the longest of them took.
func (k *caller) besideSlow(s *session, fast, slow string, ms int) (worst time.Duration, err error) {
	k.id++
	first := k.id
	if err := s.tell(toy.AppendCall(nil, first, slow, first, 0, ms)); err != nil {
		return 0, err
	}
	for answered := false; !answered; {
		k.id++
		k.request = toy.AppendCall(k.request[:0], k.id, fast, k.id, 0, 0)
		began := time.Now()
		if err := s.tell(k.request); err != nil {
			return 0, err
		}
		for id := 0; id != k.id; {
			answer, err := s.line()
			if err != nil {
				return 0, err
			}
			name := fast
			if id = idOf(answer); id == first {
				name, answered = slow, true
			}
			if err := k.check(answer, id, name, 0); err != nil {
				return 0, err
			}
		}
		worst = max(worst, time.Since(began))
	}
	return worst, nil
}

// check demands that answer is what the tool of that name says to call id.
func (k *caller) check(answer []byte, id int, name string, size int) error {
	k.want = strconv.AppendInt(append(k.want[:0], `{"jsonrpc":"2.0","id":`...), int64(id), 10)
	k.want = append(toy.AppendResult(append(k.want, `,"result":`...), []byte(name), id, size), '}')
	if !bytes.Equal(answer, k.want) {
		return wrong(answer, string(k.want))
	}
	return nil
}

// window makes count calls with that many in flight, the i-th of the tool
// name(i), and checks each answer. Each call is a write of its own, as clients
// do it: a relay of bytes handed several at a time would have one message's work
// for all of them, a proxy cannot.
func (k *caller) window(s *session, width, count int, name func(i int) string) error {
	first := k.id + 1
	k.id += count
	open := make(map[int]struct{}, width)
	send := func(id int) error {
		open[id] = struct{}{}
		k.request = toy.AppendCall(k.request[:0], id, name(id-first), id, 0, 0)
		return s.tell(k.request)
	}
	next := first
	for ; next < first+min(width, count); next++ {
		if err := send(next); err != nil {
			return err
		}
	}
	for len(open) > 0 {
		answer, err := s.line()
		if err != nil {
			return err
		}
		id := idOf(answer)
		if _, waiting := open[id]; !waiting {
			return wrong(answer, "an answer to an open call")
		}
		delete(open, id)
		if err := k.check(answer, id, name(id-first), 0); err != nil {
			return err
		}
		if next < first+count {
			if err := send(next); err != nil {
				return err
			}
			next++
		}
	}
	return nil
}

// idOf returns the integer id of an answer, or -1.
func idOf(answer []byte) int {
	text, ok := bytes.CutPrefix(answer, []byte(`{"jsonrpc":"2.0","id":`))
	if end := bytes.IndexByte(text, ','); ok && end > 0 {
		if id, err := strconv.Atoi(string(text[:end])); err == nil {
			return id
		}
	}
	return -1
}

// wrong says that an answer is not what it has to be.
func wrong(answer []byte, want string) error {
	return errors.New("wrong answer: got " + shorten(string(answer)) + ", want " + shorten(want))
}

func shorten(text string) string {
	const most = 300
	if len(text) > most {
		return fmt.Sprintf("%s… (%d bytes)", text[:most], len(text))
	}
	return text
}
