package proxy

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"coffer/jsonrpc"
	"coffer/upstream"
)

// levels are the log levels, least severe first (MCP 2025-11-25,
// server/utilities/logging).
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// relayState is what the relay of one session keeps.
type relayState struct {
	mu    sync.Mutex
	level string // guarded by mu: of the last logging/setLevel, or ""
	// tokens maps the progress tokens that stand in requests to the client
	// back: ours -> the upstream's (guarded by mu).
	tokens map[int64]upToken
	// logging counts open requests of 2026-07-28 that asked for logs: server ->
	// level -> how many (guarded by mu).
	logging map[string]map[string]int
}

type upToken struct {
	conn  *upstream.Conn
	token []byte
}

// Notified implements upstream.Handler: what an upstream tells the client.
func (s *Session) Notified(c *upstream.Conn, method string, params []byte) {
	switch method {
	case "notifications/tools/list_changed":
		s.notices.told(s.index(c), upstream.Tools)
	case "notifications/prompts/list_changed":
		s.notices.told(s.index(c), upstream.Prompts)
	case "notifications/resources/list_changed":
		s.notices.told(s.index(c), upstream.Resources, upstream.Templates)
	case "notifications/resources/updated":
		s.relayUpdated(c, params)
	case "notifications/message":
		s.relayLog(c, params)
	case "notifications/elicitation/complete":
		if s.client.initialized() { // 2026-07-28 has no such thing
			s.post(method, params)
		}
	default:
		if _, ok := s.transparent(); ok && !isMCPNotice(method) {
			s.post(method, params)
		}
	}
}

// post queues a notification for the client.
func (s *Session) post(method string, params []byte) {
	s.stream.Out.Post(&jsonrpc.Message{Method: method, Params: params})
}

// transparent reports whether coffer stands before one upstream whose names it
// does not touch: then it also passes on what it does not know (design §4).
// It returns that one's index.
func (s *Session) transparent() (server int, ok bool) {
	r := s.roster()
	if !r.sole() || prefixOf(r.specs[r.order[0]]) != "" {
		return 0, false
	}
	return r.order[0], true
}

// isMCP reports whether a request's method is one of MCP, of whichever side and
// era. One that comes to where only unknown ones are passed on is out of place
// there, or about tasks, which were never declared (design §8).
func isMCP(method string) bool {
	_, ours := methods[method]
	_, theirs := asks[method]
	return ours || theirs || strings.HasPrefix(method, "tasks/") || slices.Contains(removed, method) ||
		method == "server/discover" || method == "subscriptions/listen"
}

// isMCPNotice is isMCP for notifications.
func isMCPNotice(method string) bool {
	switch name := strings.TrimPrefix(method, "notifications/"); name {
	case "initialized", "cancelled", "progress", "message", "tasks", "tasks/status",
		"tools/list_changed", "prompts/list_changed", "resources/list_changed", "roots/list_changed",
		"resources/updated", "elicitation/complete", "subscriptions/acknowledged":
		return name != method
	}
	return false
}

// relayProgress passes on a notice of progress, which has the client's own
// token in it by now.
func (s *Session) relayProgress(token, params []byte) {
	s.stream.Out.PostKeyed("progress "+string(token), &jsonrpc.Message{Method: "notifications/progress", Params: params})
}

// maxLogged is how much of an upstream's log message goes to coffer's own log,
// in bytes.
const maxLogged = 4 << 10

// relayLog passes on a log message at or above the client's level. One that no
// request of a client of 2026-07-28 has asked for goes where a server's stderr
// goes; a client of the handshake era has said that it does not want it.
func (s *Session) relayLog(c *upstream.Conn, params []byte) {
	level, _ := jsonrpc.TextAt(params, "level")
	legacy := s.client.initialized()
	if !s.relay.wants(legacy, c.Name(), level) {
		if data := jsonrpc.Lookup(params, "data"); !legacy {
			s.log.Info().Str("upstream", c.Name()).Str("severity", level).Bytes("logged", data[:min(len(data), maxLogged)]).Send()
		}
		return
	}
	if !s.roster().sole() && params != nil {
		logger := jsonrpc.Quote(c.Name())
		if own := jsonrpc.Lookup(params, "logger"); len(own) > len(`""`) && own[0] == '"' {
			logger = prefixed(c.Name(), own)
		}
		params = jsonrpc.Set(params, "logger", logger)
	}
	s.post("notifications/message", params)
}

// setLevel answers logging/setLevel: all upstreams that log are told, those
// that connect later too.
func (s *Session) setLevel(r *request) {
	level, _ := jsonrpc.TextAt(r.Params, "level")
	if !slices.Contains(levels, level) {
		s.fail(r, invalidParams("unknown log level %s", jsonrpc.Lookup(r.Params, "level")))
		return
	}
	s.relay.mu.Lock()
	s.relay.level = level
	s.relay.mu.Unlock()
	s.set.SetLogLevel(level)
	for i := range s.roster().all() {
		if c := s.server(i).Ready(); c != nil {
			s.restoreLevel(c)
			s.soil(c)
		}
	}
	r.Reply([]byte(`{}`))
}

// restoreLevel tells an upstream the client's log level, if there is one.
func (s *Session) restoreLevel(c *upstream.Conn) {
	s.relay.mu.Lock()
	level := s.relay.level
	for asked := range s.relay.logging[c.Name()] {
		if level == "" || slices.Index(levels, asked) < slices.Index(levels, level) {
			level = asked
		}
	}
	s.relay.mu.Unlock()
	if level != "" {
		tellLevel(c, level)
	}
}

// tellLevel sets the level of an upstream that has one to set. One of
// 2026-07-28 is told with each request.
func tellLevel(c *upstream.Conn, level string) {
	if c.Offers("logging") && !c.Modern() {
		c.Tell("logging/setLevel", jsonrpc.Set([]byte(`{}`), "level", jsonrpc.Quote(level)))
	}
}

// wants reports whether a log message of a server goes to the client. One of
// the handshake era has set a level, or takes all. One of 2026-07-28 gets them
// only while a request is open that asked for them (server/utilities/logging).
func (r *relayState) wants(legacy bool, server, level string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if legacy {
		return r.level == "" || slices.Index(levels, level) >= slices.Index(levels, r.level)
	}
	for asked, open := range r.logging[server] {
		if open > 0 && slices.Index(levels, level) >= slices.Index(levels, asked) {
			return true
		}
	}
	return false
}

// logs counts the open requests to a server that asked for logs at a level.
// It reports whether that is more than any before asked for.
func (r *relayState) logs(server, level string, open int) (more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logging == nil {
		r.logging = map[string]map[string]int{}
	}
	if r.logging[server] == nil {
		r.logging[server] = map[string]int{}
	}
	more = open > 0
	for asked := range r.logging[server] {
		more = more && slices.Index(levels, level) < slices.Index(levels, asked)
	}
	r.logging[server][level] += open
	return more
}

// unknown answers a request whose method coffer does not know.
func (s *Session) unknown(r *request) {
	server, ok := s.transparent()
	if !ok || isMCP(r.Method) || !r.modern && !s.client.initialized() {
		r.Fail(jsonrpc.ErrorObject(jsonrpc.CodeMethodNotFound, "Method not found: "+r.Method, nil))
		return
	}
	if c := s.forward(r, server, r.Params, nil); c != nil {
		s.soil(c)
	}
}

// relayUnknownUp passes a notification of the client on whose method coffer
// does not know.
func (s *Session) relayUnknownUp(method string, params []byte) {
	server, ok := s.transparent()
	if !ok || isMCPNotice(method) {
		return
	}
	if c := s.server(server).Ready(); c != nil {
		c.Notify(method, params)
		s.soil(c)
	}
}

// relayRootsChanged tells every upstream that the client's roots have changed,
// if they were told that it would say so.
func (s *Session) relayRootsChanged(params []byte) {
	if !s.client.declares("roots", "listChanged") {
		return
	}
	for i := range s.roster().all() {
		if c := s.server(i).Ready(); c != nil && !c.Modern() {
			c.Notify("notifications/roots/list_changed", params)
			s.soil(c)
		}
	}
}

// asks are the requests that an upstream may make of the client, and the
// capability that the client must have declared.
var asks = map[string]string{
	"sampling/createMessage": "sampling",
	"elicitation/create":     "elicitation",
	"roots/list":             "roots",
}

// Asked implements upstream.Handler: an upstream asks the client something.
func (s *Session) Asked(c *upstream.Conn, r *jsonrpc.Request) {
	capability, known := asks[r.Method]
	legacy := s.client.initialized()
	if known && !legacy {
		s.parked.ask(c, r, capability)
		return
	}
	// A client of 2026-07-28 takes no requests at all (basic/patterns).
	_, all := s.transparent()
	if passes := legacy && all && !isMCP(r.Method); !passes && !(known && s.client.declares(capability)) {
		r.Fail(jsonrpc.ErrorObject(jsonrpc.CodeMethodNotFound, "Method not found: "+r.Method, nil))
		return
	}
	if s.client.isReady() {
		s.askClient(c, r)
		return
	}
	// Before its initialized a client takes no requests but ping (MCP
	// 2025-11-25, basic/lifecycle, "Initialization").
	s.spawn(func() {
		ctx, cancel := r.Context(s.ctx)
		defer cancel()
		select {
		case <-s.client.ready:
			s.askClient(c, r)
			s.stream.Out.Flush()
		case <-ctx.Done():
		}
	})
}

// askClient forwards r to the client under an id of ours, and the answer back.
func (s *Session) askClient(c *upstream.Conn, r *jsonrpc.Request) {
	call := &jsonrpc.Call{Method: r.Method, Params: s.signed(c.Name(), r.Method, r.Params), Number: s.stream.Reserve()}
	if token := jsonrpc.Lookup(call.Params, "_meta", "progressToken"); token != nil {
		call.Params = jsonrpc.Splice(call.Params, jsonrpc.Edit{Old: token, New: strconv.AppendInt(nil, call.Number, 10)})
		s.relay.open(call.Number, upToken{c, token})
	}
	call.Done = func(a jsonrpc.Answer) {
		s.relay.close(call.Number)
		switch {
		case a.Err != nil:
			r.Fail(jsonrpc.ErrorObject(jsonrpc.CodeInternal, "the client is gone", nil))
		case a.Error != nil:
			r.Fail(a.Error)
		default:
			r.Reply(a.Result)
		}
		c.Flush()
	}
	r.OnCancel(func(notice []byte) {
		if !s.stream.Abandon(call) {
			return
		}
		s.relay.close(call.Number)
		if notice == nil {
			notice = []byte(`{}`)
		}
		s.post("notifications/cancelled", jsonrpc.Set(notice, "requestId", s.stream.ID(call.Number)))
	})
	s.stream.Start(call)
}

// signed returns params with the name of the server in the message of an
// elicitation, if there are several: the person must know who asks (MCP
// 2025-11-25, client/elicitation), and the client sees only coffer.
func (s *Session) signed(server, method string, params []byte) []byte {
	if method != "elicitation/create" || s.roster().sole() {
		return params
	}
	message := jsonrpc.Lookup(params, "message")
	if len(message) == 0 || message[0] != '"' {
		return params
	}
	return jsonrpc.Set(params, "message", prefixed(server, message))
}

// prefixed returns the JSON string token with the server's name before its
// text, whose escapes stay as they are.
func prefixed(server string, token []byte) []byte {
	prefix := jsonrpc.Quote(server + ": ")
	return append(prefix[:len(prefix)-1], token[1:]...)
}

// relayProgressUp passes on progress of the client on what an upstream asked.
func (s *Session) relayProgressUp(params []byte) {
	ours, n := jsonrpc.Member(params, "progressToken")
	number, err := strconv.ParseInt(string(ours), 10, 64)
	if n != 1 || err != nil {
		return
	}
	s.relay.mu.Lock()
	to, open := s.relay.tokens[number]
	s.relay.mu.Unlock()
	if open {
		to.conn.Notify("notifications/progress", jsonrpc.Splice(params, jsonrpc.Edit{Old: ours, New: to.token}))
		s.soil(to.conn)
	}
}

func (r *relayState) open(number int64, token upToken) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tokens == nil {
		r.tokens = map[int64]upToken{}
	}
	r.tokens[number] = token
}

func (r *relayState) close(number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tokens, number)
}
