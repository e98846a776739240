package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"coffer/upstream/upstreamtest"
)

// streamWorld is a coffer with real servers behind it: those of scripts, each a
// process, by their names.
type streamWorld struct {
	*liveWorld
	*liveCoffer
	mark string
}

func newStreamWorld(t *testing.T, more string, scripts map[string]upstreamtest.Script) *streamWorld {
	t.Helper()
	t.Setenv("GORACE", atOnce)
	folder := t.TempDir()
	w := &streamWorld{liveWorld: &liveWorld{folder: folder, config: filepath.Join(folder, "config.json"), db: filepath.Join(folder, "coffer.db")}, mark: t.Name()}
	var entries []string
	for name, script := range scripts {
		for _, tool := range []string{"echo", "other"} {
			script.Tools = append(script.Tools, fmt.Appendf(nil, `{"name":%q,"inputSchema":{"type":"object"}}`, tool))
		}
		script.Pids, script.Log = w.file(name+".pids"), w.file(name+".log")
		text, err := json.Marshal(script)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, w.file(name+".json"), string(text))
		entries = append(entries, fmt.Sprintf(`%q: {"command": "fakeserver", "args": [%q], "list_timeout": "50s"}`, name, w.file(name+".json")))
	}
	if more != "" {
		entries = append(entries, more)
	}
	writeFile(t, w.config, `{"mcpServers": {`+strings.Join(entries, ",")+`}}`)
	w.liveCoffer = w.launch(t, w.config)
	if _, err := w.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *streamWorld) file(name string) string { return filepath.Join(w.folder, name) }

// pid is the newest process of a server.
func (w *streamWorld) pid(t *testing.T, server string) int {
	t.Helper()
	text, err := os.ReadFile(w.file(server + ".pids"))
	if err != nil {
		t.Fatal(err)
	}
	pids := strings.Fields(string(text))
	pid, err := strconv.Atoi(pids[len(pids)-1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// got is how many messages that hold text a server has got, all its processes
// together.
func (w *streamWorld) got(t *testing.T, server, text string) int {
	t.Helper()
	log, err := os.ReadFile(w.file(server + ".log"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(log, []byte(text))
}

// echo calls a server's tool, which answers with what it is told, and returns
// an error unless it does.
func (w *streamWorld) echo(server, tool, args string) error {
	a, err := w.ask("tools/call", fmt.Sprintf(`{"name":"%s__%s","arguments":%s}`, server, tool, args))
	return echoed(a, err, tool, args)
}

func echoed(a liveAnswer, err error, tool, args string) error {
	switch {
	case err != nil:
		return err
	case a.Error != nil:
		return fmt.Errorf("%v", a)
	}
	var result struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(a.Result, &result); err != nil || len(result.Content) != 1 || result.Content[0].Text != tool+" "+args {
		return fmt.Errorf("of %d bytes came %d: %.200s", len(args), len(a.Result), a.Result)
	}
	return nil
}

// unhindered fails the test unless a ping, a list and a call of another server
// are answered while something is in the way of one server.
func (w *streamWorld) unhindered(t *testing.T, other string) {
	t.Helper()
	if _, err := w.ask("ping", `{}`); err != nil {
		t.Error(err)
	}
	if err := w.echo(other, "other", `{"n":"meanwhile"}`); err != nil {
		t.Error(err)
	}
	if a, err := w.ask("tools/list", `{}`); err != nil || a.Error != nil {
		t.Error(a, err)
	}
}

// TestStreamsHaltedServer: 50 calls of 64 KiB go to a server that does not read,
// and hinder nobody else; when it reads on, all are answered.
func TestStreamsHaltedServer(t *testing.T) {
	const calls = 50
	w := newStreamWorld(t, "", map[string]upstreamtest.Script{"a": {}, "b": {}})
	for _, server := range []string{"a", "b"} {
		if err := w.echo(server, "echo", `{}`); err != nil {
			t.Fatal(err)
		}
	}
	if a, err := w.ask("tools/list", `{}`); err != nil || a.Error != nil {
		t.Fatal(a, err) // and so the list need not be asked of a halted server
	}
	pid := w.pid(t, "a")
	syscall.Kill(pid, syscall.SIGSTOP)
	defer syscall.Kill(pid, syscall.SIGCONT)
	args := func(n int) string {
		return fmt.Sprintf(`{"n":%d,"pad":"%s"}`, n, strings.Repeat("x", 64<<10))
	}
	var answers [calls]chan liveAnswer
	for n := range calls {
		var err error
		if answers[n], _, err = w.send("tools/call", fmt.Sprintf(`{"name":"a__echo","arguments":%s}`, args(n))); err != nil {
			t.Fatal(err)
		}
	}
	w.unhindered(t, "b")
	syscall.Kill(pid, syscall.SIGCONT)
	for n := range calls {
		if err := echoed(<-answers[n], nil, "echo", args(n)); err != nil {
			t.Errorf("call %d: %v", n, err)
		}
	}
}

// TestStreamsSlowCall: a call that is never answered, and 64 others at once,
// delay neither each other nor anything else.
func TestStreamsSlowCall(t *testing.T) {
	w := newStreamWorld(t, "", map[string]upstreamtest.Script{
		"a": {Rules: []upstreamtest.Rule{{Method: "tools/call", Key: "never", Silent: true}, {Method: "tools/call", Key: "slow", Wait: upstreamtest.Duration(300 * time.Millisecond)}}},
		"b": {},
	})
	if _, _, err := w.send("tools/call", `{"name":"a__never","arguments":{}}`); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	began := time.Now()
	for n := range 64 {
		calls.Go(func() {
			if err := w.echo("a", "slow", fmt.Sprintf(`{"n":%d}`, n)); err != nil {
				t.Error(err)
			}
		})
	}
	w.unhindered(t, "b")
	w.unhindered(t, "a")
	calls.Wait()
	if took := time.Since(began); took > 64*300*time.Millisecond/2 {
		t.Errorf("64 calls of 0.3 s each took %v: one after the other", took)
	}
}

// TestStreamsDeafClient: while the client does not read, a server has 150 MB of
// answers for it. coffer keeps only a bounded part, and none is lost.
func TestStreamsDeafClient(t *testing.T) {
	const calls, size, most = 150, 1 << 20, 64 << 20
	big := fmt.Sprintf(`{"content":[],"pad":"%s"}`, strings.Repeat("x", size))
	w := newStreamWorld(t, "", map[string]upstreamtest.Script{
		"a": {Rules: []upstreamtest.Rule{{Method: "tools/call", Key: "flood", Result: json.RawMessage(big)}}}, "b": {}})
	for _, call := range []string{"a__echo", "a__flood", "b__echo"} {
		if a, err := w.callTool(call); err != nil || a.Error != nil {
			t.Fatal(call, err)
		}
	}
	hears := w.deafen()
	idle := peakMemory(t, w.cmd.Process.Pid)
	var answers [calls]chan liveAnswer
	for n := range calls {
		answers[n], _, _ = w.send("tools/call", fmt.Sprintf(`{"name":"a__flood","arguments":{"n":%d}}`, n))
	}
	other, _, _ := w.send("tools/call", `{"name":"b__echo","arguments":{}}`)
	// The server has got them all, although its answers are not taken from it.
	for end := time.Now().Add(liveLimit); w.got(t, "a", `"flood"`) <= calls || w.got(t, "b", `"echo"`) < 2; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the calls do not reach the servers")
		}
	}
	hears()
	for n := range calls {
		if a := <-answers[n]; len(a.Result) != len(big) {
			t.Fatalf("answer %d is %v", n, a.Error)
		}
	}
	if a := <-other; a.Error != nil {
		t.Error(a)
	}
	if peak := peakMemory(t, w.cmd.Process.Pid); peak > idle+most*raceFactor {
		t.Errorf("memory went from %d to %d MiB", idle>>20, peak>>20)
	} else {
		t.Logf("memory went from %d to %d MiB", idle>>20, peak>>20)
	}
}

// peakMemory is the most resident memory that a process has ever had, in bytes.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kilobytes, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// TestStreamsBig: an answer of 50 MB comes whole, by pipe and by HTTP.
func TestStreamsBig(t *testing.T) {
	big := `{"content":[{"type":"text","text":"` + strings.Repeat("0123456789", 5<<20) + `"}]}`
	rules := []upstreamtest.Rule{{Method: "tools/call", Key: "big", Result: json.RawMessage(big)}}
	front := httptest.NewServer(upstreamtest.NewServer(upstreamtest.Script{Rules: rules}))
	t.Cleanup(front.Close)
	w := newStreamWorld(t, fmt.Sprintf(`"web": {"type": "http", "url": %q}`, front.URL), map[string]upstreamtest.Script{"a": {Rules: rules}})
	for _, server := range []string{"a", "web"} {
		if a, err := w.callTool(server + "__big"); err != nil || string(a.Result) != big {
			t.Errorf("%s: %d bytes of %d, %v %v", server, len(a.Result), len(big), a.Error, err)
		}
	}
}

// TestStreamsStderr: stderr is drained before, during and without a handshake,
// whether it has lines or not.
func TestStreamsStderr(t *testing.T) {
	w := newStreamWorld(t, `"loud": {"command": "sh", "args": ["-c", "head -c 3000000 /dev/zero | tr '\\0' x >&2; yes 'a line' | head -n 20000 >&2; exec fakeserver '{}'"]}`, nil)
	if err := w.echo("loud", "echo", `{}`); err != nil {
		t.Error(err)
	}
}

// TestStreamsDeaths: wherever a server dies, the call that meets it ends with
// what happened, no call runs twice, and a later one is answered.
func TestStreamsDeaths(t *testing.T) {
	die := 3
	scripts := map[string]upstreamtest.Script{}
	for name, method := range map[string]string{
		"discover": "server/discover", "initialize": "initialize", "initialized": "notifications/initialized", "list": "tools/list", "call": "tools/call",
	} {
		scripts[name] = upstreamtest.Script{Rules: []upstreamtest.Rule{{Method: method, Nth: 1, Die: &die}}}
	}
	scripts["half"] = upstreamtest.Script{Rules: []upstreamtest.Rule{{Method: "tools/call", Nth: 1, Send: []json.RawMessage{[]byte(`"half"`)}, Die: &die}}}
	w := newStreamWorld(t, "", scripts)
	w.ask("tools/list", `{}`) // some of them die
	for server := range scripts {
		calls := 0
		for end := time.Now().Add(liveLimit); ; time.Sleep(20 * time.Millisecond) {
			a, err := w.ask("tools/call", fmt.Sprintf(`{"name":"%s__echo","arguments":{"n":"%s-%d."}}`, server, server, calls))
			calls++
			if err == nil && a.Error == nil {
				break
			}
			if err != nil || a.Error.Code != 503 || a.Error.Data.Upstream != server || !strings.Contains(a.Error.Message, server) {
				t.Fatalf("%s: %v %v", server, a, err)
			}
			if time.Now().After(end) {
				t.Fatalf("%s does not heal: %v", server, a)
			}
		}
		for n := range calls {
			if ran := w.got(t, server, fmt.Sprintf(`%s-%d.`, server, n)); ran > 1 || n == calls-1 && ran == 0 {
				t.Errorf("%s: call %d of %d ran %d times", server, n, calls, ran)
			}
		}
	}
}

// TestStreamsOneRestart: five calls that find their server dead start one.
func TestStreamsOneRestart(t *testing.T) {
	w := newStreamWorld(t, "", map[string]upstreamtest.Script{"a": {}})
	if err := w.echo("a", "echo", `{}`); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(w.pid(t, "a"), syscall.SIGKILL)
	for end := time.Now().Add(liveLimit); !strings.Contains(w.logged(t), "connection lost"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("coffer does not notice")
		}
	}
	var calls sync.WaitGroup
	for n := range 5 {
		calls.Go(func() {
			if err := w.echo("a", "echo", fmt.Sprintf(`{"n":%d}`, n)); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if pids, _ := os.ReadFile(w.file("a.pids")); bytes.Count(pids, []byte("\n")) != 2 {
		t.Errorf("processes: %q", pids)
	}
}

// TestStreamsLastLine: a last line counts although it has no end, and half a
// message does not.
func TestStreamsLastLine(t *testing.T) {
	const half = `read line; printf '{"jsonrpc":"2.0","id":1,"res'`
	const last = `read line; id=$${line#*\"id\":}; printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"last words"}}' "$${id%%,*}"`
	var entries []string
	for name, command := range map[string]string{"half": half, "last": last} {
		args, err := json.Marshal([]string{"-c", command})
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, fmt.Sprintf(`%q: {"command": "sh", "args": %s}`, name, args))
	}
	w := newStreamWorld(t, strings.Join(entries, ","), nil)
	for name, words := range map[string]string{"half": "its process ended: exit status 0", "last": "last words"} {
		a, err := w.callTool(name + "__x")
		if err != nil || a.Error == nil || a.Error.Code != 503 || !strings.Contains(a.Error.Message, words) {
			t.Errorf("%s: %v %v", name, a, err)
		}
	}
}
