package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"coffer/upstream/upstreamtest"
)

// trees are commands for sh that start processes in every way that has been
// seen to leave some behind. FAKE stands for a server that answers, STUBBORN for
// one that heeds neither the end of its stdin nor TERM and has two children like
// that.
var trees = map[string]string{
	"plain":        `exec FAKE`,
	"wrapper":      `FAKE; true`,
	"npx":          `sh -c 'sh -c "FAKE; true"; true' | cat; true`,
	"stubborn":     `exec STUBBORN`,
	"hidden":       `trap "" TERM; sh -c 'STUBBORN; true'; true`,
	"holds stdout": `sleep 1000 & exec FAKE`,
	"forks away":   `FAKE <&0 & exit 0`,
	"silent":       `trap "" TERM; sleep 1000; true`,
	"dies":         `sleep 1000 & exit 3`,
}

// escapes are those that leave the process group as well.
var escapes = map[string]string{
	"other session":   `setsid sleep 1000 & exec FAKE`,
	"daemon":          `(setsid sh -c 'sleep 1000 & sleep 1000' &); exec FAKE`,
	"stubborn daemon": `(setsid sh -c 'trap "" TERM; sleep 1000; sleep 1000' &); exec FAKE`,
}

// treeWorld is one coffer with a server for each of the trees.
type treeWorld struct {
	*liveWorld
	mark string
}

func newTreeWorld(t *testing.T, commands map[string]string) *treeWorld {
	t.Helper()
	folder := t.TempDir()
	w := &treeWorld{&liveWorld{folder: folder, config: filepath.Join(folder, "config.json"), db: filepath.Join(folder, "coffer.db")}, rand.Text()}
	script := func(name string, s upstreamtest.Script) string {
		s.Tools = []json.RawMessage{[]byte(`{"name":"echo","inputSchema":{"type":"object"}}`), []byte(`{"name":"never","inputSchema":{"type":"object"}}`)}
		s.Rules = []upstreamtest.Rule{
			{Method: "tools/call", Key: "never", Silent: true},
			{Method: "prompts/list", Silent: true},
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, name)
		writeFile(t, path, string(text))
		return "fakeserver " + path
	}
	fill := strings.NewReplacer("FAKE", script("fake", upstreamtest.Script{}),
		"STUBBORN", script("stubborn", upstreamtest.Script{IgnoreEOF: true, IgnoreTERM: true, Children: 2}))
	type entry struct {
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env"`
		Limit   string            `json:"list_timeout"`
	}
	entries := map[string]entry{}
	for name, command := range commands {
		entries[name] = entry{"sh", []string{"-c", fill.Replace(command)}, map[string]string{markVar: "${" + markVar + "}"}, "30s"}
	}
	text, err := json.Marshal(map[string]any{"mcpServers": entries})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, w.config, string(text))
	return w
}

// begin starts the coffer.
func (w *treeWorld) begin(t *testing.T) *liveCoffer {
	t.Helper()
	return w.launch(t, w.config, markVar+"="+w.mark)
}

// up waits until the servers that can be are connected.
func (w *treeWorld) up(t *testing.T, c *liveCoffer, names ...string) {
	t.Helper()
	if _, err := c.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if a, err := c.callTool(treePrefix(name) + "__echo"); err != nil || a.Error != nil {
			t.Fatalf("%s: %v %v", name, a, err)
		}
	}
}

// treePrefix is the prefix of a tree's server.
func treePrefix(name string) string { return strings.ReplaceAll(name, " ", "-") }

// treesOf returns the trees of these names, under names that are prefixes.
func treesOf(names ...string) map[string]string {
	some := map[string]string{}
	for _, name := range names {
		command, ok := trees[name]
		if !ok {
			command = escapes[name]
		}
		some[treePrefix(name)] = command
	}
	return some
}

// alive are the trees whose server answers.
var alive = []string{"plain", "wrapper", "npx", "stubborn", "hidden", "holds stdout"}

// ways are how a coffer ends, and how long it may take.
var ways = []struct {
	name   string
	leave  func(*liveCoffer)
	limit  time.Duration
	killed bool
}{
	{"EOF", func(c *liveCoffer) { c.stdin.Close() }, 3500 * time.Millisecond, false},
	{"TERM", func(c *liveCoffer) { c.cmd.Process.Signal(syscall.SIGTERM) }, 1500 * time.Millisecond, false},
	{"KILL", func(c *liveCoffer) { c.cmd.Process.Kill() }, time.Second, true},
}

// gone waits until a coffer has ended, and sees to it that it did so in time and
// that nothing is left of it.
func (w *treeWorld) gone(t *testing.T, c *liveCoffer, began time.Time, limit time.Duration) {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(liveLimit):
		t.Error("coffer does not end")
		c.cmd.Process.Kill()
	}
	c.cmd.Wait()
	took := time.Since(began)
	t.Logf("gone after %v", took.Round(time.Millisecond))
	if took > busy*limit {
		t.Errorf("coffer was gone after %v, want %v", took, limit)
	}
	// After kill -9 the contract gives 5 s. Else nothing should be there; but a
	// process that has been killed may take its time.
	if left := waitForMarked(t, markVar+"="+w.mark, busy*5*time.Second); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		for pid := range markedProcesses(t, markVar+"="+w.mark) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// TestTrees: whatever servers start, and however coffer ends, none of it stays
// (issue 5).
func TestTrees(t *testing.T) {
	t.Setenv("GORACE", atOnce)
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Run("connected", func(t *testing.T) {
				t.Parallel()
				names := []string{"plain", "wrapper", "npx", "stubborn", "hidden", "holds stdout", "forks away", "silent", "dies"}
				up := alive
				if !way.killed { // nobody knows of what has left its group when coffer is killed
					for name := range escapes {
						names, up = append(names, name), append(slices.Clone(up), name)
					}
				}
				w := newTreeWorld(t, treesOf(names...))
				c := w.begin(t)
				w.up(t, c, up...)
				began := time.Now()
				way.leave(c)
				w.gone(t, c, began, way.limit)
			})
			t.Run("starting", func(t *testing.T) {
				t.Parallel()
				w := newTreeWorld(t, treesOf("stubborn", "silent", "wrapper"))
				c := w.begin(t)
				c.send("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
				waitForMarkedCount(t, w.mark, 2) // coffer, and one that it has started
				began := time.Now()
				way.leave(c)
				w.gone(t, c, began, way.limit)
			})
			for what, request := range map[string][2]string{
				"in a call": {"tools/call", `{"name":"stubborn__never"}`},
				"in a list": {"prompts/list", `{}`},
			} {
				t.Run(what, func(t *testing.T) {
					t.Parallel()
					w := newTreeWorld(t, treesOf("stubborn", "wrapper"))
					c := w.begin(t)
					w.up(t, c, "stubborn", "wrapper")
					c.send(request[0], request[1])
					if _, err := c.callTool("stubborn__echo"); err != nil { // by now it is on its way
						t.Fatal(err)
					}
					began := time.Now()
					way.leave(c)
					w.gone(t, c, began, way.limit)
				})
			}
		})
	}
}

// waitForMarkedCount waits until there are as many marked processes.
func waitForMarkedCount(t *testing.T, mark string, n int) {
	t.Helper()
	for end := time.Now().Add(liveLimit); len(markedProcesses(t, markVar+"="+mark)) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("there are not %d processes", n)
		}
	}
}

// TestTreesClientGone: a client that is gone ends coffer, although others that
// it has started hold coffer's stdin open, and coffer has nothing to say.
func TestTreesClientGone(t *testing.T) {
	t.Setenv("GORACE", atOnce)
	w := newTreeWorld(t, treesOf("stubborn", "wrapper"))
	c := w.begin(t)
	w.up(t, c, "stubborn", "wrapper")
	began := time.Now()
	c.stdout.Close()
	w.gone(t, c, began, 1500*time.Millisecond)
}

// TestTreesRestart: a server that is killed, in whatever part of its tree, again
// and again, leaves no zombie, no descriptor and no process in a coffer that
// lives on.
func TestTreesRestart(t *testing.T) {
	t.Setenv("GORACE", atOnce)
	names := []string{"wrapper", "holds stdout", "daemon"}
	w := newTreeWorld(t, treesOf(names...))
	c := w.begin(t)
	w.up(t, c, names...)
	pid := c.cmd.Process.Pid
	descriptors := func() int {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	first, processes := descriptors(), len(markedProcesses(t, markVar+"="+w.mark))
	for range 5 {
		for victim, line := range markedProcesses(t, markVar+"="+w.mark) {
			if victim != pid && !strings.Contains(line, "sleep") {
				syscall.Kill(victim, syscall.SIGKILL)
			}
		}
		for _, name := range names {
			healed := func() bool {
				a, err := c.callTool(treePrefix(name) + "__echo")
				return err == nil && a.Error == nil
			}
			for end := time.Now().Add(liveLimit); !healed(); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s does not come back", name)
				}
			}
		}
	}
	// What a dead server's daemon left cannot be told from what a live one's
	// uses: it stays until coffer ends.
	daemons := 5 * 3
	fits := func() bool {
		return descriptors() <= first && len(zombiesOf(pid)) == 0 && len(markedProcesses(t, markVar+"="+w.mark)) <= processes+daemons
	}
	for end := time.Now().Add(liveLimit); !fits(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors (at first %d), zombies %v, %d processes (at first %d)", descriptors(), first, zombiesOf(pid), len(markedProcesses(t, markVar+"="+w.mark)), processes)
		}
	}
	began := time.Now()
	c.stdin.Close()
	w.gone(t, c, began, 3500*time.Millisecond)
}

// TestTreesOrphanZombies: orphans that come to coffer are waited for.
func TestTreesOrphanZombies(t *testing.T) {
	t.Setenv("GORACE", atOnce)
	w := newTreeWorld(t, map[string]string{"short": `(setsid sh -c 'echo $$ >FILE; exec sleep 0.01' &); exec FAKE`})
	pids := filepath.Join(w.folder, "pids")
	text, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, w.config, strings.ReplaceAll(string(text), "FILE", pids))
	c := w.begin(t)
	w.up(t, c, "short")
	var orphan int
	for end := time.Now().Add(liveLimit); orphan == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the orphan does not start")
		}
		text, _ := os.ReadFile(pids)
		orphan, _ = strconv.Atoi(string(bytes.TrimSpace(text)))
	}
	for end := time.Now().Add(liveLimit); syscall.Kill(orphan, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the orphan %d is still there, or a zombie: %v", orphan, zombiesOf(c.cmd.Process.Pid))
		}
	}
	began := time.Now()
	c.stdin.Close()
	w.gone(t, c, began, 3500*time.Millisecond)
}
