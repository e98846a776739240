package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
)

// What the two servers of mcpgo_test.go ask the client.

// question is a request of a server to the client.
type question struct {
	kind    string // "sampling", "elicitation" or "roots"
	text    string // what a person reads
	request any
	answer  chan any // takes one: a result or an error
}

// answerer implements the handlers of mcp-go's client: the test answers.
type answerer struct{ asked chan question }

func answerTo[Result any](ctx context.Context, a answerer, q question) (*Result, error) {
	q.answer = make(chan any, 1)
	select {
	case a.asked <- q:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case answer := <-q.answer:
		if err, ok := answer.(error); ok {
			return nil, err
		}
		return answer.(*Result), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a answerer) CreateMessage(ctx context.Context, r mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	text := r.Messages[0].Content.(mcp.TextContent).Text
	return answerTo[mcp.CreateMessageResult](ctx, a, question{kind: "sampling", text: text, request: r})
}

func (a answerer) Elicit(ctx context.Context, r mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	return answerTo[mcp.ElicitationResult](ctx, a, question{kind: "elicitation", text: r.Params.Message, request: r})
}

func (a answerer) ListRoots(ctx context.Context, r mcp.ListRootsRequest) (*mcp.ListRootsResult, error) {
	return answerTo[mcp.ListRootsResult](ctx, a, question{kind: "roots", request: r})
}

// questions waits until the client has n unanswered questions, and sorts them.
func (s *mcpgoSession) questions(n int) []question {
	s.t.Helper()
	var all []question
	for range n {
		all = append(all, receive(s, s.asked))
	}
	slices.SortFunc(all, func(a, b question) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.text, b.text)) })
	return all
}

var errNotNow = errors.New("not now")

// message is what a client's model says to a question.
func message(q question) *mcp.CreateMessageResult {
	return &mcp.CreateMessageResult{
		SamplingMessage: mcp.SamplingMessage{Role: mcp.RoleAssistant, Content: mcp.NewTextContent("re: " + q.text)},
		Model:           "model for " + q.text,
		StopReason:      "endTurn",
	}
}

func root(name string) *mcp.ListRootsResult {
	return &mcp.ListRootsResult{Roots: []mcp.Root{{URI: fmt.Sprintf("file:///%s/a%%20b", name), Name: name}}}
}

func TestMCPGoSampling(t *testing.T) {
	t.Parallel()
	s := startMCPGo(t)
	pipe, web := s.start("pipe__sample", ask("a"), nil), s.start("web__sample", ask("b"), nil)
	asked := s.questions(2)
	for i, want := range []string{"a", "b"} {
		r := asked[i].request.(mcp.CreateMessageRequest)
		if asked[i].text != want || r.SystemPrompt != "you are "+mcpgoServers[i] || r.MaxTokens != 7 {
			t.Errorf("the client was asked %+v", r)
		}
	}
	for _, q := range slices.Backward(asked) { // not in the order of the questions
		q.answer <- message(q)
	}
	s.want("pipe", pipe, outcome{text: `["assistant",{"type":"text","text":"re: a"},"model for a","endTurn"]`})
	s.want("web", web, outcome{text: `["assistant",{"type":"text","text":"re: b"},"model for b","endTurn"]`})

	for _, name := range mcpgoServers {
		done := s.start(name+"__sample", ask("c"), nil)
		s.questions(1)[0].answer <- errNotNow
		if got := receive(s, done); !strings.Contains(got.err, "not now") {
			t.Errorf("%s: the client refused, the server got %+v", name, got)
		}
	}
}

func TestMCPGoElicitation(t *testing.T) {
	t.Parallel()
	s := startMCPGo(t)
	pipe, web := s.start("pipe__elicit", ask("your <name>?"), nil), s.start("web__elicit", ask("your <name>?"), nil)
	asked := s.questions(2)
	for i, name := range mcpgoServers {
		if want := name + ": your <name>?"; asked[i].text != want {
			t.Errorf("the person reads %q, want %q", asked[i].text, want)
		}
		schema := asked[i].request.(mcp.ElicitationRequest).Params.RequestedSchema
		if got := toJSON(t, schema); got != `{"properties":{"`+name+`":{"type":"string"}},"type":"object"}` {
			t.Errorf("%s: schema %s", name, got)
		}
	}
	for i, q := range slices.Backward(asked) {
		q.answer <- &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{
			Action: mcp.ElicitationResponseActionAccept, Content: pairs(mcpgoServers[i], "Ada"),
		}}
	}
	s.want("pipe", pipe, outcome{text: `["accept",{"pipe":"Ada"}]`})
	s.want("web", web, outcome{text: `["accept",{"web":"Ada"}]`})

	for _, name := range mcpgoServers {
		done := s.start(name+"__elicit", ask("again?"), nil)
		s.questions(1)[0].answer <- &mcp.ElicitationResult{
			ElicitationResponse: mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionDecline},
		}
		s.want(name, done, outcome{text: `["decline",null]`})
	}
}

func TestMCPGoRoots(t *testing.T) {
	t.Parallel()
	s := startMCPGo(t)
	ask := func(roots ...string) {
		t.Helper()
		var calls []<-chan outcome
		var asked []question
		for _, name := range mcpgoServers { // the question does not tell who asks
			calls = append(calls, s.start(name+"__roots", nil, nil))
			asked = append(asked, s.questions(1)...)
		}
		for i, q := range slices.Backward(asked) {
			q.answer <- root(roots[i])
		}
		for i, name := range mcpgoServers {
			s.want(name, calls[i], outcome{text: toJSON(t, root(roots[i]).Roots)})
		}
	}
	ask("a", "b")
	if err := s.RootListChanges(s.ctx); err != nil {
		t.Fatal(err)
	}
	for _, name := range mcpgoServers {
		s.await(name, "roots changed", 1)
	}
	ask("c", "d")
}

// TestMCPGoCrowd has both servers ask several things at the same moment, over
// ids that are the same on both.
func TestMCPGoCrowd(t *testing.T) {
	t.Parallel()
	s := startMCPGo(t)
	const each = 5
	type wish struct {
		what string
		done <-chan outcome
		want outcome
	}
	var wishes []wish
	for i := range each {
		for _, name := range mcpgoServers {
			text := fmt.Sprint(name, i)
			wishes = append(wishes,
				wish{"sample " + text, s.start(name+"__sample", ask(text), nil),
					outcome{text: `["assistant",{"type":"text","text":"re: ` + text + `"},"model for ` + text + `","endTurn"]`}},
				wish{"elicit " + text, s.start(name+"__elicit", ask(text), nil),
					outcome{text: `["accept",{"to":"` + name + ": " + text + `"}]`}})
		}
	}
	for _, q := range slices.Backward(s.questions(len(wishes))) {
		if q.kind == "sampling" {
			q.answer <- message(q)
		} else {
			q.answer <- &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{
				Action: mcp.ElicitationResponseActionAccept, Content: pairs("to", q.text),
			}}
		}
	}
	for _, w := range wishes {
		s.want(w.what, w.done, w.want)
	}
}
