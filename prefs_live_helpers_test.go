package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coffer/jsonrpc"
	"coffer/prefs"
	"coffer/upstream/upstreamtest"
)

// liveLimit ends a wait for what does not come. All of it comes in
// milliseconds; the rest is for a machine that does many things at once.
const liveLimit = time.Minute

// liveWorld is one preference file and one config, for any number of coffers.
type liveWorld struct {
	folder, config, db string

	lists atomic.Int64 // the list requests that the server behind config got
}

// newLiveWorld makes a world with the servers of these names. Of a server whose
// name begins with "closed" new capabilities are off.
func newLiveWorld(t *testing.T, script upstreamtest.Script, names ...string) *liveWorld {
	t.Helper()
	t.Setenv("GORACE", atOnce)
	folder := t.TempDir()
	w := &liveWorld{folder: folder, config: filepath.Join(folder, "config.json"), db: filepath.Join(folder, "coffer.db")}
	writeLiveConfig(t, w.config, serveOver(t, script, &w.lists), names...)
	return w
}

// serveOver starts a server over HTTP, in this process, and returns its URL. It
// counts the lists that are asked of it.
func serveOver(t *testing.T, script upstreamtest.Script, lists *atomic.Int64) string {
	t.Helper()
	script.NoStream = true
	server := upstreamtest.NewServer(script)
	server.Watch = func(_ *upstreamtest.Conn, m *jsonrpc.Message, _ []byte) bool {
		if m != nil && strings.HasSuffix(m.Method, "/list") {
			lists.Add(1)
		}
		return false
	}
	front := httptest.NewServer(server)
	t.Cleanup(front.Close)
	return front.URL
}

// serveHeld starts a server over HTTP whose tool calls say that they have come and
// are not answered before let is closed.
func serveHeld(t *testing.T, script upstreamtest.Script, called, let chan struct{}) string {
	t.Helper()
	server := upstreamtest.NewServer(script)
	server.Watch = func(_ *upstreamtest.Conn, m *jsonrpc.Message, _ []byte) bool {
		if m != nil && m.Method == "tools/call" {
			close(called)
			<-let
		}
		return false
	}
	front := httptest.NewServer(server)
	t.Cleanup(front.Close)
	return front.URL
}

// writeLiveConfig writes a config of servers that all are at url. Their lists
// stay good for longer than any test lasts, and no patience of coffer's ends on
// a busy machine.
func writeLiveConfig(t *testing.T, path, url string, names ...string) {
	t.Helper()
	var entries []string
	for _, name := range names {
		entries = append(entries, fmt.Sprintf(`%q: {"type": "http", "url": %q, "auto_enable_new_capabilities": %t, "list_timeout": "50s"}`,
			name, url, !strings.HasPrefix(name, "closed")))
	}
	writeFile(t, path, `{"cache_ttl": "1h", "mcpServers": {`+strings.Join(entries, ", ")+`}}`)
}

// everyKind is a server with something of each kind.
func everyKind() upstreamtest.Script {
	return upstreamtest.Script{
		Tools:     []json.RawMessage{[]byte(`{"name":"x","inputSchema":{"type":"object"}}`), []byte(`{"name":"y","inputSchema":{"type":"object"}}`)},
		Resources: []json.RawMessage{[]byte(`{"uri":"mem://r","name":"r"}`), []byte(`{"uri":"mem://s","name":"s"}`)},
		Templates: []json.RawMessage{[]byte(`{"uriTemplate":"tmp://t/{id}","name":"t"}`)},
		Prompts:   []json.RawMessage{[]byte(`{"name":"p"}`)},
	}
}

// kindKeys are the keys of everyKind that tests switch, by type.
var kindKeys = map[prefs.Type]string{prefs.Tool: "x", prefs.Resource: "mem://r", prefs.ResourceTemplate: "tmp://t/{id}", prefs.Prompt: "p"}

// listMethods are the four lists, and where the items are in the results.
var listMethods = map[string]string{
	"tools/list": "tools", "resources/list": "resources", "resources/templates/list": "resourceTemplates", "prompts/list": "prompts",
}

// open opens the world's preferences in this process, as a sibling of the
// coffers.
func (w *liveWorld) open(t *testing.T) *prefs.Store {
	t.Helper()
	store, err := prefs.Open(t.Context(), w.db, schema, prefs.Options{BusyTimeout: liveLimit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// choose stores a choice about each of the keys.
func choose(t *testing.T, store *prefs.Store, on bool, keys ...prefs.Key) {
	t.Helper()
	changes := make([]prefs.Change, len(keys))
	for i, key := range keys {
		changes[i] = prefs.Change{Key: key, Enabled: on}
	}
	if _, err := store.Set(t.Context(), changes, time.Now()); err != nil {
		t.Fatal(err)
	}
}

// command runs a command of coffer and returns its exit code and output.
func (w *liveWorld) command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), liveLimit)
	defer cancel()
	var out, errs strings.Builder
	cmd := exec.CommandContext(ctx, cofferBinary(t), append([]string{"--config", w.config, "--db", w.db}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// liveCoffer is a running coffer serve, and its client.
type liveCoffer struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stdout  io.Closer
	log     string          // the file of its stderr
	told    chan liveNotice // the list_changed that came; never full
	ended   chan struct{}   // closed when its stdout was closed
	hearing sync.Mutex      // held while the client is deaf
	lag     atomic.Int64    // nanoseconds that the client takes over each line
	stray   atomic.Int64    // answers to what was not asked, or was answered before

	mu      sync.Mutex
	id      int                        // guarded by mu, as is all below: the newest request's
	waiting map[string]chan liveAnswer // id -> whoever asked
}

type liveNotice struct {
	method string
	at     time.Time
}

type liveAnswer struct {
	ID     json.RawMessage
	Method string
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    struct{ Code, Upstream, Hint string }
	}
}

// refused reports whether the answer says that the thing is switched off.
func (a liveAnswer) refused() bool {
	return a.Error != nil && a.Error.Code == 403 && a.Error.Data.Code == "CAPABILITY_DISABLED"
}

func (a liveAnswer) String() string {
	if a.Error != nil {
		return fmt.Sprintf("error %+v", *a.Error)
	}
	return "result " + string(a.Result)
}

// launch starts a coffer, with env in its environment; it has been told nothing
// yet.
func (w *liveWorld) launch(t *testing.T, config string, env ...string) *liveCoffer {
	t.Helper()
	c := &liveCoffer{told: make(chan liveNotice, 1<<14), ended: make(chan struct{}), waiting: map[string]chan liveAnswer{}}
	log, err := os.CreateTemp(w.folder, "log-*")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c.log = log.Name()
	c.cmd = exec.Command(cofferBinary(t), "serve", "--config", config, "--db", w.db)
	c.cmd.Stderr = log
	c.cmd.Env = append(os.Environ(), env...)
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdout = stdout
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go c.read(stdout)
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil { // it was not left
			c.cmd.Process.Kill()
			<-c.ended
			c.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("a coffer's log:\n%s", c.logged(t))
		}
	})
	return c
}

// start starts n coffers and has their clients list all that there is.
func (w *liveWorld) start(t *testing.T, n int) []*liveCoffer {
	t.Helper()
	all := make([]*liveCoffer, n)
	for i := range all {
		all[i] = w.launch(t, w.config)
	}
	var greetings sync.WaitGroup
	for _, c := range all {
		greetings.Go(func() {
			if err := c.greet(); err != nil {
				t.Error(err)
			}
		})
	}
	greetings.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// greet does the handshake and asks for all lists.
func (c *liveCoffer) greet() error {
	_, err := c.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(c.stdin, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		return err
	}
	for method := range listMethods {
		switch a, err := c.ask(method, `{}`); {
		case err != nil:
			return err
		case a.Error != nil || strings.Contains(string(a.Result), "coffer/unavailable"):
			return fmt.Errorf("%s: %v", method, a)
		}
	}
	return nil
}

// hear waits while the client is deaf.
func (c *liveCoffer) hear() {
	c.hearing.Lock()
	defer c.hearing.Unlock()
}

// read takes what coffer sends.
func (c *liveCoffer) read(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 80<<20)
	for lines.Scan() {
		c.hear()
		now := time.Now()
		var a liveAnswer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			a.Method = "no JSON: " + lines.Text() // no test waits for that
		}
		if a.Method != "" {
			c.told <- liveNotice{a.Method, now}
			continue
		}
		c.mu.Lock()
		asked := c.waiting[string(a.ID)]
		delete(c.waiting, string(a.ID))
		c.mu.Unlock()
		if asked != nil {
			asked <- a
		} else {
			c.stray.Add(1)
		}
		time.Sleep(time.Duration(c.lag.Load()))
	}
	close(c.ended)
}

// ask sends a request and waits for its answer. Goroutines may share c.
func (c *liveCoffer) ask(method, params string) (liveAnswer, error) {
	answer, _, err := c.send(method, params)
	if err != nil {
		return liveAnswer{}, err
	}
	select {
	case a := <-answer:
		return a, nil
	case <-c.ended:
		return liveAnswer{}, fmt.Errorf("%s %s: coffer has left", method, params)
	case <-time.After(liveLimit):
		return liveAnswer{}, fmt.Errorf("%s %s: no answer", method, params)
	}
}

// send sends a request and returns where its answer will be, and its id.
func (c *liveCoffer) send(method, params string) (answer chan liveAnswer, id int, err error) {
	answer = make(chan liveAnswer, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id++
	c.waiting[fmt.Sprint(c.id)] = answer
	_, err = fmt.Fprintf(c.stdin, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.id, method, params)
	return answer, c.id, err
}

// tell sends a notification.
func (c *liveCoffer) tell(method, params string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := fmt.Fprintf(c.stdin, `{"jsonrpc":"2.0","method":%q,"params":%s}`+"\n", method, params)
	return err
}

// deafen has the client read no more, until it hears again.
func (c *liveCoffer) deafen() (hears func()) {
	c.hearing.Lock()
	return c.hearing.Unlock
}

// callTool calls a tool.
func (c *liveCoffer) callTool(name string) (liveAnswer, error) {
	return c.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{}}`, name))
}

// leave hangs up and returns what the process ended with.
func (c *liveCoffer) leave() error {
	c.stdin.Close()
	select {
	case <-c.ended:
	case <-time.After(liveLimit):
		c.cmd.Process.Kill()
	}
	return c.cmd.Wait()
}

// logged returns what coffer has logged so far, without the times.
func (c *liveCoffer) logged(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(c.log)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if at, rest, ok := strings.Cut(line, " "); ok && strings.HasPrefix(at, "20") {
			line = rest
		}
		out.WriteString(line)
	}
	return out.String()
}

// expect fails the test unless the answer is a result, if on, or says that the
// thing is switched off.
func expect(t *testing.T, what string, on bool, a liveAnswer, err error) bool {
	t.Helper()
	if err == nil && (on && a.Error == nil || !on && a.refused()) {
		return true
	}
	t.Errorf("%s, which is %s: %v %v", what, onOff(on), a, err)
	return false
}
