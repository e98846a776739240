package proxy

import (
	"crypto/rand"
	"fmt"
	"time"

	"coffer/jsonrpc"
)

const (
	// maxRounds bounds how often an upstream of 2026-07-28 may ask for input
	// before it answers.
	maxRounds = 20
	// roundPause is the first wait before a request is sent again that was
	// refused without a question: the server wants less load.
	roundPause = 200 * time.Millisecond
)

// isInputRequired reports whether a result of 2026-07-28 is a question
// (basic/patterns/mrtr).
func isInputRequired(result []byte) bool {
	kind, _ := jsonrpc.TextAt(result, "resultType")
	return kind == "input_required"
}

// nextRound puts an upstream's questions to a client of the handshake era, as
// requests, and sends the request again with the answers.
func (x *exchange) nextRound(r *request, result []byte) {
	s := x.s
	ctx, cancel := r.Context(s.ctx)
	defer cancel()
	defer s.stream.Out.Flush()
	if x.rounds++; x.rounds > maxRounds {
		s.fail(r, &wireError{
			code:    jsonrpc.CodeInternal,
			message: fmt.Sprintf("upstream %q wants input for %s again after %d rounds, and coffer goes no further", s.server(x.server).Name(), x.method, maxRounds),
		})
		x.over(true)
		return
	}
	answers, failure := x.askRound(ctx.Done(), jsonrpc.Lookup(result, "inputRequests"))
	if ctx.Err() != nil {
		return
	}
	if failure != nil {
		r.Fail(failure)
		x.over(true)
		return
	}
	params := x.params
	if answers == nil {
		pause := time.NewTimer(roundPause << min(x.rounds, 6))
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	} else {
		params = jsonrpc.Set(params, "inputResponses", answers)
	}
	if state := jsonrpc.Lookup(result, "requestState"); state != nil {
		params = jsonrpc.Set(params, "requestState", state)
	}
	if c := x.send(r, params); c != nil {
		c.Flush()
	}
}

// question is one of a round, asked of a client of the handshake era.
type question struct {
	key    string
	call   *jsonrpc.Call
	answer jsonrpc.Answer
	done   bool
}

// askRound asks the client all questions at once and returns the raw map of
// its answers, nil if there was no question, or the error that ends the call.
func (x *exchange) askRound(gone <-chan struct{}, questions []byte) (answers, failure []byte) {
	s, name := x.s, x.s.server(x.server).Name()
	var round []*question
	jsonrpc.Members(questions, func(key string, raw []byte) {
		method, _ := jsonrpc.TextAt(raw, "method")
		params := jsonrpc.Lookup(raw, "params")
		if mode, _ := jsonrpc.TextAt(params, "mode"); mode == "url" && jsonrpc.Lookup(params, "elicitationId") == nil {
			params = jsonrpc.Set(params, "elicitationId", jsonrpc.Quote(rand.Text())) // 2025-11-25 requires one
		}
		if capability, known := asks[method]; !known || !s.client.declares(capability) {
			failure = jsonrpc.ErrorObject(jsonrpc.CodeInternal, fmt.Sprintf("upstream %q asks for %s, which the client cannot do", name, method), nil)
			return
		}
		round = append(round, &question{key: key, call: &jsonrpc.Call{Method: method, Params: s.signed(name, method, params)}})
	})
	if failure != nil || round == nil {
		return nil, failure
	}
	select {
	case <-s.client.ready: // before that it takes no requests
	case <-gone:
		return nil, nil
	}
	replies := make(chan func(), len(round))
	for _, q := range round {
		q.call.Done = func(a jsonrpc.Answer) { replies <- func() { q.answer, q.done = a, true } }
		s.stream.Start(q.call)
	}
	s.stream.Out.Flush()
	for range round {
		select {
		case arrive := <-replies:
			arrive()
		case <-gone:
			s.takeBack(round)
			return nil, nil
		}
		if failure = refusedRound(round); failure != nil {
			s.takeBack(round)
			return nil, failure
		}
	}
	answers = []byte(`{}`)
	for _, q := range round {
		answers = jsonrpc.Set(answers, q.key, q.answer.Result)
	}
	return answers, nil
}

// refusedRound returns the error that ends the call if one of the answers does
// so, and makes of an elicitation that failed one that was cancelled.
func refusedRound(round []*question) []byte {
	for _, q := range round {
		switch a := &q.answer; {
		case !q.done || a.Result != nil:
		case a.Error != nil && q.call.Method == "elicitation/create":
			a.Result = []byte(`{"action":"cancel"}`)
		case a.Error != nil:
			return a.Error
		default:
			return jsonrpc.ErrorObject(jsonrpc.CodeInternal, "the client is gone", nil)
		}
	}
	return nil
}

// signedRound returns a result that asks with the name of the server in the
// messages of its elicitations, as signed does.
func (s *Session) signedRound(server string, result []byte) []byte {
	if s.roster().sole() {
		return result
	}
	var edits []jsonrpc.Edit
	jsonrpc.Members(jsonrpc.Lookup(result, "inputRequests"), func(_ string, raw []byte) {
		message := jsonrpc.Lookup(raw, "params", "message")
		if method, _ := jsonrpc.TextAt(raw, "method"); method == "elicitation/create" && len(message) > 0 && message[0] == '"' {
			edits = append(edits, jsonrpc.Edit{Old: message, New: prefixed(server, message)})
		}
	})
	if edits == nil {
		return result
	}
	return jsonrpc.Splice(result, edits...)
}

// takeBack cancels questions that the client has not answered.
func (s *Session) takeBack(round []*question) {
	for _, q := range round {
		if s.stream.Abandon(q.call) {
			s.post("notifications/cancelled", jsonrpc.Set([]byte(`{}`), "requestId", s.stream.ID(q.call.Number)))
		}
	}
}

// askByURL turns the error by which 2025-11-25 asks for elicitations by URL
// into a question of 2026-07-28. The retry is a call like any other.
func (s *Session) askByURL(r *request, server string, e *jsonrpc.Error) {
	if !r.declares("elicitation", "url") {
		r.Fail(missingCapability(e.Message, []byte(`{"elicitation":{"url":{}}}`)))
		return
	}
	questions := []byte(`{}`)
	elicitations, _ := jsonrpc.Elements(jsonrpc.Lookup(e.Raw, "data", "elicitations"))
	for i, params := range elicitations {
		entry := jsonrpc.Set([]byte(`{"method":"elicitation/create"}`), "params", s.signed(server, "elicitation/create", jsonrpc.Delete(params, "elicitationId")))
		questions = jsonrpc.Set(questions, fmt.Sprintf("q%d", i+1), entry)
	}
	r.answerAsked(questions, "")
}
