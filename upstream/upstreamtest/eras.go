package upstreamtest

import (
	"bytes"
	"fmt"
	"strings"

	"coffer/jsonrpc"
)

// This file has what a Server starts by itself, which the two eras do in
// different ways.

// note takes what others wait for.
func (c *Conn) note(m *jsonrpc.Message) {
	if m.Method != "" {
		c.server.sighted(m.Method)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.Method == "notifications/cancelled":
		delete(c.listens, string(jsonrpc.Lookup(m.Params, "requestId")))
	case m.Method == "":
		if waiting := c.asking[string(m.ID)]; waiting != nil {
			delete(c.asking, string(m.ID))
			waiting <- append(bytes.Clone(m.Result), m.Error...) // one of them is empty
		}
	}
}

// givenUp takes the end of a POST that its client did not wait for: in
// 2026-07-28 that is how a request is cancelled.
func (c *Conn) givenUp(m *jsonrpc.Message) {
	c.mu.Lock()
	_, listening := c.listens[string(m.ID)]
	delete(c.listens, string(m.ID))
	c.mu.Unlock()
	if !listening {
		c.server.sighted("notifications/cancelled")
	}
}

// until returns a channel that is closed once a message of the method has come.
func (s *Server) until(method string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen[method]
	if seen == nil {
		seen = make(chan struct{})
		s.seen[method] = seen
		if method == "" {
			close(seen)
		}
	}
	return seen
}

func (s *Server) sighted(method string) {
	s.until(method)
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.seen[method]:
	default:
		close(s.seen[method])
	}
}

// listen is an open subscriptions/listen.
type listen struct {
	filter []byte
	out    *outbox
}

// subscribe opens a subscriptions/listen: its acknowledgement, and then what it
// asked for. The Server agrees to everything.
func (c *Conn) subscribe(m *jsonrpc.Message, out *outbox) {
	c.mu.Lock()
	c.listens[string(m.ID)] = listen{jsonrpc.Lookup(m.Params, "notifications"), out}
	c.mu.Unlock()
	out.put(acknowledgement(m))
}

// listenFlags are the notifications that a subscriptions/listen asks for with
// flags.
var listenFlags = map[string]string{
	"notifications/tools/list_changed":     "toolsListChanged",
	"notifications/prompts/list_changed":   "promptsListChanged",
	"notifications/resources/list_changed": "resourcesListChanged",
}

// announce gives a notification to the subscriptions that asked for it. It
// reports false if it belongs to none, or the era has no such thing.
func (c *Conn) announce(line []byte) bool {
	m, err := jsonrpc.Parse(line)
	if err != nil || !c.server.speaksModern() || listenFlags[m.Method] == "" && m.Method != "notifications/resources/updated" {
		return false
	}
	params := m.Params
	if params == nil {
		params = []byte(`{}`)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, l := range c.listens {
		flag := listenFlags[m.Method]
		uri := jsonrpc.Lookup(m.Params, "uri")
		asked := flag != "" && string(jsonrpc.Lookup(l.filter, flag)) == "true" ||
			flag == "" && bytes.Contains(jsonrpc.Lookup(l.filter, "resourceSubscriptions"), uri)
		if asked {
			tagged := jsonrpc.Set(params, "_meta", fmt.Appendf(nil, `{%q:%s}`, metaListen, id))
			l.out.put((&jsonrpc.Message{Method: m.Method, Params: tagged}).Append(nil))
		}
	}
	return true
}

// ask asks the questions of a rule and answers m with its result.
func (c *Conn) ask(rule *Rule, m *jsonrpc.Message, out *outbox, answered func([]byte)) {
	if isModern(m) {
		answered(c.server.result(m, nextQuestion(rule, m)))
		return
	}
	go func() {
		var answers [][]byte
		for i, q := range rule.Ask {
			id := fmt.Appendf(nil, `"question %d on %s"`, i+1, strings.Trim(string(m.ID), `"`))
			waiting := make(chan []byte, 1)
			c.mu.Lock()
			c.asking[string(id)] = waiting
			c.mu.Unlock()
			out.put((&jsonrpc.Message{ID: id, Method: q.Method, Params: q.Params}).Append(nil))
			select {
			case answer := <-waiting:
				answers = append(answers, answer)
			case <-c.done:
				return
			}
		}
		answered(c.server.result(m, withAnswers(rule.Result, answers)))
	}()
}

// nextQuestion returns the result that m gets in 2026-07-28: the question whose
// turn it is, or the rule's. What was answered so far is the requestState.
func nextQuestion(rule *Rule, m *jsonrpc.Message) []byte {
	state, again := jsonrpc.TextAt(m.Params, "requestState")
	answers, _ := jsonrpc.Elements([]byte(state))
	if again {
		answers = append(answers, jsonrpc.Lookup(m.Params, "inputResponses", "question"))
	}
	if len(answers) == len(rule.Ask) {
		return withAnswers(rule.Result, answers)
	}
	q := rule.Ask[len(answers)]
	question := jsonrpc.Set([]byte(`{}`), "method", jsonrpc.Quote(q.Method))
	if q.Params != nil {
		question = jsonrpc.Set(question, "params", q.Params)
	}
	return fmt.Appendf(nil, `{"resultType":"input_required","inputRequests":{"question":%s},"requestState":%s}`,
		question, jsonrpc.Quote(string(array(answers))))
}

func withAnswers(result []byte, answers [][]byte) []byte {
	return bytes.ReplaceAll(result, []byte(`"$answers"`), array(answers))
}

func array(elements [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(elements, []byte(","))...), ']')
}

// trace appends a line to the script's trace.
func (c *Conn) trace(direction byte, line []byte) {
	c.server.mu.Lock()
	path := c.server.script.Trace
	c.server.mu.Unlock()
	if path != "" {
		appendLine(path, fmt.Sprintf("%d %c %s", c.Number, direction, line))
	}
}

func (c *Conn) traceSent(line []byte) { c.trace('>', line) }
