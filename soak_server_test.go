package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"coffer/jsonrpc"
	"coffer/upstream/upstreamtest"
)

// soakPause is what a slow tool takes.
const soakPause = 150 * time.Millisecond

// soakServerMain is the command soakserver NAME FILE: a server that appends the
// number of each call that it runs to FILE, that has a child, and that ends in
// the middle of things when it is told to.
func soakServerMain() {
	if err := serveSoak(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "soakserver:", err)
		os.Exit(1)
	}
}

func serveSoak(name, path string) error {
	child := exec.Command("sleep", "3600")
	if err := child.Start(); err != nil {
		return err
	}
	ran, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	server := upstreamtest.NewServer(soakScript(name))
	server.Watch = soakWatch(func(number string) {
		fmt.Fprintln(ran, number)
		if rand.IntN(20) == 0 {
			fmt.Fprint(os.Stderr, strings.Repeat("no end of a line ", 1<<10))
		}
	})
	server.Serve(os.Stdin, os.Stdout, os.Exit)
	return child.Process.Kill() // who ends well takes its child along
}

// soakScript is a server with something of each kind, whose names hold its own.
func soakScript(name string) upstreamtest.Script {
	raw := func(format string, args ...any) json.RawMessage { return fmt.Appendf(nil, format, args...) }
	s := upstreamtest.Script{
		Resources: []json.RawMessage{raw(`{"uri":"soak://%s/r","name":"r"}`, name)},
		Templates: []json.RawMessage{raw(`{"uriTemplate":"soak://%s/t/{id}","name":"t"}`, name)},
		Prompts:   []json.RawMessage{raw(`{"name":"p_%s"}`, name)},
		Rules: []upstreamtest.Rule{
			{Method: "tools/call", Key: "slow", Wait: upstreamtest.Duration(soakPause), Send: []json.RawMessage{
				raw(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"$token","progress":1}}`)}},
			{Method: "tools/call", Key: "storm", Send: []json.RawMessage{
				raw(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`),
				raw(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`),
				raw(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)}},
		},
		SSE: name == "events",
	}
	if name == "modern" {
		s.Versions = []string{"2026-07-28", "2025-11-25"}
	}
	for _, tool := range soakTools {
		s.Tools = append(s.Tools, raw(`{"name":%q,"inputSchema":{"type":"object"}}`, tool))
	}
	return s
}

// soakTools are what each server has. All but die and half answer with their
// name and their arguments.
var soakTools = []string{"echo", "slow", "storm", "toggled", "die", "half"}

// soakWatch has ran told the number of each call, before it is answered, and
// now and then puts a line between that is no protocol.
func soakWatch(ran func(number string)) func(*upstreamtest.Conn, *jsonrpc.Message, []byte) bool {
	noise := []string{"listening on stdio", `{"level":"info"}`, "\xEF\xBB\xBF", "\xFF\xFE half a rune", `{"jsonrpc":"2.0","id":`, "", `[]`, `{"id":1}`}
	var calls atomic.Int64
	return func(c *upstreamtest.Conn, m *jsonrpc.Message, _ []byte) bool {
		if m == nil || m.Method != "tools/call" {
			return false
		}
		number, _ := jsonrpc.TextAt(m.Params, "arguments", "n")
		ran(number)
		n := int(calls.Add(1))
		if n%10 == 0 {
			c.Send([]byte(noise[n/10%len(noise)]))
		}
		switch tool, _ := jsonrpc.TextAt(m.Params, "name"); tool {
		case "die":
			c.Die(3)
		case "half":
			c.Send([]byte(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":[{"te`))
			c.Die(0)
		default:
			return false
		}
		return true
	}
}
