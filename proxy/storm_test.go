package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"coffer/jsonrpc"
	"coffer/proxy"
	"coffer/upstream"
	"coffer/upstream/upstreamtest"
)

// storm is a server that says too much, and a client that asks for the list
// whenever it is told that it has changed.
type storm struct {
	server  *upstreamtest.Server
	conn    atomic.Pointer[upstreamtest.Conn]
	after   bool         // it says so after each list
	rotates bool         // each list is in another order
	lists   atomic.Int64 // that the server was asked for
	notices atomic.Int64 // that the client got
}

func (s *storm) watch(c *upstreamtest.Conn, m *jsonrpc.Message, _ []byte) bool {
	s.conn.Store(c)
	if m == nil || m.Method != "tools/list" {
		return false
	}
	n := s.lists.Add(1)
	tools := []string{`{"name":"a"}`, `{"name":"b"}`}
	if s.rotates && n%2 == 0 {
		tools[0], tools[1] = tools[1], tools[0]
	}
	c.Send((&jsonrpc.Message{ID: m.ID, Result: []byte(`{"tools":[` + strings.Join(tools, ",") + `]}`)}).Append(nil))
	if s.after {
		s.changed()
	}
	return true
}

func (s *storm) changed() {
	s.conn.Load().Send([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
}

// hear is the client.
func (s *storm) hear(to io.Writer, from io.Reader) {
	for lines, id := bufio.NewScanner(from), 0; lines.Scan(); {
		if strings.Contains(lines.Text(), "notifications/tools/list_changed") {
			s.notices.Add(1)
			id++
			fmt.Fprintf(to, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`+"\n", id)
		}
	}
}

// TestStorms: what a server does three times a second, or each time that it is
// asked, for an hour, costs it and the client no more than design §7 allows.
func TestStorms(t *testing.T) {
	const hour = 3600
	for _, c := range []struct {
		name           string
		often          bool // the server says that its list has changed three times a second
		after, rotates bool
		lists, notices int64 // the most of each
	}{
		// A check at first after 1 s, then 2 … 60 s, and what the client asks. A
		// notice in the middle of a check has it made again.
		{"untrue notices for ever", true, false, false, 180, 5},
		{"an untrue notice after each list", false, true, false, 180, 5},
		// One notice a second is forwarded, and coffer may find a change itself
		// where one comes while it lists: then it lists again.
		{"true notices for ever", true, false, true, 4 * hour, 2 * hour},
		{"a true notice after each list", false, true, true, 4 * hour, 2 * hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &storm{server: upstreamtest.NewServer(upstreamtest.Script{}), after: c.after, rotates: c.rotates}
				s.server.Watch = s.watch
				end := s.play(t)
				for range hour * 3 {
					if c.often {
						s.changed()
					}
					time.Sleep(time.Second / 3)
				}
				lists, notices := s.lists.Load(), s.notices.Load()
				t.Logf("%d lists, %d notices", lists, notices)
				if lists == 0 || lists > c.lists || notices == 0 || notices > c.notices {
					t.Errorf("%d lists and %d notices, at most are allowed %d and %d", lists, notices, c.lists, c.notices)
				}
				end()
			})
		})
	}
}

// play starts a session and has the client ask for its first list.
func (s *storm) play(t *testing.T) (end func()) {
	config := &upstream.Config{
		Servers:       []upstream.Spec{{Name: "one", Command: "one", AutoEnable: true, ConnectTimeout: fuzzLimit, ListTimeout: time.Minute}},
		MaxNameLength: 64, MaxMessageSize: 1 << 20, CacheTTL: time.Minute,
	}
	session := proxy.New(proxy.Options{
		Config: config, Version: "1.0", Log: zerolog.Nop(),
		Dial: func(*upstream.Spec) (io.ReadCloser, io.WriteCloser, error) {
			_, from, to := s.server.Dial()
			return from, to, nil
		},
	})
	in, to := io.Pipe()
	from, out := io.Pipe()
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := session.Serve(context.Background(), in, out); err != nil {
			t.Error(err)
		}
		in.Close()
		out.Close()
	})
	tasks.Go(func() { s.hear(to, from) })
	fmt.Fprintln(to, `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":`+defaultClient+`}`)
	fmt.Fprintln(to, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fmt.Fprintln(to, `{"jsonrpc":"2.0","id":"first","method":"tools/list"}`)
	synctest.Wait()
	return func() {
		to.Close()
		tasks.Wait()
	}
}
