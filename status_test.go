package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// ownRuntimeFolder gives a test a runtime folder that no other test uses.
func ownRuntimeFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "cof") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	t.Setenv("COFFER_RUNTIME_DIR", folder)
	return folder
}

// coffers asks `coffer status --json` until what it tells is as good says, and
// returns that.
func coffers(t *testing.T, good func([]running) bool) []running {
	t.Helper()
	for deadline := time.Now().Add(liveLimit); ; {
		stdout, err := runDemo(t.Context(), cofferBinary(t), []string{"status", "--json"})
		if err != nil {
			t.Fatal(err)
		}
		var said struct{ Coffers []running }
		if err := json.Unmarshal([]byte(stdout), &said); err != nil {
			t.Fatalf("%v in %s", err, stdout)
		}
		if good(said.Coffers) {
			return said.Coffers
		}
		if time.Now().After(deadline) {
			t.Fatalf("not what it should be: %s", stdout)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestStatus: each running coffer is told of, with what it has done, and none
// that has gone, however it went.
func TestStatus(t *testing.T) {
	runtimeFolder := ownRuntimeFolder(t)
	first, second := serveDemo(t, t.TempDir()), serveDemo(t, t.TempDir())
	defer second.close()
	for range 3 {
		if _, err := second.callTool(t.Context(), "notes__list", `{}`); err != nil {
			t.Fatal(err)
		}
	}
	up := func(r running) bool {
		return !slices.ContainsFunc(r.Upstreams, func(u runningUpstream) bool { return u.State != "connected" })
	}
	all := coffers(t, func(all []running) bool { return len(all) == 2 && up(all[0]) && up(all[1]) })
	for i, client := range []*demoClient{first, second} {
		r := all[i] // the oldest first
		if r.PID != client.cmd.Process.Pid || r.Client == nil || r.Client.Name != "test" || r.Client.Version != "1" || r.Client.ProtocolVersion != "2025-11-25" {
			t.Errorf("coffer %d is %+v %+v, want pid %d", i, r, r.Client, client.cmd.Process.Pid)
		}
		if since := time.Since(time.Time(r.StartedAt)); since < 0 || since > liveLimit {
			t.Errorf("coffer %d has run for %v", i, since)
		}
		for j, u := range r.Upstreams {
			want := runningUpstream{Server: demoOrder[j], Transport: "stdio", State: "connected", ProtocolVersion: optional("2025-11-25"), ConnectedAt: u.ConnectedAt}
			if i == 1 && u.Server == "notes" {
				want.Calls = 3
			}
			if got, want := fmt.Sprint(asJSON(t, u)), fmt.Sprint(asJSON(t, want)); got != want {
				t.Errorf("coffer %d: got %s, want %s", i, got, want)
			}
		}
	}

	first.cmd.Process.Kill()
	<-first.ended
	first.close()
	coffers(t, func(all []running) bool { return len(all) == 1 && all[0].PID == second.cmd.Process.Pid })
	if left, err := os.ReadDir(runtimeFolder); err != nil || len(left) != 1 {
		t.Errorf("in the runtime folder are %v, %v", left, err)
	}
	if err := second.close(); err != nil {
		t.Errorf("exit: %v\n%s", err, second.log.String())
	}
	if left, err := os.ReadDir(runtimeFolder); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if stdout, err := runDemo(t.Context(), cofferBinary(t), []string{"status"}); err != nil || stdout != "No coffer is running.\n" {
		t.Errorf("%q, %v", stdout, err)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestJSONFields: the members of the documents are a contract, and the README
// names each.
func TestJSONFields(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, item, _ := strings.Cut(string(readme), "An *item* is ")
	item, _, _ = strings.Cut(item, "\n")
	_, tested, _ := strings.Cut(string(readme), "\n| `mcp test` |")
	tested, _, _ = strings.Cut(tested, "\n")
	for _, test := range []struct {
		command  string
		document any
		want     string
	}{
		{"status", running{Client: &runningClient{}, Upstreams: []runningUpstream{{}}},
			"pid version started_at config db client name version protocol_version upstreams server transport state " +
				"protocol_version connected_at calls restarts last_error last_error_at retry_at error"},
		{"logs", stderrLine{}, "at server pid line"},
		{"mcp why", explained{}, "server type key name enabled first_seen_at last_seen_at set_at live by since shortened"},
		{"doctor", diagnosis{Servers: []examined{{}}, Coffers: []running{}, Clients: []diagnosedClient{{}}, Findings: []finding{{}}},
			"ok config path exists valid count database path exists valid count servers server live transport protocol_version " +
				"server_info offers connect_ms latency_ms error hint enabled command found_on listed tools on off coffers " +
				"clients client scope path entry command works error findings level about server message fix"},
	} {
		_, row, _ := strings.Cut(string(readme), "\n| `"+test.command+"` |")
		row, _, _ = strings.Cut(row, "\n")
		if row += item; test.command == "doctor" {
			row += tested
		}
		var names []string
		for _, m := range regexp.MustCompile(`"([a-z_]+)":`).FindAllStringSubmatch(asJSON(t, test.document), -1) {
			names = append(names, m[1])
			if !strings.Contains(row, "`"+m[1]+"`") {
				t.Errorf("the README does not name %s for coffer %s", m[1], test.command)
			}
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("coffer %s --json has %s, want %s", test.command, got, test.want)
		}
	}
}

// serveFake starts coffer serve in front of servers that do as their scripts
// say, with the handshake done.
func serveFake(t *testing.T, folder string, servers string) *demoClient {
	t.Helper()
	config := filepath.Join(folder, "config.json")
	writeFile(t, config, `{"mcpServers": {`+servers+`}}`)
	client, err := startDemoClient(t.Context(), cofferBinary(t), []string{"serve", "--config", config, "--db", filepath.Join(folder, "coffer.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.close() })
	if _, err := client.call(t.Context(), "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`); err != nil {
		t.Fatal(err, client.log.String())
	}
	client.notify("notifications/initialized")
	return client
}

// TestStatusTroubles: a server that died and came back, one that cannot start,
// one that is broken and one that is disabled are told apart.
func TestStatusTroubles(t *testing.T) {
	ownRuntimeFolder(t)
	folder := t.TempDir()
	script := `{"tools":[{"name":"x","inputSchema":{"type":"object"}}],"rules":[{"method":"tools/call","nth":1,"die":7}],"log":` +
		fmt.Sprintf("%q", filepath.Join(folder, "requests")) + `}`
	client := serveFake(t, folder, `
		"dies": {"command": "fakeserver", "args": [`+asJSON(t, script)+`]},
		"fails": {"command": "fakeserver", "args": ["{\"stderr\":[\"no licence\"],\"exit\":3}"]},
		"broken": {"command": "coffer", "env": {"A": "${COFFER_NO_SUCH}"}},
		"off": {"command": "coffer", "disabled": true}`)
	if _, err := client.callTool(t.Context(), "dies__x", `{}`); err == nil {
		t.Error("the call of a server that died has a result")
	}
	if _, err := client.callTool(t.Context(), "dies__x", `{}`); err != nil {
		t.Error(err)
	}
	all := coffers(t, func(all []running) bool {
		return len(all) == 1 && len(all[0].Upstreams) == 4 && all[0].Upstreams[0].State == "connected" && all[0].Upstreams[1].State == "down"
	})
	u := all[0].Upstreams
	if d := u[0]; d.Restarts != 1 || d.Calls != 2 || d.LastError == nil || time.Time(d.LastErrorAt).IsZero() {
		t.Errorf("dies: %s", asJSON(t, d))
	}
	if d := u[1]; d.LastError == nil || d.Restarts != 0 || d.ProtocolVersion != nil {
		t.Errorf("fails: %s", asJSON(t, d))
	}
	if d := u[2]; d.State != "broken" || d.LastError == nil || !strings.Contains(*d.LastError, "COFFER_NO_SUCH") {
		t.Errorf("broken: %s", asJSON(t, d))
	}
	if d := u[3]; d.State != "disabled" || d.LastError != nil {
		t.Errorf("off: %s", asJSON(t, d))
	}
	stdout, err := runDemo(t.Context(), cofferBinary(t), []string{"status"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf(`(?m)^test 1, pid %d, since \d{4}-\d\d-\d\d \d\d:\d\d$`, client.cmd.Process.Pid),
		`(?m)^  config: .*config.json$`,
		`(?m)^  dies +connected +2 +1 +\d{4}-.*: .+$`,
		`(?m)^  fails +down.* 0 +0 +\d{4}-.*upstream "fails" unavailable: .+$`,
		`(?m)^  off +disabled +0 +0$`,
	} {
		if !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("status lacks %s:\n%s", want, stdout)
		}
	}
}

// TestErrorText: an error that quotes lines of stderr is one line in a table.
func TestErrorText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	for want, u := range map[string]runningUpstream{
		"":                       {},
		"it broke":               {LastError: optional("it broke")},
		"2026-01-02 03:04: it …": {LastError: optional("it\n  broke"), LastErrorAt: moment(at)},
	} {
		if got := u.errorText(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestServeWithoutSocket: that there can be none is nothing that a client or
// a person hears of.
func TestServeWithoutSocket(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "")
	t.Setenv("COFFER_RUNTIME_DIR", filepath.Join(file, "run"))
	client := serveDemo(t, t.TempDir())
	if err := client.close(); err != nil {
		t.Errorf("exit: %v", err)
	}
	if log := client.log.String(); strings.Contains(log, "socket") {
		t.Errorf("the log has %s", log)
	}
}
