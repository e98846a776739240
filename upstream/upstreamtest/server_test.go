package upstreamtest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"coffer/upstream/upstreamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`

// serve runs the command in this process and returns its stdout.
func serve(t *testing.T, script string, lines ...string) string {
	t.Helper()
	out, in := io.Pipe()
	var code int
	done := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(out)
		done <- string(text)
	}()
	var stderr bytes.Buffer
	code = upstreamtest.Main([]string{"fakeserver", script}, strings.NewReader(strings.Join(lines, "\n")+"\n"), in, &stderr)
	in.Close()
	got := <-done
	if code != 0 {
		t.Fatalf("exit %d, stderr %q", code, stderr.String())
	}
	return got
}

func TestMainServesScript(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	script, err := json.Marshal(upstreamtest.Script{
		Banner: []string{"listening"}, Log: log, Page: 1,
		Tools: []json.RawMessage{json.RawMessage(`{"name":"a"}`), json.RawMessage(`{"name":"b"}`)},
		Rules: []upstreamtest.Rule{
			{Method: "tools/call", Nth: 2, Error: json.RawMessage(`{"code":1,"message":"no"}`)},
			{Method: "tools/call", Key: "p", Send: []json.RawMessage{json.RawMessage(`{"p":"$token","i":"$id"}`)}, Silent: true},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	call := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"x":1},"_meta":{"progressToken":"t"}}}`
	got := serve(t, string(script), hello,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"cursor":"1"}}`,
		fmt.Sprintf(call, 4, "a"), fmt.Sprintf(call, 5, "b"), fmt.Sprintf(call, 6, "p"),
		`{"jsonrpc":"2.0","id":7,"method":"nope"}`)
	want := []string{
		`listening`,
		`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":` +
			`{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"prompts":{"listChanged":true},"logging":{},"completions":{}}` +
			`,"serverInfo":{"name":"fakeserver","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"a"}],"nextCursor":"1"}}`,
		`{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"b"}]}}`,
		`{"jsonrpc":"2.0","id":4,"result":{"content":[{"type":"text","text":"a {\"x\":1}"}]}}`,
		`{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":"no"}}`,
		`{"p":"t","i":6}`,
		`{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"Method not found"}}`,
	}
	if got != strings.Join(want, "\n")+"\n" {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	received, err := os.ReadFile(log)
	if n := bytes.Count(received, []byte("\n")); err != nil || n != 8 {
		t.Errorf("log has %d lines, want 8: %v", n, err)
	}

	// A second process goes on counting: its first call is the fourth.
	got = serve(t, `{"log":`+fmt.Sprintf("%q", log)+`,"rules":[{"method":"tools/call","nth":4,"result":{}}]}`, fmt.Sprintf(call, 9, "a"))
	if want := `{"jsonrpc":"2.0","id":9,"result":{}}` + "\n"; got != want {
		t.Errorf("after a restart got %q, want %q", got, want)
	}
}

func TestScriptMisspelt(t *testing.T) {
	if _, err := upstreamtest.ReadScript(`{"tool":[]}`); err == nil {
		t.Error("a misspelt key is accepted")
	}
}

// post sends one message and returns the status, the body's lines and the session.
func post(t *testing.T, url, session, body string) (status int, answer, newSession string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Mcp-Session-Id", session)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header.Get("Mcp-Session-Id")
}

func TestHTTP(t *testing.T) {
	server := upstreamtest.NewServer(upstreamtest.Script{
		SSE: true,
		Rules: []upstreamtest.Rule{
			{Method: "tools/call", Send: []json.RawMessage{json.RawMessage(`{"n":1}`)}, Result: json.RawMessage(`{}`)},
			{Method: "prompts/get", Status: http.StatusUnauthorized},
		},
	})
	web := httptest.NewServer(server)
	defer web.Close()
	defer http.DefaultClient.CloseIdleConnections()
	_, _, session := post(t, web.URL, "", hello)

	req, err := http.NewRequest(http.MethodGet, web.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", session)
	stream, err := http.DefaultClient.Do(req)
	if err != nil || stream.StatusCode != http.StatusOK {
		t.Fatalf("GET: %v %v", stream, err)
	}
	defer stream.Body.Close()

	status, got, _ := post(t, web.URL, session, `{"jsonrpc":"2.0","id":2,"method":"tools/call"}`)
	want := "event: message\ndata: {\"n\":1}\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n\n"
	if status != http.StatusOK || got != want {
		t.Errorf("call: got %d %q, want %q", status, got, want)
	}
	if status, _, _ = post(t, web.URL, session, `{"jsonrpc":"2.0","id":3,"method":"prompts/get"}`); status != http.StatusUnauthorized {
		t.Errorf("refused: got %d, want 401", status)
	}
	if status, _, _ = post(t, web.URL, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); status != http.StatusAccepted {
		t.Errorf("notification: got %d, want 202", status)
	}
	server.Forget()
	if status, _, _ = post(t, web.URL, session, `{"jsonrpc":"2.0","id":4,"method":"ping"}`); status != http.StatusNotFound {
		t.Errorf("forgotten session: got %d, want 404", status)
	}
	if _, err := bufio.NewReader(stream.Body).ReadString('\n'); err != io.EOF {
		t.Errorf("stream of a forgotten session: got %v, want EOF", err)
	}
}
