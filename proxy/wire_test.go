package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"coffer/proxy"
	"coffer/upstream"
)

var update = flag.Bool("update", false, "rewrite the expected lines of testdata/session")

// wireFiles holds the transcripts; its README.md is the format.
const wireFiles = "../testdata/session"

// TestWire plays every transcript against a Session, in a bubble with a clock
// of its own, and compares what each side is sent, step by step.
func TestWire(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(wireFiles, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in %s: %v", wireFiles, err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			s, err := readTranscript(path)
			if err != nil {
				t.Fatal(err)
			}
			configs := s.configs(t)
			var after []string
			var said []saying
			synctest.Test(t, func(t *testing.T) { after, said = playTranscript(t, s, configs) })
			if !t.Failed() {
				checkSchemas(t, s, said)
			}
			if *update {
				if err := s.rewrite(path, after); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// firstConfig is the section with the config at the start of a session.
const firstConfig = "config.json"

// configs reads the transcript's config files: the first, and those that the
// session is edited to.
func (s *transcript) configs(t *testing.T) map[string]*upstream.Config {
	t.Helper()
	texts := map[string]string{firstConfig: defaultConfig}
	for _, f := range s.archive.Files {
		if isConfig(f.Name) {
			texts[f.Name] = string(f.Data)
		}
	}
	configs := map[string]*upstream.Config{}
	for name, text := range texts {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := upstream.ReadConfig(path, true, func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		configs[name] = config
	}
	return configs
}

// isConfig reports whether a section is a config file.
func isConfig(section string) bool { return strings.HasSuffix(section, ".json") }

// wire is one transcript being played.
type wire struct {
	t         *testing.T
	script    *transcript
	began     time.Time
	client    *wireClient
	upstreams map[string]*wireUpstream
	prefs     *wirePrefs
	configs   map[string]*upstream.Config // by section
	edits     chan *upstream.Config
	interrupt context.CancelFunc
	vars      map[string]string // what <<name>> stands for

	mu      sync.Mutex
	events  []event // guarded by mu: what has arrived and was not compared yet
	log     bytes.Buffer
	ended   bool     // guarded by mu: Serve has returned
	sayings []saying // guarded by mu: every line, of both directions
}

// event is a line that arrived somewhere.
type event struct {
	label string // "C", a server's key, that with "#2" for its second connection, "prefs"
	text  string // the line, or what happened in parentheses
}

// record notes what arrived at label.
func (w *wire) record(label, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event{label, text})
}

// take returns what has arrived since the last call, once nothing moves any
// more.
func (w *wire) take() []event {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

// Write implements io.Writer, for the log.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

// playTranscript plays s and returns its session with what really came, and
// all that was said.
func playTranscript(t *testing.T, s *transcript, configs map[string]*upstream.Config) (after []string, said []saying) {
	w := &wire{
		t: t, script: s, began: time.Now(), vars: s.words(), upstreams: map[string]*wireUpstream{},
		configs: configs, edits: make(chan *upstream.Config),
	}
	for _, config := range configs {
		for i := range config.Servers {
			if name := config.Servers[i].Name; w.upstreams[name] == nil {
				w.addUpstream(name)
			}
		}
	}
	for _, f := range s.archive.Files {
		if w.upstreams[f.Name] == nil && !isConfig(f.Name) && !slices.Contains([]string{"client", "prefs", "faults", "session"}, f.Name) {
			t.Fatalf("%s: section %q is of no server", s.name, f.Name)
		}
	}
	open := w.openPrefs()
	blocks, err := s.blocks(w.labels())
	if err != nil {
		t.Fatal(err)
	}
	w.serve(configs[firstConfig], open)
	defer func() {
		w.end()
		said = w.sayings
	}()
	w.greet()
	for i := range blocks {
		b := &blocks[i]
		for _, a := range b.actions {
			if err := w.act(a.text); err != nil {
				t.Fatalf("%s:%d: %s: %v", s.name, a.at, a.text, err)
			}
		}
		got := w.take()
		report := b.compare(got, w.vars)
		if report != "" && !*update {
			t.Errorf("%s:%d: %s%s", s.name, b.at, b.title(), report)
			break
		}
		after = append(after, b.lines(got, report == "")...)
	}
	return after, nil
}

// serve starts the session.
func (w *wire) serve(config *upstream.Config, open func(context.Context) (proxy.Preferences, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	w.interrupt = cancel
	session := proxy.New(proxy.Options{
		Config: config, Prefs: open, Version: "1.0",
		Log: zerolog.New(w).Level(zerolog.DebugLevel),
		Dial: func(spec *upstream.Spec) (io.ReadCloser, io.WriteCloser, error) {
			return w.upstreams[spec.Name].dial()
		},
		Follow: w.follow,
	})
	in, toIn := io.Pipe()
	fromOut, out := io.Pipe()
	w.client = newWireClient(w, toIn, fromOut)
	go w.client.read()
	go func() {
		err := session.Serve(ctx, in, out)
		cancel()
		in.Close()
		w.mu.Lock()
		w.ended = true
		w.mu.Unlock()
		out.Close()
		<-w.client.done // all that was written has been recorded
		if err != nil {
			w.record("C", fmt.Sprintf("(closed: %v)", err))
		} else {
			w.record("C", "(closed)")
		}
	}()
}

// follow is the session's follower of its config file.
func (w *wire) follow(ctx context.Context, changed func(*upstream.Config)) {
	for {
		select {
		case config := <-w.edits:
			changed(config)
		case <-ctx.Done():
			return
		}
	}
}

// greet performs the client's handshake, unless the transcript tells it.
func (w *wire) greet() {
	params := strings.TrimSpace(w.script.section("client", defaultClient))
	if _, modern := w.script.modern(); params == "none" || modern {
		return
	}
	w.client.send([]byte(`{"jsonrpc":"2.0","id":"hello","method":"initialize","params":` + params + `}`))
	w.until(func(e event) bool { return e.label == "C" })
	w.client.send([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

// until waits until an event is there that match accepts, and drops it.
func (w *wire) until(match func(event) bool) {
	for range 100 {
		synctest.Wait()
		w.mu.Lock()
		i := slices.IndexFunc(w.events, match)
		if i >= 0 {
			w.events = slices.Delete(w.events, i, i+1)
		}
		w.mu.Unlock()
		if i >= 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatal("initialize got no answer within ten seconds")
}

// end closes the session if the transcript has not, and checks that it goes in
// the time that design §9 allows.
func (w *wire) end() {
	w.client.resume()
	w.client.close()
	deadline := time.Now().Add(3500 * time.Millisecond)
	for !w.hasEnded() && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
	if !w.hasEnded() {
		w.t.Errorf("%s: the session did not end within 3.5 s after its client closed it", w.script.name)
		w.interrupt()
	}
	for _, u := range w.upstreams {
		u.killAll()
	}
	synctest.Wait()
	if w.t.Failed() {
		w.mu.Lock()
		w.t.Logf("log:\n%s", w.log.String())
		w.mu.Unlock()
	}
}

func (w *wire) hasEnded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// labels are the names under which lines are sent and received.
func (w *wire) labels() []string {
	labels := []string{"C", "prefs"}
	for name := range w.upstreams {
		labels = append(labels, name)
	}
	slices.SortFunc(labels, func(a, b string) int { return len(b) - len(a) })
	return labels
}

// act performs one action line of a transcript.
func (w *wire) act(text string) error {
	times := 1
	if n, rest, ok := strings.Cut(text, "x "); ok {
		if count, err := strconv.Atoi(n); err == nil {
			times, text = count, rest
		}
	}
	if label, number, line, ok := w.splitLabel(text, '>'); ok {
		message, err := fill(line, w.vars)
		if err != nil {
			return err
		}
		for range times {
			if err := w.send(label, number, message); err != nil {
				return err
			}
		}
		return nil
	}
	verb, rest, _ := strings.Cut(text, " ")
	switch verb {
	case "wait":
		d, err := time.ParseDuration(rest)
		time.Sleep(d)
		return err
	case "prefs":
		return w.prefs.act(rest)
	case "interrupt":
		w.interrupt()
		return nil
	case "edit":
		if w.configs[rest] == nil {
			return fmt.Errorf("no section %q", rest)
		}
		w.edits <- w.configs[rest]
		return nil
	case "C":
		return w.client.act(rest)
	}
	for _, name := range w.labels() {
		u := w.upstreams[name]
		if rest, ok := strings.CutPrefix(text, name); ok && u != nil && (strings.HasPrefix(rest, " ") || strings.HasPrefix(rest, "#")) {
			number := 0
			if n, after, ok := strings.Cut(strings.TrimPrefix(rest, "#"), " "); ok && rest[0] == '#' {
				number, _ = strconv.Atoi(n)
				rest = after
			}
			return u.act(number, strings.TrimSpace(rest))
		}
	}
	return errors.New("nothing that a transcript can do (see testdata/session/README.md)")
}

// splitLabel splits `label> line`, or `label#2> line`.
func (w *wire) splitLabel(text string, arrow byte) (label string, number int, line string, ok bool) {
	for _, l := range w.labels() {
		rest, ok := strings.CutPrefix(text, l)
		if !ok {
			continue
		}
		if n, after, numbered := strings.Cut(rest, string(arrow)+" "); numbered && strings.HasPrefix(n, "#") {
			if number, err := strconv.Atoi(n[1:]); err == nil {
				return l, number, after, true
			}
		}
		if line, ok := strings.CutPrefix(rest, string(arrow)+" "); ok {
			return l, 0, line, true
		}
	}
	return "", 0, "", false
}

// send has label say line.
func (w *wire) send(label string, number int, line []byte) error {
	if label == "C" {
		w.client.send(line)
		return nil
	}
	c, err := w.upstreams[label].conn(number)
	if err == nil {
		c.Send(line)
	}
	return err
}
