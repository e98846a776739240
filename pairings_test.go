package main

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"coffer/jsonrpc"
	"coffer/upstream/upstreamtest"
)

// The eras of the two sides of coffer.
const (
	handshakeVersion = "2025-11-25"
	statelessVersion = "2026-07-28"
)

// TestPairings says once what a client gets from an upstream, and tries it for
// every pairing of eras and each transport of the upstream, with the real
// coffer between. All that coffer sends is validated, on both sides.
func TestPairings(t *testing.T) {
	for _, client := range []string{handshakeVersion, statelessVersion} {
		for _, server := range []string{handshakeVersion, statelessVersion} {
			for _, transport := range []string{"stdio", "http"} {
				t.Run(fmt.Sprintf("client %s/upstream %s/%s", client, server, transport), func(t *testing.T) {
					t.Parallel()
					p := startPairing(t, client, func(trace string) realServer {
						script := pairingScript(server)
						script.Trace = trace
						return pairedUpstream(t, transport, script)
					})
					for _, step := range []struct {
						name string
						run  func(*pairing)
					}{
						{"list", pairedList}, {"call", pairedCall}, {"progress", pairedProgress}, {"cancel", pairedCancel},
						{"question in two rounds", pairedQuestion}, {"list changed", pairedListChanged}, {"resource update", pairedUpdate},
					} {
						if !t.Run(step.name, func(t *testing.T) { p.within(t, step.run) }) {
							break
						}
					}
					p.end(t)
				})
			}
		}
	}
}

// pairingTool is the tool that makes the upstream do what its rule says.
func pairingTool(name string) []byte {
	return fmt.Appendf(nil, `{"name":%q,"inputSchema":{"type":"object"},"x":1.10}`, name)
}

// pairingScript is an upstream of one revision.
func pairingScript(version string) upstreamtest.Script {
	script := upstreamtest.Script{Versions: []string{version}, SSE: true}
	step := func(n int) []byte {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"$token","progress":%d}}`, n)
	}
	rules := map[string]upstreamtest.Rule{
		"echo":   {},
		"steps":  {Send: raws(step(1), step(2))},
		"slow":   {Send: raws(step(1)), Silent: true},
		"stop":   {After: "notifications/cancelled"},
		"change": {Send: raws([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))},
		"touch":  {Send: raws([]byte(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"res:a"}}`))},
		"ask": {
			Ask: []upstreamtest.Question{
				{Method: "elicitation/create", Params: []byte(`{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`)},
				{Method: "roots/list"},
			},
			Result: []byte(`{"content":[],"structuredContent":{"answers":"$answers"}}`),
		},
	}
	for _, name := range []string{"echo", "steps", "slow", "stop", "change", "touch", "ask"} {
		rule := rules[name]
		rule.Method, rule.Key = "tools/call", name
		script.Rules = append(script.Rules, rule)
		script.Tools = append(script.Tools, pairingTool(name))
	}
	script.Resources = raws([]byte(`{"uri":"res:a","name":"a"}`))
	return script
}

func pairedList(p *pairing) {
	result := p.result(p.request("tools/list", `{}`))
	tools, _ := jsonrpc.Elements(jsonrpc.Lookup(result, "tools"))
	want := `{"name":"up__echo","inputSchema":{"type":"object"},"x":1.10}`
	if len(tools) != 7 || string(tools[0]) != want {
		p.Errorf("the list is %s, want seven tools of which the first is %s", result, want)
	}
	p.ofEra(result, "resultType", "ttlMs", "cacheScope")
}

func pairedCall(p *pairing) {
	result := p.result(p.request("tools/call", `{"name":"up__echo","arguments":{"n":1.10}}`))
	want := `[{"type":"text","text":"echo {\"n\":1.10}"}]`
	if got := string(jsonrpc.Lookup(result, "content")); got != want {
		p.Errorf("the content is %s, want %s", got, want)
	}
	p.ofEra(result, "resultType")
}

func pairedProgress(p *pairing) {
	for _, token := range []string{`"t"`, `7`} {
		id := p.request("tools/call", `{"name":"up__steps","_meta":{"progressToken":`+token+`}}`)
		for n := 1; n <= 2; n++ {
			m := p.next()
			want := fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, token, n)
			if m.Method != "notifications/progress" || string(m.Params) != want {
				p.Fatalf("got %s %s, want progress %s", m.Method, m.Params, want)
			}
		}
		p.result(id)
	}
}

func pairedCancel(p *pairing) {
	id := p.request("tools/call", `{"name":"up__slow","_meta":{"progressToken":1}}`)
	p.notification("notifications/progress") // so the upstream has it
	p.notify("notifications/cancelled", `{"requestId":`+id+`}`)
	p.result(p.request("tools/call", `{"name":"up__stop"}`)) // the upstream answers when it was told
}

// pairedQuestion has the upstream ask twice, the second time when it has the
// first answer.
func pairedQuestion(p *pairing) {
	answers := map[string]string{
		"elicitation/create": `{"action":"accept","content":{"name":"Ada"}}`,
		"roots/list":         `{"roots":[{"uri":"file:///x"}]}`,
	}
	const call = `"name":"up__ask","arguments":{"a":1}`
	id := p.request("tools/call", `{`+call+`}`)
	for _, method := range []string{"elicitation/create", "roots/list"} {
		if !p.modern {
			q := p.next()
			if q.Method != method || !q.IsRequest() {
				p.Fatalf("got %s %s, want to be asked %s", q.Method, q.Result, method)
			}
			p.send(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":` + answers[method] + `}`)
			continue
		}
		result := p.result(id)
		key, asked, n := "", "", 0
		jsonrpc.Members(jsonrpc.Lookup(result, "inputRequests"), func(k string, raw []byte) {
			key, n = k, n+1
			asked, _ = jsonrpc.TextAt(raw, "method")
		})
		if kind, _ := jsonrpc.TextAt(result, "resultType"); kind != "input_required" || n != 1 || asked != method {
			p.Fatalf("got %s, want to be asked %s", result, method)
		}
		responses := fmt.Sprintf(`{%q:%s}`, key, answers[method])
		id = p.request("tools/call", `{`+call+`,"inputResponses":`+responses+`,"requestState":`+string(jsonrpc.Lookup(result, "requestState"))+`}`)
	}
	result := p.result(id)
	want := `[` + answers["elicitation/create"] + `,` + answers["roots/list"] + `]`
	if got := string(jsonrpc.Lookup(result, "structuredContent", "answers")); got != want {
		p.Errorf("the upstream was answered %s, want %s", got, want)
	}
	p.ofEra(result, "resultType")
}

// pairedListChanged also subscribes to what pairedUpdate waits for.
func pairedListChanged(p *pairing) {
	if p.modern {
		p.listen = p.request("subscriptions/listen", `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["res:a"]}}`)
		m := p.notification("notifications/subscriptions/acknowledged")
		want := `{"toolsListChanged":true,"resourceSubscriptions":["res:a"]}`
		if got := string(jsonrpc.Lookup(m.Params, "notifications")); got != want {
			p.Errorf("coffer agrees to %s, want %s", got, want)
		}
		p.tagged(m)
	} else if got := p.result(p.request("resources/subscribe", `{"uri":"res:a"}`)); string(got) != `{}` {
		p.Errorf("the subscription is answered %s", got)
	}
	p.told("change", "notifications/tools/list_changed")
}

func pairedUpdate(p *pairing) {
	m := p.told("touch", "notifications/resources/updated")
	if uri, _ := jsonrpc.TextAt(m.Params, "uri"); uri != "res:a" {
		p.Errorf("told of %s", m.Params)
	}
}

// told calls a tool at which the upstream tells something; before or after its
// answer the client must be told too.
func (p *pairing) told(tool, method string) *jsonrpc.Message {
	p.Helper()
	id := p.request("tools/call", `{"name":"up__`+tool+`"}`)
	var told, answered *jsonrpc.Message
	for told == nil || answered == nil {
		switch m := p.next(); {
		case m.Method == method:
			told = m
		case string(m.ID) == id && m.Result != nil:
			answered = m
		default:
			p.Fatalf("got %s %s %s", m.Method, m.Params, m.Error)
		}
	}
	p.tagged(told)
	return told
}

// pairedUpstream starts or serves the upstream and returns its config entry.
func pairedUpstream(t *testing.T, transport string, script upstreamtest.Script) realServer {
	if transport == "http" {
		web := httptest.NewServer(upstreamtest.NewServer(script))
		t.Cleanup(web.Close)
		return realServer{Type: "streamable-http", URL: web.URL}
	}
	return realServer{Command: testCommand(t, "fakeserver"), Args: []string{toJSON(t, script)}, Env: map[string]string{"GORACE": atOnce}}
}
