package main

//lint:file-ignore SA1019 Ping, Subscribe, SetLevel belong to the handshake era, which is tested here.

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
)

// The tests of this file have mcp-go's own client before coffer and two of
// mcp-go's own servers behind it (issue 2).

func TestMCPGoHandshake(t *testing.T) {
	t.Parallel()
	s := startMCPGo(t)
	for _, name := range mcpgoServers {
		want := `[{"name":"mcp-go's client","version":"1.2.1"},{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}]`
		if got := s.call(name+"__client", nil); got != want {
			t.Errorf("%s was told of the client %s, want %s", name, got, want)
		}
	}
	if err := s.Ping(s.ctx); err != nil {
		t.Error(err)
	}
	if err := s.web.notes.wait(s.ctx, "ping answered", 2); err != nil {
		t.Error(err)
	}
}

// TestMCPGoStderr has mcp-go's client as it comes: at its end it closes our
// stderr before we have written the last to it.
func TestMCPGoStderr(t *testing.T) {
	t.Parallel()
	env, args, web, mark := mcpgoCommand(t)
	c, err := client.NewStdioMCPClient(cofferBinary(t), env, args...)
	if err != nil {
		t.Fatal(err)
	}
	handshakeEra(c)
	if _, err = c.Initialize(t.Context(), mcp.InitializeRequest{}); err == nil {
		_, err = c.ListTools(t.Context(), mcp.ListToolsRequest{})
	}
	if err != nil {
		t.Error(err)
	}
	endMCPGo(t, c, web, mark)
}

func TestMCPGoReads(t *testing.T) {
	t.Parallel()
	s := startMCPGo(t)
	wantResources := []string{"pipe://state", "shared://board", "coffer://web/shared://board", "web://state"}
	if got := s.resources(); !slices.Equal(got, wantResources) {
		t.Errorf("resources are %q, want %q", got, wantResources)
	}
	templates, err := s.ListResourceTemplates(s.ctx, mcp.ListResourceTemplatesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range mcpgoServers {
		uri := name + "://item/"
		if got := templates.ResourceTemplates[i].URITemplate.Raw(); got != uri+"{id}" {
			t.Errorf("template %d is %q", i, got)
		}
		for asked, theirs := range map[string]string{
			name + "://state": name + "://state", uri + "1%202": uri + "1%202",
			"coffer://" + name + "/shared://board": "shared://board",
		} {
			var r mcp.ReadResourceRequest
			r.Params.URI = asked
			got, err := s.ReadResource(s.ctx, r)
			want := []mcp.ResourceContents{mcp.TextResourceContents{URI: asked, MIMEType: "text/plain", Text: name + " has " + theirs}}
			if err != nil || !reflect.DeepEqual(got.Contents, want) {
				t.Errorf("%s: got %+v (%v), want %+v", asked, got, err, want)
			}
		}
		var r mcp.GetPromptRequest
		r.Params.Name, r.Params.Arguments = name+"__greet", map[string]string{"whom": "Ada"}
		got, err := s.GetPrompt(s.ctx, r)
		if err != nil {
			t.Errorf("%s: %v", r.Params.Name, err)
			continue
		}
		want := fmt.Sprintf(`{"description":"from %s","messages":[{"role":"user","content":{"type":"text","text":"%[1]s: greet Ada"}}]}`, name)
		if toJSON(t, got) != want {
			t.Errorf("%s: got %s, want %s", r.Params.Name, toJSON(t, got), want)
		}
	}
}

func TestMCPGoProgress(t *testing.T) {
	t.Parallel()
	s := startMCPGo(t)

	// Tokens that look alike, a step of each at a time.
	const to = 5
	runs := []struct {
		name  string
		token any
		done  <-chan outcome
	}{{name: "pipe", token: "7"}, {name: "pipe", token: 7.0}, {name: "web", token: "seven"}, {name: "web", token: 7.5}}
	for i := range runs {
		r := &runs[i]
		r.done = s.start(r.name+"__count", pairs("to", to, "gate", fmt.Sprint("gate ", i)), r.token)
	}
	for step := 1; step <= to; step++ {
		for i, r := range runs {
			s.call(r.name+"__note", pairs("what", fmt.Sprint("gate ", i)))
		}
		for _, r := range runs {
			s.notice("notifications/progress", pairs("progressToken", r.token,
				"progress", float64(step), "total", float64(to), "message", fmt.Sprint(r.name, " ", step)))
		}
	}
	for i, r := range runs {
		s.call(r.name+"__note", pairs("what", fmt.Sprint("gate ", i)))
		s.want(r.name, r.done, outcome{text: fmt.Sprint(to)})
	}
	s.noNotice("notifications/progress")

	// Many at once. When mcp-go's client has a result, it has handled all that
	// came before it.
	const many = 200
	tokens := []any{"fast", 1.0, "1"}
	var calls []<-chan outcome
	for _, token := range tokens {
		calls = append(calls, s.start("pipe__count", pairs("to", many), token))
	}
	for i, token := range tokens {
		s.want("burst", calls[i], outcome{text: fmt.Sprint(many)})
		got, _ := s.inbox.take(func(n mcp.JSONRPCNotification) bool {
			return n.Method == "notifications/progress" && n.Params.AdditionalFields["progressToken"] == token
		})
		if len(got) != many {
			t.Errorf("%d notices for the token %#v before the result, want %d", len(got), token, many)
		}
		for j, n := range got {
			if n.Params.AdditionalFields["progress"] != float64(j+1) {
				t.Fatalf("notice %d for %#v is %+v", j, token, n)
			}
		}
	}
	s.noNotice("notifications/progress")
}

func TestMCPGoSubscriptions(t *testing.T) {
	t.Parallel()
	s := startMCPGo(t)
	const updated = "notifications/resources/updated"
	subscribe := func(name, uri, theirs string) {
		t.Helper()
		var r mcp.SubscribeRequest
		r.Params.URI = uri
		if err := s.Subscribe(s.ctx, r); err != nil {
			t.Fatalf("subscribe %s: %v", uri, err)
		}
		s.await(name, "subscribed "+theirs, 1)
	}
	touchPipe := func(uri string, n int) { // and return when the client would know
		t.Helper()
		s.call("pipe__touch", pairs("uri", uri))
		s.await("pipe", updated+" "+uri, n)
	}

	touchPipe("pipe://state", 1)
	s.noNotice(updated)
	for _, name := range mcpgoServers {
		subscribe(name, name+"://state", name+"://state")
		s.call(name+"__touch", pairs("uri", name+"://state"))
		s.notice(updated, pairs("uri", name+"://state"))
	}
	s.call("pipe__touch", pairs("uri", "pipe://state/part"))
	s.notice(updated, pairs("uri", "pipe://state/part"))

	// Both list shared://board: the second's has another URI outside.
	subscribe("web", "coffer://web/shared://board", "shared://board")
	s.call("web__touch", pairs("uri", "shared://board"))
	s.notice(updated, pairs("uri", "coffer://web/shared://board"))
	touchPipe("shared://board", 1)
	s.noNotice(updated)

	var r mcp.UnsubscribeRequest
	r.Params.URI = "pipe://state"
	if err := s.Unsubscribe(s.ctx, r); err != nil {
		t.Fatal(err)
	}
	s.await("pipe", "unsubscribed pipe://state", 1)
	touchPipe("pipe://state", 3)
	s.noNotice(updated)
}

func TestMCPGoCompletion(t *testing.T) {
	t.Parallel()
	s := startMCPGo(t)
	for _, name := range mcpgoServers {
		template := name + "://item/{id}"
		for theirs, ref := range map[string]any{
			"greet":  mcp.PromptReference{Type: "ref/prompt", Name: name + "__greet"},
			template: mcp.ResourceReference{Type: "ref/resource", URI: template},
		} {
			var r mcp.CompleteRequest
			r.Params.Ref, r.Params.Argument = ref, mcp.CompleteArgument{Name: "id", Value: "é<"}
			r.Params.Context.Arguments = map[string]string{"before": "x"}
			got, err := s.Complete(s.ctx, r)
			if err != nil {
				t.Errorf("%v: %v", ref, err)
				continue
			}
			want := mcp.Completion{Values: []string{name, theirs, "id", "é<", "x"}, Total: 1000, HasMore: true}
			if !reflect.DeepEqual(got.Completion, want) {
				t.Errorf("%v: got %+v, want %+v", ref, got.Completion, want)
			}
		}
	}
}

func TestMCPGoLogging(t *testing.T) {
	t.Parallel()
	s := startMCPGo(t)
	const message = "notifications/message"
	setLevel := func(level mcp.LoggingLevel) {
		t.Helper()
		var r mcp.SetLevelRequest
		r.Params.Level = level
		if err := s.SetLevel(s.ctx, r); err != nil {
			t.Fatal(err)
		}
		for _, name := range mcpgoServers {
			s.await(name, "level "+string(level), 1)
		}
	}
	setLevel(mcp.LoggingLevelInfo)
	for _, name := range mcpgoServers {
		for _, level := range []string{"debug", "info", "emergency"} {
			s.call(name+"__log", pairs("level", level, "logger", "db", "text", "<"+level+">"))
		}
		for _, level := range []string{"info", "emergency"} {
			s.notice(message, pairs("level", level, "logger", name+": db", "data", "<"+level+">"))
		}
	}
	setLevel(mcp.LoggingLevelCritical)
	s.call("pipe__log", pairs("level", "error", "text", "x", "rude", true))
	s.await("pipe", message+" x", 1)
	s.call("pipe__log", pairs("level", "critical", "text", "y"))
	s.await("pipe", message+" y", 1)
	s.notice(message, pairs("level", "critical", "logger", "pipe", "data", "y"))
	s.noNotice(message)
}

func TestMCPGoListChanged(t *testing.T) {
	t.Parallel()
	s := startMCPGo(t)
	lists := map[string]func() []string{"tools": s.tools, "prompts": s.prompts, "resources": s.resources}
	late := map[string]string{"tools": "%s__late", "prompts": "%s__late", "resources": "%s://late"}
	for kind, list := range lists {
		seen := list()
		for _, name := range mcpgoServers {
			if item := fmt.Sprintf(late[kind], name); slices.Contains(seen, item) {
				t.Fatalf("%s are %q already", kind, seen)
			}
			s.call(name+"__grow", pairs("kind", kind))
			s.notice("notifications/"+kind+"/list_changed", nil)
			item := fmt.Sprintf(late[kind], name)
			if seen = list(); !slices.Contains(seen, item) {
				t.Errorf("after list_changed %s are %q, want %q among them", kind, seen, item)
			}
		}
	}
	for _, name := range mcpgoServers {
		if got, want := s.call(name+"__late", nil), "late tool of "+name; got != want {
			t.Errorf("the new tool says %q, want %q", got, want)
		}
	}
}

func TestMCPGoCancel(t *testing.T) {
	t.Parallel()
	s := startMCPGo(t)
	for _, name := range mcpgoServers {
		other := s.start(name+"__count", pairs("to", 1, "gate", "gate"), "token")
		ctx, cancel := context.WithCancel(s.ctx)
		done := make(chan outcome, 1)
		go func() { done <- s.try(ctx, name+"__block", pairs("as", "me"), nil) }()
		s.await(name, "started me", 1)
		cancel()
		if got := receive(s, done); !strings.Contains(got.err, context.Canceled.Error()) {
			t.Errorf("%s: the client got %+v", name, got)
		}
		s.await(name, "cancelled me", 1)
		s.call(name+"__note", pairs("what", "gate"))
		s.call(name+"__note", pairs("what", "gate"))
		s.want("the other call", other, outcome{text: "1"})
	}
}
