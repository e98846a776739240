package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

// realEras are the inspector's values of --protocol-era that the test drives
// coffer with, and the one that it drives the servers directly with: the npm
// servers speak the handshake era only, and coffer translates.
var realEras = []struct {
	coffer, direct string
	only           []string // the methods and requests that are enough, nil for all
}{
	{coffer: "legacy", direct: "legacy"},
	{coffer: "auto", direct: "legacy", only: []string{"tools/list", "a text"}},
	{coffer: "modern", direct: "legacy", only: []string{"tools/list", "a change", "over HTTP", "a prompt", "a document"}},
}

// realLists are the list methods, with the member of the result that has the
// items and whether the items' names are qualified.
var realLists = []struct {
	method, member string
	qualified      bool
}{
	{"tools/list", "tools", true},
	{"prompts/list", "prompts", true},
	{"resources/list", "resources", false},
	{"resources/templates/list", "resourceTemplates", false},
}

// realRequests are requests with a result that does not depend on time or
// chance.
var realRequests = []realRequest{
	{what: "a text", server: "everything", kind: "tool", name: "echo", args: `{"message":"<&> é \" 😀"}`},
	{what: "annotations", server: "everything", kind: "tool", name: "get-annotated-message", args: `{"messageType":"error","includeImage":true}`},
	{what: "links", server: "everything", kind: "tool", name: "get-resource-links", args: `{"count":3}`},
	{what: "a file", server: "filesystem", kind: "tool", name: "read_text_file", args: `{"path":"FILES/a.txt"}`},
	{what: "a tool's own failure", server: "filesystem", kind: "tool", name: "read_text_file", args: `{"path":"/nowhere/else"}`},
	{what: "a graph", server: "memory", kind: "tool", name: "read_graph", args: `{}`},
	{what: "a change", server: "memory", kind: "tool", name: "create_entities", args: `{"entities":[{"name":"Bob","entityType":"person","observations":["new"]}]}`},
	{what: "over HTTP", server: "notes", kind: "tool", name: "shout", args: `{"text":"a long way"}`},
	{what: "a prompt", server: "everything", kind: "prompt", name: "args-prompt", args: `{"city":"Paris","state":"Texas"}`},
	{what: "a prompt over HTTP", server: "notes", kind: "prompt", name: "greet", args: `{"name":"Ada"}`},
	{what: "a document", server: "everything", kind: "read", name: "demo://resource/static/document/architecture.md"},
	{what: "an unknown document", server: "everything", kind: "read", name: "demo://resource/static/none"},
	{what: "the graph", server: "memory", kind: "read", name: "memory://knowledge-graph"},
	{what: "a note of a template over HTTP", server: "notes", kind: "read", name: "note://by-id/7"},
}

type realRequest struct {
	what, server string
	kind         string // "tool", "prompt" or "read"
	name         string // the server's own name, or the URI
	args         string // JSON; FILES stands for the filesystem server's folder
}

// merged returns the name that coffer gives the request's item.
func (q realRequest) merged() string {
	if q.kind == "read" {
		return q.name
	}
	return q.server + "__" + q.name
}

// flags returns the inspector's flags for the request, by the given name.
func (q realRequest) flags(t *testing.T, r realRun, name string) []string {
	t.Helper()
	args := strings.ReplaceAll(q.args, "FILES", r.world.files)
	switch q.kind {
	case "tool":
		return []string{"--method", "tools/call", "--tool-name", name, "--tool-args-json", args}
	case "prompt":
		var members map[string]string
		if err := json.Unmarshal([]byte(args), &members); err != nil {
			t.Fatal(err)
		}
		flags := []string{"--method", "prompts/get", "--prompt-name", name, "--prompt-args"}
		for key, value := range members {
			flags = append(flags, key+"="+value)
		}
		return flags
	default:
		return []string{"--method", "resources/read", "--uri", name}
	}
}

// TestRealServers has the official inspector as the client, the official npm
// servers and one of mcp-go's over HTTP behind coffer, and compares each list
// and result with what the inspector gets from the server itself.
func TestRealServers(t *testing.T) {
	world := newRealWorld(t)
	for _, era := range realEras {
		wanted := func(what string) bool { return era.only == nil || slices.Contains(era.only, what) }
		for _, list := range realLists {
			if wanted(list.method) {
				t.Run(era.coffer+"/"+list.method, func(t *testing.T) {
					t.Parallel()
					direct, through := world.run(t), world.run(t)
					var got []any
					want := make([][]any, len(direct.servers))
					var wg sync.WaitGroup
					wg.Go(func() { got = listItems(t, through, era.coffer, "coffer", list.method, list.member) })
					for i, name := range direct.names() {
						wg.Go(func() {
							want[i] = listItems(t, direct, era.direct, name, list.method, list.member)
							if list.qualified {
								qualifyNames(name, want[i])
							}
						})
					}
					wg.Wait()
					if len(slices.Concat(want...)) == 0 {
						t.Fatalf("no server has any %s: nothing is tested", list.member)
					}
					compareItems(t, through, got, forEra(era.coffer, slices.Concat(want...)))
				})
			}
		}
		for _, q := range realRequests {
			if wanted(q.what) {
				t.Run(era.coffer+"/"+q.what, func(t *testing.T) {
					t.Parallel()
					direct, through := world.run(t), world.run(t)
					flags, flagsMerged := q.flags(t, direct, q.name), q.flags(t, through, q.merged())
					var want, got inspection
					var wg sync.WaitGroup
					wg.Go(func() { want = direct.inspect(t, era.direct, q.server, flags...) })
					wg.Go(func() { got = through.inspect(t, era.coffer, "coffer", flagsMerged...) })
					wg.Wait()
					if want.Result == nil && want.Err == "" {
						t.Fatalf("the server itself gives neither result nor error: %+v", want)
					}
					if !reflect.DeepEqual(withoutHop(t, era.coffer, decodeJSON(t, got.Result)), decodeJSON(t, want.Result)) {
						t.Errorf("result through coffer\n%s\nwant, as without\n%s\n%s", got.Result, want.Result, through.explain(got.stderr))
					}
					gotErr := strings.ReplaceAll(got.Err, q.merged(), q.name)
					if gotErr != want.Err || got.Exit != want.Exit {
						t.Errorf("through coffer exit %d, error %q, want, as without, exit %d, error %q\n%s",
							got.Exit, gotErr, want.Exit, want.Err, through.explain(got.stderr))
					}
				})
			}
		}
	}
}

// forEra returns a server's items as a client of the era can have them:
// 2026-07-28 has no tasks of 2025-11-25, so a tool that cannot do without is
// left out, and what others say of them too.
func forEra(era string, items []any) []any {
	if era == "legacy" {
		return items
	}
	return slices.DeleteFunc(items, func(item any) bool {
		members := item.(map[string]any)
		execution, _ := members["execution"].(map[string]any)
		delete(members, "execution")
		return execution["taskSupport"] == "required"
	})
}

// withoutHop removes from a result what belongs to the hop between coffer and
// a client of 2026-07-28, and nothing from another.
func withoutHop(t *testing.T, era string, result any) any {
	t.Helper()
	members, ok := result.(map[string]any)
	if !ok || era == "legacy" {
		return result
	}
	for _, own := range []string{"resultType", "ttlMs", "cacheScope"} {
		delete(members, own)
	}
	meta, _ := members["_meta"].(map[string]any)
	const key = "io.modelcontextprotocol/serverInfo"
	if server, ok := meta[key].(map[string]any); ok && server["name"] != "coffer" {
		t.Errorf("the result is of the server %v, want coffer", server)
	}
	delete(meta, key)
	if len(meta) == 0 {
		delete(members, "_meta")
	}
	return members
}

// listItems returns the items of a list as the inspector shows them, from any
// goroutine of the test.
func listItems(t *testing.T, r realRun, era, name, method, member string) []any {
	t.Helper()
	got := r.inspect(t, era, name, "--method", method)
	if got.Exit != 0 {
		t.Errorf("%s of %s: exit %d, error %q\n%s", method, name, got.Exit, got.Err, r.explain(got.stderr))
		return nil
	}
	result, _ := decodeJSON(t, got.Result).(map[string]any)
	items, ok := result[member].([]any)
	if !ok {
		t.Errorf("%s of %s: no %s in %s", method, name, member, got.Result)
	}
	return items
}

// qualifyNames gives the items the names that coffer gives them.
func qualifyNames(server string, items []any) {
	for _, item := range items {
		members := item.(map[string]any)
		members["name"] = server + "__" + members["name"].(string)
	}
}

func compareItems(t *testing.T, r realRun, got, want []any) {
	t.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	log := r.explain("")
	if g, w := labels(got), labels(want); !slices.Equal(g, w) {
		t.Fatalf("coffer lists\n%q\nwant\n%q\n%s", g, w, log)
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("item %d is\n%v\nwant, as without coffer,\n%v\n%s", i, got[i], want[i], log)
		}
	}
}

// labels returns what tells the items apart.
func labels(items []any) []string {
	var out []string
	for _, item := range items {
		members, _ := item.(map[string]any)
		for _, key := range []string{"uri", "uriTemplate", "name"} {
			if label, ok := members[key].(string); ok {
				out = append(out, label)
				break
			}
		}
	}
	return out
}

// decodeJSON reads JSON with its numbers as they are written.
func decodeJSON(t *testing.T, text json.RawMessage) any {
	t.Helper()
	if text == nil {
		return nil
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Errorf("%q: %v", text, err)
	}
	return v
}
