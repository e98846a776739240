package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"coffer/jsonrpc"
	"coffer/upstream/upstreamtest"
)

// demoEntry is the config's entry of a server of the demo.
func demoEntry(name, demo, more string) string {
	return fmt.Sprintf(`%q: {"command": "coffer", "args": ["demo-server", %q]%s}`, name, demo, more)
}

// edit writes the world's config as an editor does that saves beside the file
// and renames.
func (w *liveWorld) edit(t *testing.T, entries ...string) {
	t.Helper()
	writeFile(t, w.config+".new", `{"cache_ttl": "1h", "mcpServers": {`+strings.Join(entries, ", ")+`}}`)
	if err := os.Rename(w.config+".new", w.config); err != nil {
		t.Fatal(err)
	}
}

// editedWorld is a world whose config has the entries, and a coffer in it.
func editedWorld(t *testing.T, entries ...string) (*liveWorld, *liveCoffer) {
	t.Helper()
	cofferBinary(t)
	w := newLiveWorld(t, upstreamtest.Script{})
	w.edit(t, entries...)
	return w, w.start(t, 1)[0]
}

// awaitNotice waits for a notification, past others.
func (c *liveCoffer) awaitNotice(t *testing.T, method string) {
	t.Helper()
	for limit := time.After(liveLimit); ; {
		select {
		case n := <-c.told:
			if n.method == method {
				return
			}
		case <-limit:
			t.Fatalf("no %s", method)
		}
	}
}

// toolNames returns the names of the merged tools.
func (c *liveCoffer) toolNames(t *testing.T) []string {
	t.Helper()
	a, err := c.ask("tools/list", `{}`)
	if err != nil || a.Error != nil {
		t.Fatalf("tools/list: %v %v", a, err)
	}
	var names []string
	items, _ := jsonrpc.Elements(jsonrpc.Lookup(a.Result, "tools"))
	for _, item := range items {
		name, _ := jsonrpc.TextAt(item, "name")
		names = append(names, name)
	}
	return names
}

// awaitLog waits until c's log has the text n times.
func (c *liveCoffer) awaitLog(t *testing.T, text string, n int) {
	t.Helper()
	for end := time.Now().Add(liveLimit); strings.Count(c.logged(t), text) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log has not %q %d times:\n%s", text, n, c.logged(t))
		}
	}
}

// note has a server of the demo remember a text, and notes returns all of them: a
// server that was started anew has none.
func (c *liveCoffer) note(t *testing.T, server string) {
	t.Helper()
	if a, err := c.ask("tools/call", fmt.Sprintf(`{"name":"%s__add","arguments":{"text":"kept"}}`, server)); err != nil || a.Error != nil {
		t.Fatalf("%v %v", a, err)
	}
}

func (c *liveCoffer) keeps(t *testing.T, server string) bool {
	t.Helper()
	a, err := c.callTool(server + "__list")
	if err != nil || a.Error != nil {
		t.Fatalf("%v %v", a, err)
	}
	return strings.Contains(string(a.Result), "kept")
}

// TestConfigEdited: servers come, change and go while a session runs, in the
// order of the file, and those that the edit does not concern notice nothing.
func TestConfigEdited(t *testing.T) {
	a, b := demoEntry("a", "notes", ""), demoEntry("b", "notes", "")
	w, c := editedWorld(t, a, b)
	c.note(t, "a")
	c.note(t, "b")

	w.edit(t, a, demoEntry("sums", "math", ""), b)
	c.awaitNotice(t, toolsChanged)
	want := []string{"a__add", "a__list", "a__delete_all", "sums__add", "sums__divide", "b__add", "b__list", "b__delete_all"}
	if got := c.toolNames(t); !slices.Equal(got, want) {
		t.Errorf("with a server more: %v", got)
	}
	if sum, err := c.ask("tools/call", `{"name":"sums__add","arguments":{"a":1,"b":2}}`); err != nil || sum.Error != nil {
		t.Errorf("a call to the new server: %v %v", sum, err)
	}

	w.edit(t, a, demoEntry("sums", "math", ""), demoEntry("b", "notes", `, "env": {"CHANGED": "yes"}`))
	c.awaitLog(t, `the config has this server anew upstream=b`, 1)
	if c.keeps(t, "b") {
		t.Error("a server whose entry changed is the old one")
	}

	w.edit(t, a, demoEntry("b", "notes", `, "disabled": true`))
	c.awaitNotice(t, toolsChanged)
	if got := c.toolNames(t); !slices.Equal(got, want[:3]) {
		t.Errorf("with one server removed and one disabled: %v", got)
	}
	for name, message := range map[string]string{"sums__add": "Unknown tool: sums__add", "b__list": `server "b" is switched off`} {
		if a, err := c.callTool(name); err != nil || a.Error == nil || !strings.Contains(a.Error.Message, message) {
			t.Errorf("%s: %v %v, want %q", name, a, err, message)
		}
	}
	if !c.keeps(t, "a") {
		t.Error("a server that no edit was about was started anew")
	}
	if err := c.leave(); err != nil {
		t.Error(err)
	}
}

// TestConfigEditedBadly: what cannot be used is said once, and changes nothing.
func TestConfigEditedBadly(t *testing.T) {
	a := demoEntry("a", "notes", "")
	w, c := editedWorld(t, a)
	c.note(t, "a")
	const unused, gone = "the edited config cannot be used: what it said before stays", "the config file is gone: what it said stays"

	writeFile(t, w.config, `{"mcpServers": {"a": {"command": "coffer", `)
	c.awaitLog(t, unused, 1)
	if !c.keeps(t, "a") {
		t.Error("a broken edit has stopped a server")
	}
	if err := os.Remove(w.config); err != nil {
		t.Fatal(err)
	}
	c.awaitLog(t, gone, 1)
	if !c.keeps(t, "a") {
		t.Error("a file that is gone has stopped a server")
	}
	w.edit(t, a, demoEntry("sums", "math", ""))
	c.awaitNotice(t, toolsChanged)
	if !c.keeps(t, "a") {
		t.Error("the server that was there all the time was started anew")
	}
	log := c.logged(t)
	if n := strings.Count(log, unused); n != 1 || !strings.Contains(log, w.config+":1:") {
		t.Errorf("the broken edit is said %d times:\n%s", n, log)
	}
	if n := strings.Count(log, gone); n != 1 {
		t.Errorf("the missing file is said %d times:\n%s", n, log)
	}
	if err := c.leave(); err != nil {
		t.Error(err)
	}
}

// TestConfigEditedUnderACall: a call that is open on a server which is taken out
// gets its answer.
func TestConfigEditedUnderACall(t *testing.T) {
	cofferBinary(t)
	w := newLiveWorld(t, upstreamtest.Script{})
	called, let := make(chan struct{}), make(chan struct{})
	script := upstreamtest.Script{Tools: everyKind().Tools}
	url := serveHeld(t, script, called, let)
	entry := fmt.Sprintf(`"slow": {"url": %q}`, url)
	a := demoEntry("a", "notes", "")
	w.edit(t, a, entry)
	c := w.start(t, 1)[0]
	answer := make(chan string, 1)
	go func() {
		a, err := c.callTool("slow__x")
		answer <- fmt.Sprint(a, err)
	}()
	<-called
	w.edit(t, a)
	c.awaitNotice(t, toolsChanged)
	if got := c.toolNames(t); slices.Contains(got, "slow__x") {
		t.Errorf("the server that was taken out is still listed: %v", got)
	}
	close(let)
	if got := <-answer; !strings.HasPrefix(got, "result ") {
		t.Errorf("the open call: %s", got)
	}
	if err := c.leave(); err != nil {
		t.Error(err)
	}
}
