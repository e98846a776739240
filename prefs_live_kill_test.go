package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coffer/prefs"
	"coffer/upstream/upstreamtest"
)

// writers is how many processes write at once.
const writers = 8

// prefsWriterMain is the command prefswriter DB N: until its stdin ends it makes
// choices about tool wN of server a and about keys of its own that nobody lists,
// one after the other. Before each it says "try KEY on|off", after it "stored".
func prefsWriterMain() {
	if err := writeWithoutEnd(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "prefswriter:", err)
		os.Exit(1)
	}
}

func writeWithoutEnd(path, number string) error {
	ctx := context.Background()
	store, err := prefs.Open(ctx, path, schema, prefs.Options{BusyTimeout: liveLimit})
	if err != nil {
		return err
	}
	var over atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	const own = 20
	for n := 0; !over.Load(); n++ {
		key, on := "w"+number, n%4 == 0
		if n%2 == 1 {
			key, on = fmt.Sprintf("w%s-%d", number, n/2%own), n/2/own%2 == 0
		}
		fmt.Println("try", key, onOff(on))
		change := prefs.Change{Key: prefs.Key{Server: "a", Type: prefs.Tool, Key: key}, Enabled: on}
		if _, err := store.Set(ctx, []prefs.Change{change}, time.Now()); err != nil {
			return err
		}
		fmt.Println("stored")
	}
	return store.Close()
}

// liveWriter is one writer after the other, each killed, with the same keys.
type liveWriter struct {
	number int
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *strings.Builder
	heard  sync.WaitGroup // the reader of its stdout; what it says is below

	stored  int               // how often it was told of success
	choices map[string]string // key -> on or off, as stored last
	open    map[string]string // key -> what was tried last, and may be stored or not
}

func (w *liveWriter) start(t *testing.T, db string) {
	t.Helper()
	w.cmd = exec.Command(testCommand(t, "prefswriter"), db, fmt.Sprint(w.number))
	w.stderr = &strings.Builder{}
	w.cmd.Stderr = w.stderr
	var err error
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.cmd.Process.Kill() })
	w.heard.Go(func() {
		key, choice := "", ""
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			switch words := strings.Fields(lines.Text()); {
			case len(words) == 3:
				key, choice = words[1], words[2]
				w.open[key] = choice
			case lines.Text() == "stored":
				w.choices[key] = choice
				delete(w.open, key)
				w.stored++
			}
		}
	})
}

// end waits for the writer's end, after kill or in its own time.
func (w *liveWriter) end(t *testing.T, kill bool) {
	t.Helper()
	if kill {
		w.cmd.Process.Kill()
	}
	w.stdin.Close()
	w.heard.Wait()
	if err := w.cmd.Wait(); !kill && err != nil {
		t.Errorf("writer %d: %v: %s", w.number, err, w.stderr)
	}
	if text := w.stderr.String(); text != "" {
		t.Errorf("writer %d: %s", w.number, text)
	}
}

// check fails the test if a choice that was said to be stored is not.
func (w *liveWriter) check(t *testing.T, store *prefs.Store) {
	t.Helper()
	for key, want := range w.choices {
		row, known, err := store.Get(t.Context(), prefs.Key{Server: "a", Type: prefs.Tool, Key: key})
		got := onOff(row.Enabled)
		if err != nil || !known || row.SetAt.IsZero() || got != want && got != w.open[key] {
			t.Errorf("%s is %s (known: %t, set %v, %v), want %s", key, got, known, row.SetAt, err, want)
		}
	}
}

// liveTraffic counts answers.
type liveTraffic struct {
	results, refusals, lists atomic.Int64
}

// use calls and lists until ctx ends. Every answer must be a result or, of a
// call, a refusal.
func (n *liveTraffic) use(ctx context.Context, t *testing.T, c *liveCoffer) {
	for i := 0; ctx.Err() == nil && !t.Failed(); i++ {
		name := fmt.Sprintf("a__w%d", i%writers)
		switch a, err := c.callTool(name); {
		case err == nil && a.Error == nil:
			n.results.Add(1)
		case err == nil && a.refused():
			n.refusals.Add(1)
		default:
			t.Errorf("call of %s: %v %v", name, a, err)
		}
		a, err := c.ask("tools/list", `{}`)
		if err != nil || a.Error != nil || strings.Contains(string(a.Result), "coffer/unavailable") {
			t.Errorf("list: %v %v", a, err)
		}
		n.lists.Add(1)
	}
}

// TestLivePrefsKilledWriters: eight processes write, one of which is killed each
// second, and four coffers are in use all the time. No choice is lost and no
// request is answered with trouble of the database (issue 3).
func TestLivePrefsKilledWriters(t *testing.T) {
	period := 20 * time.Second
	if testing.Short() {
		period = 5 * time.Second
	}
	var script upstreamtest.Script
	for i := range writers {
		script.Tools = append(script.Tools, json.RawMessage(fmt.Sprintf(`{"name":"w%d","inputSchema":{"type":"object"}}`, i)))
	}
	w := newLiveWorld(t, script, "a")
	coffers, store := w.start(t, 4), w.open(t)
	all := make([]*liveWriter, writers)
	for i := range all {
		all[i] = &liveWriter{number: i, choices: map[string]string{}, open: map[string]string{}}
		all[i].start(t, w.db)
	}

	ctx, cancel := context.WithTimeout(t.Context(), period)
	defer cancel()
	var traffic liveTraffic
	var users sync.WaitGroup
	for _, c := range coffers {
		for range 2 {
			users.Go(func() { traffic.use(ctx, t, c) })
		}
	}
	kills := 0
	for next := time.NewTicker(time.Second); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			next.Stop()
		case <-next.C:
			victim := all[kills%writers]
			victim.end(t, true)
			victim.check(t, store) // before the next one makes the same choices
			victim.start(t, w.db)
			kills++
		}
	}
	users.Wait()
	stored := 0
	for _, writer := range all {
		writer.end(t, false)
		stored += writer.stored
	}
	t.Logf("%d kills, %d choices stored, %d calls answered and %d refused, %d lists",
		kills, stored, traffic.results.Load(), traffic.refusals.Load(), traffic.lists.Load())
	if kills < int(period/time.Second)/2 || traffic.results.Load() == 0 || traffic.refusals.Load() == 0 {
		t.Error("too little has happened to prove anything")
	}

	w.checkSound(t)
	for _, writer := range all {
		writer.check(t, store)
		tool := prefs.Key{Server: "a", Type: prefs.Tool, Key: fmt.Sprintf("w%d", writer.number)}
		row, _, _ := store.Get(t.Context(), tool)
		for _, c := range coffers {
			a, err := c.callTool("a__" + tool.Key)
			expect(t, tool.Key, row.Enabled, a, err)
		}
	}
	for i, c := range coffers {
		if log := c.logged(t); strings.Contains(log, "WRN") || strings.Contains(log, "ERR") {
			t.Errorf("coffer %d logged:\n%s", i, log)
		}
	}
}

// checkSound has SQLite check the database.
func (w *liveWorld) checkSound(t *testing.T) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+w.db)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity_check: %s, %v", verdict, err)
	}
}

// awaitRows waits until the preferences have n rows.
func (w *liveWorld) awaitRows(t *testing.T, n int) {
	t.Helper()
	store := w.open(t)
	for end := time.Now().Add(liveLimit); ; time.Sleep(5 * time.Millisecond) {
		rows, err := store.Rows(t.Context(), prefs.Filter{})
		if err == nil && len(rows) == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d rows, %v, want %d", len(rows), err, n)
		}
	}
}

// TestLivePrefsFirstStart: twenty clients start their coffers at once, and there
// is no database yet. Package prefs does the same with opens alone, and oftener.
func TestLivePrefsFirstStart(t *testing.T) {
	const rounds, processes = 4, 20
	for range rounds {
		w := newLiveWorld(t, everyKind())
		server := serveOver(t, everyKind(), &w.lists)
		var greetings, leaves sync.WaitGroup
		all := make([]*liveCoffer, processes)
		for i := range all {
			config := filepath.Join(w.folder, fmt.Sprintf("config%d.json", i))
			writeLiveConfig(t, config, server, fmt.Sprintf("s%d", i))
			c := w.launch(t, config)
			all[i] = c
			greetings.Go(func() {
				if err := c.greet(); err != nil {
					t.Errorf("coffer %d: %v", i, err)
				}
			})
		}
		greetings.Wait()
		const each = 6 // what everyKind has
		w.awaitRows(t, processes*each)
		for i, c := range all {
			leaves.Go(func() {
				if err := c.leave(); err != nil {
					t.Errorf("coffer %d ended with %v", i, err)
				}
				for _, line := range c.warnings(t) {
					// Twenty starts on a machine that is busy besides may keep the
					// file for longer than a start waits; it is tried again.
					if !strings.Contains(line, prefs.ErrBusy.Error()) {
						t.Errorf("coffer %d logged: %s", i, line)
					}
				}
			})
		}
		leaves.Wait()
		w.checkSound(t)
		if t.Failed() {
			return
		}
	}
}
