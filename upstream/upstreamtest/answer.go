package upstreamtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"coffer/jsonrpc"
)

// versions are the revisions of the handshake era.
var versions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// What 2026-07-28 has of its own.
const (
	modern      = "2026-07-28"
	metaVersion = "io.modelcontextprotocol/protocolVersion"
	metaServer  = "io.modelcontextprotocol/serverInfo"
	metaListen  = "io.modelcontextprotocol/subscriptionId"
	unsupported = -32022
)

// info is the Server's serverInfo.
const info = `{"name":"fakeserver","version":"1"}`

// discover answers server/discover (MCP 2026-07-28, server/discover), which a
// Server of the handshake era alone does not know.
func (s *Server) discover() (result, object []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.script.Versions, modern) {
		return nil, jsonrpc.ErrorObject(jsonrpc.CodeMethodNotFound, "Method not found", nil)
	}
	result = fmt.Appendf(nil, `{"supportedVersions":[%q],"capabilities":%s`, modern, s.declared())
	if s.script.Instructions != "" {
		result = jsonrpc.AppendQuote(append(result, `,"instructions":`...), s.script.Instructions)
	}
	return fmt.Appendf(result, `,"_meta":{%q:%s}}`, metaServer, info), nil
}

// completed adds what every result of 2026-07-28 has.
func (s *Server) completed(method string, result []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.script.Versions, modern) {
		return result
	}
	result = jsonrpc.Set(result, "resultType", []byte(`"complete"`))
	switch method {
	case "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read":
		switch {
		case s.script.TTL == nil:
			result = jsonrpc.Set(result, "ttlMs", []byte("3600000"))
		case *s.script.TTL >= 0:
			result = jsonrpc.Set(result, "ttlMs", strconv.AppendInt(nil, int64(*s.script.TTL), 10))
		}
		result = jsonrpc.Set(result, "cacheScope", []byte(`"public"`))
	}
	return result
}

// acknowledgement is what subscriptions/listen is answered with at first: the
// Server agrees to everything.
func acknowledgement(m *jsonrpc.Message) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{%q:%s},"notifications":%s}}`,
		metaListen, m.ID, jsonrpc.Lookup(m.Params, "notifications"))
}

// everything is what a Server declares by default.
const everything = `{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"prompts":{"listChanged":true},"logging":{},"completions":{}}`

// answer returns the default answer to m; nil for what is no request.
func (s *Server) answer(m *jsonrpc.Message) []byte {
	if !m.IsRequest() {
		return nil
	}
	result, object := s.reply(m)
	if object != nil {
		return (&jsonrpc.Message{ID: m.ID, Error: object}).Append(nil)
	}
	return s.result(m, result)
}

// result returns the answer with a result to a request, with what its era
// demands unless the result has a type already.
func (s *Server) result(m *jsonrpc.Message, result []byte) []byte {
	if isModern(m) && jsonrpc.Lookup(result, "resultType") == nil {
		result = s.completed(m.Method, result)
	}
	return (&jsonrpc.Message{ID: m.ID, Result: result}).Append(nil)
}

// isModern reports whether a request is of 2026-07-28.
func isModern(m *jsonrpc.Message) bool { return jsonrpc.Lookup(m.Params, "_meta", metaVersion) != nil }

// speaksModern reports whether the Server speaks 2026-07-28.
func (s *Server) speaksModern() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.script.Versions, modern)
}

// reply returns the result or the error object for a request.
func (s *Server) reply(m *jsonrpc.Message) (result, object []byte) {
	switch m.Method {
	case "initialize":
		return s.initialize(m)
	case "server/discover":
		return s.discover()
	case "tools/list":
		return s.list(m, "tools")
	case "resources/list":
		return s.list(m, "resources")
	case "resources/templates/list":
		return s.list(m, "resourceTemplates")
	case "prompts/list":
		return s.list(m, "prompts")
	case "tools/call":
		text := keyOf(m) + " " + string(jsonrpc.Lookup(m.Params, "arguments"))
		return fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}]}`, jsonrpc.Quote(text)), nil
	case "prompts/get":
		return fmt.Appendf(nil, `{"messages":[{"role":"user","content":{"type":"text","text":%s}}]}`, jsonrpc.Quote(keyOf(m))), nil
	case "resources/read":
		uri := jsonrpc.Quote(keyOf(m))
		return fmt.Appendf(nil, `{"contents":[{"uri":%s,"text":%s}]}`, uri, uri), nil
	case "completion/complete":
		return []byte(`{"completion":{"values":[]}}`), nil
	case "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		return []byte(`{}`), nil
	}
	return nil, jsonrpc.ErrorObject(jsonrpc.CodeMethodNotFound, "Method not found", nil)
}

// initialize answers the handshake (MCP 2025-11-25, basic/lifecycle).
func (s *Server) initialize(m *jsonrpc.Message) (result, object []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	speaks := slices.DeleteFunc(slices.Clone(s.script.Versions), func(v string) bool { return v == modern })
	if s.script.Versions == nil {
		speaks = versions
	}
	if len(speaks) == 0 {
		return nil, jsonrpc.ErrorObject(unsupported, "Unsupported protocol version", []byte(`{"supported":["`+modern+`"]}`))
	}
	version, _ := jsonrpc.TextAt(m.Params, "protocolVersion")
	if !slices.Contains(speaks, version) {
		version = speaks[0]
	}
	result = fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":%s,"serverInfo":%s`, version, s.declared(), info)
	if s.script.Instructions != "" {
		result = jsonrpc.AppendQuote(append(result, `,"instructions":`...), s.script.Instructions)
	}
	return append(result, '}'), nil
}

// declared returns the capabilities. mu is held.
func (s *Server) declared() json.RawMessage {
	if s.script.Capabilities == nil {
		return json.RawMessage(everything)
	}
	return s.script.Capabilities
}

// list answers one page. A cursor is the index of the page's first item.
func (s *Server) list(m *jsonrpc.Message, member string) (result, object []byte) {
	items, page := s.items(member)
	start := 0
	if cursor, ok := jsonrpc.TextAt(m.Params, "cursor"); ok {
		var err error
		if start, err = strconv.Atoi(cursor); err != nil || start < 0 || start > len(items) {
			return nil, jsonrpc.ErrorObject(jsonrpc.CodeInvalidParams, "Unknown cursor", nil)
		}
	}
	end := len(items)
	if page > 0 {
		end = min(start+page, end)
	}
	result = fmt.Appendf(nil, `{%q:[`, member)
	for i, item := range items[start:end] {
		if i > 0 {
			result = append(result, ',')
		}
		result = append(result, item...)
	}
	result = append(result, ']')
	if end < len(items) {
		result = fmt.Appendf(result, `,"nextCursor":"%d"`, end)
	}
	return append(result, '}'), nil
}
