package upstreamtest_test

import (
	"strings"
	"testing"

	"coffer/upstream/upstreamtest"
)

// TestTraffic says what is found wrong with a conversation. A line "> " is what
// the checked side sends, "< " what it gets.
func TestTraffic(t *testing.T) {
	schemas, err := upstreamtest.ReadSchemas("../../testdata/schema")
	if err != nil {
		t.Fatal(err)
	}
	const (
		meta   = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		old    = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-03-26","capabilities":{},"serverInfo":{"name":"n","version":"1"}}}`
		now    = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}}`
		greet  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"n","version":"1"}}}`
		find   = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`
		call   = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}`
		modern = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t",` + meta + `}}`
	)
	for _, test := range []struct {
		name   string
		server bool
		lines  []string
		want   string // definition and pointer of the only fault; "": none
	}{
		{"handshake", true, []string{"< " + greet, "> " + old, "< " + call, `> {"jsonrpc":"2.0","id":2,"result":{"content":[]}}`}, ""},
		{"wrong result", true, []string{"< " + greet, "> " + old, "< " + call, `> {"jsonrpc":"2.0","id":2,"result":{"contents":[]}}`}, "CallToolResult /result"},
		{"content of a later revision", true, []string{"< " + greet, "> " + old, "< " + call,
			`> {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"resource_link","uri":"x:","name":"x"}]}}`}, "CallToolResult /result/content/0"},
		{"batch where there are such", true, []string{"< " + greet, "> " + old, "< [" + call + "]", `> [{"jsonrpc":"2.0","id":2,"result":{"content":[]}}]`}, ""},
		{"batch where there are none", true, []string{"< [" + call + "]", `> [{"jsonrpc":"2.0","id":2,"result":{"content":[]}}]`}, "JSONRPCMessage "},
		{"modern result", true, []string{"< " + modern, `> {"jsonrpc":"2.0","id":2,"result":{"content":[],"resultType":"complete"}}`}, ""},
		{"modern question", true, []string{"< " + modern, `> {"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","requestState":"s"}}`}, ""},
		{"modern result without hints", true, []string{"< " + strings.Replace(modern, "tools/call", "tools/list", 1), `> {"jsonrpc":"2.0","id":2,"result":{"tools":[],"resultType":"complete"}}`}, "ListToolsResult /result"},
		{"question to a list", true, []string{"< " + strings.Replace(modern, "tools/call", "tools/list", 1), `> {"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","requestState":"s"}}`}, "ListToolsResult /result/resultType"},
		{"error data", true, []string{"< " + modern, `> {"jsonrpc":"2.0","id":2,"error":{"code":-32022,"message":"m","data":{"supported":[]}}}`}, "UnsupportedProtocolVersionError /error/data"},
		{"error code of another revision", true, []string{"< " + modern, `> {"jsonrpc":"2.0","id":2,"error":{"code":-32002,"message":"m"}}`}, "JSONRPCErrorResponse /error/code"},
		{"no such request", true, []string{`> {"jsonrpc":"2.0","id":2,"result":{}}`}, "JSONRPCResponse /id"},
		{"an id again", true, []string{"< " + call, `< {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`,
			`< {"jsonrpc":"2.0","id":2,"method":"ping"}`, `> {"jsonrpc":"2.0","id":2,"result":{}}`}, ""},
		{"request of a modern server", true, []string{`< ` + modern, `> {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t",` + meta + `}}`}, "ServerRequest /method"},
		{"the client's own", false, []string{"> " + greet, "< " + old, `> {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`}, "ClientNotification /method"},
		{"metadata forgotten", false, []string{"> " + find, "< " + now, "> " + call}, "CallToolRequest /params"},
		{"removed method", false, []string{"> " + find, "< " + now, `> {"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"x:",` + meta + `}}`}, "Request /method"},
		{"foreign method", false, []string{"> " + find, "< " + now, `> {"jsonrpc":"2.0","id":3,"method":"x/y","params":{"z":1}}`}, ""},
		{"answer to the server", false, []string{"> " + greet, "< " + old, `< {"jsonrpc":"2.0","id":9,"method":"roots/list"}`, `> {"jsonrpc":"2.0","id":9,"result":{}}`}, "ListRootsResult /result"},
	} {
		t.Run(test.name, func(t *testing.T) {
			traffic := schemas.Check(test.server)
			var got []string
			for _, line := range test.lines {
				if text, sent := strings.CutPrefix(line, "> "); sent {
					for _, fault := range traffic.Sent([]byte(text)) {
						got = append(got, fault.Definition+" "+fault.At)
					}
				} else {
					traffic.Received([]byte(line[2:]))
				}
			}
			if strings.Join(got, "; ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
