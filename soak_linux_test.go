package main

import (
	"bytes"
	"crypto/rand"
	"flag"
	"fmt"
	mrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coffer/prefs"
	"coffer/upstream/upstreamtest"
)

// soakFor is how long TestSoak lasts. The default is a round that shows that it
// works; whether anything grows, an hour shows:
//
//	go test -run 'TestSoak$' -soak 1h -timeout 0 -v .
var soakFor = flag.Duration("soak", 5*time.Second, "how long TestSoak lasts")

// soakPatience is when a ping, or the end of a coffer's processes, is late. Both
// take milliseconds; the rest is for a machine that does many things at once.
const soakPatience = 15 * time.Second

// soakServers are the servers of the config. The last two are in this process
// and reached over HTTP; the others are started by each coffer.
var soakServers = []string{"plain", "shell", "modern", "web", "events"}

const soakStarted = 3 // how many of them are processes

// soak is one run.
type soak struct {
	*liveWorld
	t       *testing.T
	store   *prefs.Store
	coffers []*soakClient
	web     []*httptest.Server
	fakes   []*upstreamtest.Server
	ill     atomic.Bool // the HTTP servers refuse everything
	over    chan struct{}
	began   time.Time

	problems atomic.Int64
	asked    atomic.Int64 // for the numbers of calls
	slowest  atomic.Int64 // the longest ping, in nanoseconds
	did      sync.Map     // what has happened -> *atomic.Int64

	mu   sync.Mutex
	ends map[string]soakEnd // guarded by mu: what came of each call, by its number
	ran  map[string]int     // guarded by mu: how often a server ran it
	read map[string]int64   // guarded by mu: how far each file of runs has been read
}

// soakEnd is what came of a call.
type soakEnd byte

const (
	soakAnswered soakEnd = iota + 1 // so it ran, once
	soakRefused                     // so it did not
	soakUnknown                     // so it ran once at most
)

// soakClient is a coffer that stays, and its client.
type soakClient struct {
	*liveCoffer
	modern bool
	mark   string // of its processes
	first  soakSize
	sizes  []soakSize
}

// problem fails the test. Of too many problems the first say enough.
func (s *soak) problem(format string, args ...any) {
	if s.problems.Add(1) <= 20 {
		s.t.Errorf("after %v: "+format, append([]any{time.Since(s.began).Round(time.Millisecond)}, args...)...)
	}
}

// count notes that something has happened, so that the end can tell how much.
func (s *soak) count(what string) {
	n, _ := s.did.LoadOrStore(what, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// done reports whether it is time to end.
func (s *soak) done() bool {
	select {
	case <-s.over:
		return true
	default:
		return s.problems.Load() > 20
	}
}

// TestSoak has several coffers live through mixed traffic, killed and halted
// servers, HTTP servers that fail and forget, toggles, refreshes, slow readers
// and siblings that come and go. Every request must be answered with what is
// its own, no call may run twice, pings are answered at once, a choice is
// honoured by the next request, and at the end there is no more of anything
// than at the start: descriptors, processes, goroutines and, where it lasts
// long enough to tell (see soakFor), memory.
func TestSoak(t *testing.T) {
	s := newSoak(t)
	var users sync.WaitGroup
	for i, c := range s.coffers {
		for n := range 4 {
			users.Go(func() { s.use(c, mrand.New(mrand.NewPCG(uint64(i), uint64(n)))) })
		}
		users.Go(func() { s.hear(c) })
		if i > 0 { // the first client reads slowly now and then
			users.Go(func() { s.ping(c) })
		}
	}
	users.Go(s.lag)
	users.Go(s.toggle)
	users.Go(s.command)
	users.Go(s.kill)
	users.Go(s.sicken)
	users.Go(s.visit)
	users.Go(s.watch)
	time.Sleep(*soakFor)
	close(s.over)
	users.Wait()
	s.settle(s.coffers...)
	s.checkCalls(true)
	s.report()
	s.checkSizes()
	s.checkGoroutines()
	for i, c := range s.coffers {
		if n := c.stray.Load(); n > 0 {
			t.Errorf("coffer %d: %d answers to what was not asked, or was answered before", i, n)
		}
		s.checkLog(i, c.logged(t))
	}
	s.checkSound(t)
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	t.Setenv("GORACE", atOnce)
	folder := t.TempDir()
	s := &soak{
		liveWorld: &liveWorld{folder: folder, config: filepath.Join(folder, "config.json"), db: filepath.Join(folder, "coffer.db")},
		t:         t, over: make(chan struct{}), began: time.Now(),
		ends: map[string]soakEnd{}, ran: map[string]int{}, read: map[string]int64{},
	}
	env := fmt.Sprintf(`"env": {%q: "${%s}"}`, markVar, markVar)
	limits := `, "call_timeout": "20s", "list_timeout": "10s"`
	var entries []string
	for i, name := range soakServers {
		switch {
		case i >= soakStarted:
			entries = append(entries, fmt.Sprintf(`%q: {"type": "http", "url": %q %s}`, name, s.serveHTTP(name), limits))
		case name == "shell":
			entries = append(entries, fmt.Sprintf(`%q: {"command": "sh", "args": ["-c", "soakserver %s %s; true"], %s %s}`, name, name, s.runs(name), env, limits))
		default:
			entries = append(entries, fmt.Sprintf(`%q: {"command": "soakserver", "args": [%q, %q], %s %s}`, name, name, s.runs(name), env, limits))
		}
	}
	writeFile(t, s.config, `{"cache_ttl": "2s", "mcpServers": {`+strings.Join(entries, ", ")+`}}`)
	for i := range 3 {
		c := &soakClient{mark: rand.Text(), modern: i == 2}
		c.liveCoffer = s.launch(t, s.config, markVar+"="+c.mark)
		if err := c.greet(); err != nil {
			t.Fatal(err)
		}
		s.coffers = append(s.coffers, c)
	}
	s.store = s.open(t)
	s.settle(s.coffers...)
	for _, c := range s.coffers {
		c.first = s.size(c)
	}
	return s
}

// runs is the file in which a server notes the calls that it runs.
func (s *soak) runs(server string) string { return filepath.Join(s.folder, "runs-"+server) }

// serveHTTP starts a server in this process and returns its URL.
func (s *soak) serveHTTP(name string) string {
	fake := upstreamtest.NewServer(soakScript(name))
	fake.Watch = soakWatch(s.note)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.ill.Load() {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader([]int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusOK}[mrand.IntN(3)])
			fmt.Fprint(w, "<html><title>no luck</title></html>")
			return
		}
		fake.ServeHTTP(w, r)
	}))
	s.t.Cleanup(front.Close)
	s.web, s.fakes = append(s.web, front), append(s.fakes, fake)
	return front.URL
}

// note counts a run of a call.
func (s *soak) note(number string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran[number]++
}

// ended notes what came of a call.
func (s *soak) ended(number string, end soakEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends[number] = end
}

// checkCalls compares what came of the calls with what the servers ran. What is
// under way has not come to its end: whether all that was answered ran can be
// told only when all is over.
func (s *soak) checkCalls(all bool) {
	for _, name := range soakServers[:soakStarted] {
		text, err := os.ReadFile(s.runs(name))
		if err != nil {
			s.problem("%v", err)
			continue
		}
		whole := text[:bytes.LastIndexByte(text, '\n')+1]
		s.mu.Lock()
		fresh := string(whole[s.read[name]:])
		s.read[name] = int64(len(whole))
		s.mu.Unlock()
		for number := range strings.Lines(fresh) {
			number = strings.TrimSpace(number)
			if !strings.HasPrefix(number, name+"-") {
				s.problem("server %s ran the call %s", name, number)
			}
			s.note(number)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for number, n := range s.ran {
		switch {
		case n > 1:
			s.problem("call %s ran %d times", number, n)
		case s.ends[number] == soakRefused:
			s.problem("call %s was refused and ran", number)
		}
	}
	for number, end := range s.ends {
		if all && end == soakAnswered && s.ran[number] == 0 {
			s.problem("call %s was answered and did not run", number)
		}
	}
}

// checkLog fails the test if a coffer has logged what must not be: trouble with
// the preference file, or a fault of its own.
func (s *soak) checkLog(i int, log string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "ERR") || strings.Contains(line, "WRN") && strings.Contains(line, "preference") {
			s.problem("coffer %d logged: %s", i, line)
		}
	}
}

// settle waits until every server has answered each client, and the client has
// all lists.
func (s *soak) settle(clients ...*soakClient) {
	s.t.Helper()
	for i, c := range clients {
		c.lag.Store(0)
		for _, server := range soakServers {
			s.until(fmt.Sprintf("coffer %d: %s is well", i, server), func() bool {
				return s.call(c, server, "echo", "") == soakAnswered
			})
		}
		for method := range listMethods {
			s.until(fmt.Sprintf("coffer %d: %s is whole", i, method), func() bool {
				a, err := c.ask(method, c.params(`{}`))
				return err == nil && a.Error == nil && !strings.Contains(string(a.Result), "coffer/unavailable")
			})
		}
	}
}

// until asks again and again until something is so. Waits after crashes grow to
// a minute.
func (s *soak) until(what string, so func() bool) {
	s.t.Helper()
	for end := time.Now().Add(2 * liveLimit); !so(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("it does not come true that %s", what)
		}
	}
}
