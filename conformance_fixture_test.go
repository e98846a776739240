package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
)

// fixtureMain is the command "fixtureserver ERA…": a stdio server that has all
// that the official suite asks of a server, in the handshake era ("legacy"), in
// 2026-07-28 ("modern") or in both. mcp-go's has no tool of the suite's that
// asks in 2026-07-28, and always speaks both. The bridge gives it a URL.
//
// It shares no code with coffer, so that a fault in that is seen.
func fixtureMain() {
	f := &fixture{
		legacy: slices.Contains(os.Args[1:], "legacy"),
		modern: slices.Contains(os.Args[1:], "modern"),
		out:    os.Stdout,
		level:  "info",
		asked:  make(map[string]chan fixtureMessage),
		open:   make(map[string]context.CancelFunc),
		listen: make(map[string]fixtureFilter),
		extra:  make(map[string]bool),
	}
	f.serve(os.Stdin)
}

type fixture struct {
	legacy, modern bool
	requests       sync.WaitGroup // being answered

	writing sync.Mutex // guards out
	out     io.Writer

	mu           sync.Mutex // guards the fields below
	shaken       bool       // initialize was answered
	capabilities fixtureObject
	level        string                         // of logs, in the handshake era
	next         int                            // id of the next question
	asked        map[string]chan fixtureMessage // questions of the handshake era, by id
	open         map[string]context.CancelFunc  // requests being answered, by raw id
	listen       map[string]fixtureFilter       // subscriptions of 2026-07-28, by raw id
	extra        map[string]bool                // "tools", "prompts": the dynamic one is there
}

type fixtureObject = map[string]any

// fixtureFilter is what a subscription of 2026-07-28 asks to be told.
type fixtureFilter struct {
	ToolsListChanged      bool     `json:"toolsListChanged,omitempty"`
	PromptsListChanged    bool     `json:"promptsListChanged,omitempty"`
	ResourceSubscriptions []string `json:"resourceSubscriptions,omitempty"`
}

type fixtureMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name            string
		URI             string
		Arguments       fixtureObject
		Level           string
		ProtocolVersion string
		Capabilities    fixtureObject
		RequestID       json.RawMessage `json:"requestId"`
		Notifications   fixtureFilter
		InputResponses  fixtureObject
		RequestState    string
		Meta            struct {
			ProgressToken json.RawMessage
			Version       string        `json:"io.modelcontextprotocol/protocolVersion"`
			Capabilities  fixtureObject `json:"io.modelcontextprotocol/clientCapabilities"`
			LogLevel      string        `json:"io.modelcontextprotocol/logLevel"`
		} `json:"_meta"`
	} `json:"params"`
	Result fixtureObject `json:"result"`
	Error  *fixtureError `json:"error"`
}

// fixtureError is a JSON-RPC error object.
type fixtureError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (e *fixtureError) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Message) }

// fixtureCall is a request that is being answered.
type fixtureCall struct {
	fixtureMessage
	f     *fixture
	ctx   context.Context // ends when the client cancels or goes
	newer bool            // of 2026-07-28
}

func (f *fixture) serve(in io.Reader) {
	ctx, cancel := context.WithCancel(context.Background())
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var m fixtureMessage
		if err := json.Unmarshal(line, &m); err != nil {
			f.send(fixtureObject{"error": fixtureError{Code: -32600, Message: err.Error()}})
			continue
		}
		f.take(ctx, m)
	}
	cancel()
	f.requests.Wait()
}

// take deals with a message: requests beside one another, save the handshake.
func (f *fixture) take(ctx context.Context, m fixtureMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case m.Method == "": // an answer
		if waiting := f.asked[string(m.ID)]; waiting != nil {
			waiting <- m
			delete(f.asked, string(m.ID))
		}
	case m.Method == "notifications/cancelled":
		if cancel := f.open[string(m.Params.RequestID)]; cancel != nil {
			cancel()
		}
	case m.ID != nil:
		ctx, cancel := context.WithCancel(ctx)
		f.open[string(m.ID)] = cancel
		c := &fixtureCall{fixtureMessage: m, f: f, ctx: ctx}
		c.newer = f.modern && m.Params.Meta.Version != "" // a server of the handshake era does not look
		if m.Method == "initialize" && f.legacy && !c.newer {
			f.shaken, f.capabilities = true, m.Params.Capabilities
		}
		f.requests.Go(func() {
			defer cancel()
			c.run()
		})
	}
}

// run answers the request, unless the client has cancelled it.
func (c *fixtureCall) run() {
	result, err := c.route()
	c.f.mu.Lock()
	delete(c.f.open, string(c.ID))
	c.f.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	if input, asks := err.(*inputRequired); asks {
		result, err = input.result(), nil
	}
	answer := fixtureObject{"id": c.ID}
	if err == nil {
		answer["result"] = c.complete(result)
	} else if e, ok := err.(*fixtureError); ok {
		answer["error"] = e
	} else {
		answer["error"] = fixtureError{Code: -32603, Message: err.Error()}
	}
	c.f.send(answer)
}

// newerRemoved are the methods that 2026-07-28 has no more, newerOnly those
// that it brought.
var (
	newerRemoved = []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
	newerOnly    = []string{"server/discover", "subscriptions/listen"}
)

// route checks what an era demands of a request and hands it to its method.
func (c *fixtureCall) route() (fixtureObject, error) {
	c.f.mu.Lock()
	shaken := c.f.shaken
	c.f.mu.Unlock()
	meta := c.Params.Meta
	supported := []string{"2026-07-28"}
	method, known := fixtureMethods[c.Method]
	switch {
	case c.newer && meta.Version != supported[0]:
		return nil, &fixtureError{-32022, "Unsupported protocol version", fixtureObject{"supported": supported, "requested": meta.Version}}
	case c.newer && meta.Capabilities == nil:
		return nil, &fixtureError{-32602, "_meta without clientCapabilities", nil}
	case c.newer && slices.Contains(newerRemoved, c.Method):
		known = false
	case !c.newer && !c.f.legacy && c.Method == "initialize":
		return nil, &fixtureError{-32022, "Unsupported protocol version", fixtureObject{"supported": supported, "requested": c.Params.ProtocolVersion}}
	case !c.newer && !c.f.modern && slices.Contains(newerOnly, c.Method):
		known = false
	case !c.newer && c.f.modern && slices.Contains(newerOnly, c.Method), !c.newer && !c.f.legacy:
		return nil, &fixtureError{-32602, "_meta without protocolVersion", nil}
	case !c.newer && !shaken && c.Method != "ping":
		return nil, &fixtureError{-32602, "not initialized", nil}
	}
	if !known {
		return nil, &fixtureError{-32601, "Method not found: " + c.Method, nil}
	}
	return method(c)
}

// complete adds to a result what 2026-07-28 has in every one.
func (c *fixtureCall) complete(result fixtureObject) fixtureObject {
	if !c.newer {
		return result
	}
	if result["resultType"] == nil {
		result["resultType"] = "complete"
		switch c.Method {
		case "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read":
			result["ttlMs"], result["cacheScope"] = 300_000, "public"
		}
	}
	result["_meta"] = fixtureObject{"io.modelcontextprotocol/serverInfo": fixtureInfo}
	return result
}

func (f *fixture) send(message fixtureObject) {
	message["jsonrpc"] = "2.0"
	text, err := json.Marshal(message)
	if err != nil {
		panic(err) // a fixture that cannot answer proves nothing
	}
	f.writing.Lock()
	defer f.writing.Unlock()
	f.out.Write(append(text, '\n')) // a client that is gone is no matter
}

func (f *fixture) notify(method string, params fixtureObject) {
	f.send(fixtureObject{"method": method, "params": params})
}

const metaSubscription = "io.modelcontextprotocol/subscriptionId"

// subscribe is subscriptions/listen: it agrees to all and ends with the client.
func (c *fixtureCall) subscribe() (fixtureObject, error) {
	f, id := c.f, string(c.ID)
	f.mu.Lock()
	f.listen[id] = c.Params.Notifications
	f.notify("notifications/subscriptions/acknowledged", fixtureObject{
		"_meta": fixtureObject{metaSubscription: c.ID}, "notifications": c.Params.Notifications,
	})
	f.mu.Unlock()
	<-c.ctx.Done()
	f.mu.Lock()
	delete(f.listen, id)
	f.mu.Unlock()
	return nil, c.ctx.Err()
}

// toggle changes the list of that kind and tells all who are to be told.
func (f *fixture) toggle(kind string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.extra[kind] = !f.extra[kind]
	method := "notifications/" + kind + "/list_changed"
	if f.shaken {
		f.notify(method, fixtureObject{})
	}
	for id, filter := range f.listen {
		if kind == "tools" && filter.ToolsListChanged || kind == "prompts" && filter.PromptsListChanged {
			f.notify(method, fixtureObject{"_meta": fixtureObject{metaSubscription: json.RawMessage(id)}})
		}
	}
}

// log sends a message at level info if the client wants such.
func (c *fixtureCall) log(text string) {
	c.f.mu.Lock()
	level := c.f.level
	c.f.mu.Unlock()
	if c.newer {
		level = c.Params.Meta.LogLevel
	}
	if level == "debug" || level == "info" {
		c.f.notify("notifications/message", fixtureObject{"level": "info", "logger": "fixture", "data": text})
	}
}

func (c *fixtureCall) progress(done int) {
	if token := c.Params.Meta.ProgressToken; token != nil {
		c.f.notify("notifications/progress", fixtureObject{"progressToken": token, "progress": done, "total": 100})
	}
}

// put asks the client a question in the handshake era.
func (f *fixture) put(q fixtureQuestion) <-chan fixtureMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := strconv.Itoa(f.next)
	f.next++
	waiting := make(chan fixtureMessage, 1)
	f.asked[id] = waiting
	f.send(fixtureObject{"id": json.RawMessage(id), "method": q.Method, "params": q.Params})
	return waiting
}
