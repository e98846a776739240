package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// fixtureQuestion is what the fixture asks the client.
type fixtureQuestion struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// inputRequired is the error by which a tool or a prompt of 2026-07-28 says
// that it needs answers first (basic/patterns/mrtr).
type inputRequired struct {
	questions map[string]fixtureQuestion
	state     string
}

func (e *inputRequired) Error() string { return "input required" }

func (e *inputRequired) result() fixtureObject {
	result := fixtureObject{"resultType": "input_required", "inputRequests": e.questions}
	if e.state != "" {
		result["requestState"] = e.state
	}
	return result
}

// ask puts questions to the client and returns its answers by key. In
// 2026-07-28 the call runs anew in each round, up to the question that is open.
func (c *fixtureCall) ask(questions map[string]fixtureQuestion) (fixtureObject, error) {
	return c.round(questions, c.Params.InputResponses, nil)
}

// askByState is ask, with all answers so far kept in a requestState, so that
// there may be several rounds.
func (c *fixtureCall) askByState(questions map[string]fixtureQuestion) (fixtureObject, error) {
	known := fixtureObject{}
	if c.Params.RequestState != "" {
		if !c.unseal(c.Params.RequestState, &known) {
			return nil, &fixtureError{-32602, "requestState is not ours", nil}
		}
		maps.Copy(known, c.Params.InputResponses)
	}
	return c.round(questions, known, func() string { return c.seal(known) })
}

func (c *fixtureCall) round(questions map[string]fixtureQuestion, known fixtureObject, state func() string) (fixtureObject, error) {
	if err := c.able(questions); err != nil {
		return nil, err
	}
	if !c.newer {
		return c.askNow(questions)
	}
	for key := range questions {
		if _, answered := known[key].(fixtureObject); answered {
			continue
		}
		input := &inputRequired{questions: questions}
		if state != nil {
			input.state = state()
		}
		return nil, input
	}
	return known, nil
}

// askNow asks all questions at once by requests and waits for the answers.
func (c *fixtureCall) askNow(questions map[string]fixtureQuestion) (fixtureObject, error) {
	waiting := make(map[string]<-chan fixtureMessage)
	for _, key := range slices.Sorted(maps.Keys(questions)) {
		waiting[key] = c.f.put(questions[key])
	}
	answers := fixtureObject{}
	for key, answer := range waiting {
		select {
		case m := <-answer:
			if m.Error != nil {
				return nil, m.Error
			}
			answers[key] = m.Result
		case <-c.ctx.Done():
			return nil, c.ctx.Err()
		}
	}
	return answers, nil
}

// declares reports whether the client can do what a method of it needs.
func (c *fixtureCall) declares(method string) bool {
	declared := c.Params.Meta.Capabilities
	if !c.newer {
		c.f.mu.Lock()
		declared = c.f.capabilities
		c.f.mu.Unlock()
	}
	return declared[capabilityFor(method)] != nil
}

func capabilityFor(method string) string {
	capability, _, _ := strings.Cut(method, "/")
	return capability
}

// able refuses to ask what the client cannot answer.
func (c *fixtureCall) able(questions map[string]fixtureQuestion) error {
	missing := fixtureObject{}
	for _, q := range questions {
		if !c.declares(q.Method) {
			missing[capabilityFor(q.Method)] = fixtureObject{}
		}
	}
	switch {
	case len(missing) == 0:
		return nil
	case c.newer:
		return &fixtureError{-32021, "the client lacks capabilities", fixtureObject{"requiredCapabilities": missing}}
	default:
		return &fixtureError{-32600, "the client lacks capabilities", missing}
	}
}

// stateKey signs requestState. Every process of the fixture must know its
// siblings' states.
var stateKey = []byte("a fixture has no secrets")

func (c *fixtureCall) seal(answers fixtureObject) string {
	text, err := json.Marshal(answers)
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(text) + "." + c.signature(text)
}

func (c *fixtureCall) unseal(state string, answers *fixtureObject) bool {
	encoded, signature, _ := strings.Cut(state, ".")
	text, err := base64.StdEncoding.DecodeString(encoded)
	return err == nil && hmac.Equal([]byte(signature), []byte(c.signature(text))) && json.Unmarshal(text, answers) == nil
}

func (c *fixtureCall) signature(text []byte) string {
	h := hmac.New(sha256.New, stateKey)
	h.Write([]byte(c.Params.Name + "\n"))
	h.Write(text)
	return hex.EncodeToString(h.Sum(nil))
}

// elicit is a question for one text or choice.
func elicit(message, properties string) fixtureQuestion {
	params, err := json.Marshal(fixtureObject{
		"message":         message,
		"requestedSchema": fixtureObject{"type": "object", "properties": json.RawMessage(properties)},
	})
	if err != nil {
		panic(err)
	}
	return fixtureQuestion{"elicitation/create", params}
}

// sample is a question for the client's model.
func sample(prompt string) fixtureQuestion {
	params, err := json.Marshal(fixtureObject{
		"messages":  []any{fixtureObject{"role": "user", "content": fixtureObject{"type": "text", "text": prompt}}},
		"maxTokens": 100,
	})
	if err != nil {
		panic(err)
	}
	return fixtureQuestion{"sampling/createMessage", params}
}

var listRoots = fixtureQuestion{"roots/list", json.RawMessage(`{}`)}
