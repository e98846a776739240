package proxy

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"coffer/jsonrpc"
	"coffer/upstream"
)

// request is a request of the client, of either era. Its Reply and Fail give
// each era what it expects.
type request struct {
	*jsonrpc.Request
	s      *Session
	meta   []byte // params._meta, or nil
	modern bool   // of 2026-07-28
}

// removed are the methods that 2026-07-28 has no more.
var removed = []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}

// handleModern dispatches a request that carries the metadata of 2026-07-28
// (basic, "_meta"; basic/versioning).
func (s *Session) handleModern(r *request) {
	r.modern = true
	version, isText := jsonrpc.TextAt(r.meta, upstream.MetaVersion)
	capabilities := jsonrpc.Lookup(r.meta, upstream.MetaCapabilities)
	handle, known := methods[r.Method]
	switch {
	case r.InBatch():
		r.Fail(jsonrpc.ErrorObject(jsonrpc.CodeInvalidRequest, upstream.ModernVersion+" has no batches", nil))
	case !isText:
		s.fail(r, invalidParams("%s in _meta must be a string", upstream.MetaVersion))
	case version != upstream.ModernVersion:
		s.fail(r, &wireError{
			code: codeUnsupportedVersion, message: "Unsupported protocol version",
			data: fmt.Appendf(nil, `{"supported":[%q],"requested":%s}`, upstream.ModernVersion, jsonrpc.Quote(version)),
		})
	case len(capabilities) == 0 || capabilities[0] != '{':
		s.fail(r, invalidParams("_meta needs %s", upstream.MetaCapabilities))
	case badLevel(r.meta):
		s.fail(r, invalidParams("unknown log level %s", jsonrpc.Lookup(r.meta, upstream.MetaLogLevel)))
	case slices.Contains(removed, r.Method):
		r.Fail(jsonrpc.ErrorObject(jsonrpc.CodeMethodNotFound, "Method not found: "+r.Method, nil))
	case r.Method == "server/discover":
		r.Reply(s.discover(r))
	case r.Method == "subscriptions/listen":
		s.meet(r, capabilities)
		s.listen(r)
	case known:
		s.meet(r, capabilities)
		handle(s, r)
	default:
		s.meet(r, capabilities)
		s.unknown(r)
	}
}

// meet starts the upstreams for the client that sent r, if it is the first to
// need them.
func (s *Session) meet(r *request, capabilities []byte) {
	info := jsonrpc.Lookup(r.meta, upstream.MetaClientInfo)
	if s.client.said.Load() == nil {
		s.client.said.Store(&said{capabilities: capabilities, info: info})
	}
	s.set.Start(upstream.Client{
		Info: info, Capabilities: s.relayable(capabilities), Modern: true,
	})
}

// discover answers server/discover with what is known now (2026-07-28,
// server/discover). It starts nothing, so until all upstreams have connected
// the answer may be kept for no time.
func (s *Session) discover(r *request) []byte {
	result := fmt.Appendf(nil, `{"supportedVersions":[%q],"capabilities":{%s%s}`, upstream.ModernVersion, capabilities,
		extensionsOf(jsonrpc.Lookup(r.meta, upstream.MetaCapabilities)))
	servers := s.roster()
	texts, all := make([]string, servers.size()), true
	for i := range servers.all() {
		if c := servers.servers[i].Ready(); c != nil {
			texts[i] = c.Instructions()
		} else {
			all = false
		}
	}
	text := servers.mergeInstructions(texts)
	if own := s.opts.Config.Instructions; own != nil {
		text = *own
	}
	if text != "" {
		result = jsonrpc.AppendQuote(append(result, `,"instructions":`...), text)
	}
	ttl := time.Duration(0)
	if all {
		ttl = s.opts.Config.CacheTTL
	}
	return append(hints(result, ttl), '}')
}

// hints appends the caching hints to an open object. What coffer answers is
// filtered for one user, with that user's credentials.
func hints(open []byte, ttl time.Duration) []byte {
	open = append(open, `,"ttlMs":`...)
	open = strconv.AppendInt(open, max(ttl, 0).Milliseconds(), 10)
	return append(open, `,"cacheScope":"private"`...)
}

// Reply answers with a raw result, in the form of r's era.
func (r *request) Reply(result []byte) bool {
	if r.modern {
		result = r.s.completed(r.Method, result)
	}
	return r.Request.Reply(result)
}

// completed returns a result with what every one of 2026-07-28 has: its type,
// coffer as the server, and for a read the hints (server/utilities/caching).
func (s *Session) completed(method string, result []byte) []byte {
	if len(result) == 0 || result[0] != '{' {
		return result // not ours to mend: every result is an object
	}
	kind, typed := jsonrpc.TextAt(result, "resultType")
	extra := make([]byte, 0, 256)
	if !typed {
		result = jsonrpc.Delete(result, "resultType")
		extra = append(extra, `,"resultType":"complete"`...)
	}
	if method == "resources/read" && (!typed || kind == "complete") {
		if jsonrpc.Lookup(result, "ttlMs") == nil {
			extra = append(extra, `,"ttlMs":0`...)
		}
		if jsonrpc.Lookup(result, "cacheScope") == nil {
			extra = append(extra, `,"cacheScope":"private"`...)
		}
	}
	info := fmt.Appendf(nil, `{"name":"coffer","version":%s}`, jsonrpc.Quote(s.opts.Version))
	if meta, n := jsonrpc.Member(result, "_meta"); n > 0 {
		if len(meta) == 0 || meta[0] != '{' {
			meta = []byte(`{}`)
		}
		result = jsonrpc.Set(result, "_meta", jsonrpc.Set(meta, upstream.MetaServerInfo, info))
	} else {
		extra = fmt.Appendf(extra, `,"_meta":{%q:%s}`, upstream.MetaServerInfo, info)
	}
	return extend(result, extra)
}

// extend returns obj with members, which start with a comma, before its end.
func extend(obj, members []byte) []byte {
	if len(members) == 0 {
		return obj
	}
	end := bytes.LastIndexByte(obj, '}')
	out := make([]byte, 0, len(obj)+len(members))
	out = append(out, obj[:end]...)
	if empty := !bytes.ContainsAny(bytes.TrimLeft(obj[:end], "{ \t"), `"`); empty {
		members = members[1:]
	}
	return append(append(out, members...), obj[end:]...)
}

// translated returns the result of an upstream as r's client knows it.
func (r *request) translated(c *upstream.Conn, result []byte) []byte {
	if r.modern || c == nil || !c.Modern() {
		return result
	}
	for _, key := range []string{"resultType", "ttlMs", "cacheScope"} {
		result = jsonrpc.Delete(result, key)
	}
	if meta := jsonrpc.Lookup(result, "_meta"); jsonrpc.Lookup(meta, upstream.MetaServerInfo) != nil {
		if meta = jsonrpc.Delete(meta, upstream.MetaServerInfo); string(meta) == "{}" {
			result = jsonrpc.Delete(result, "_meta")
		} else {
			result = jsonrpc.Set(result, "_meta", meta)
		}
	}
	// 2025-11-25 knows no structured content but objects (server/tools).
	if content := jsonrpc.Lookup(result, "structuredContent"); len(content) > 0 && content[0] != '{' {
		result = jsonrpc.Delete(result, "structuredContent")
	}
	return result
}

// itemFor returns an item of a list as a client of either era knows it; false
// if it must not be shown to one of that era.
func itemFor(l *upstream.Listing, raw []byte, modern bool) ([]byte, bool) {
	if l.Kind != upstream.Tools || modern == l.Modern() {
		return raw, true
	}
	if modern {
		if execution := jsonrpc.Lookup(raw, "execution"); execution != nil {
			if support, _ := jsonrpc.TextAt(execution, "taskSupport"); support == "required" {
				return nil, false
			}
			return jsonrpc.Delete(raw, "execution"), true
		}
		return raw, true
	}
	if schema := jsonrpc.Lookup(raw, "outputSchema"); schema != nil {
		if kind, _ := jsonrpc.TextAt(schema, "type"); kind != "object" {
			return jsonrpc.Delete(raw, "outputSchema"), true
		}
	}
	return raw, true
}

// badLevel reports whether a request asks for logs of a level that is none
// (server/utilities/logging, "Error Handling").
func badLevel(meta []byte) bool {
	raw := jsonrpc.Lookup(meta, upstream.MetaLogLevel)
	level, _ := jsonrpc.Text(raw)
	return raw != nil && !slices.Contains(levels, level)
}

// logLevel returns the level that a request of 2026-07-28 asks logs of, or "".
func (r *request) logLevel() string {
	level, _ := jsonrpc.TextAt(r.meta, upstream.MetaLogLevel)
	return level
}

// declares reports whether r's client has the capability at that path.
func (r *request) declares(path ...string) bool {
	return declared(jsonrpc.Lookup(r.meta, append([]string{upstream.MetaCapabilities}, path...)...))
}

// answerAsked answers r with a question in place of a result.
func (r *request) answerAsked(questions []byte, state string) bool {
	result := append([]byte(`{"resultType":"input_required","inputRequests":`), questions...)
	if state != "" {
		result = jsonrpc.AppendQuote(append(result, `,"requestState":`...), state)
	}
	return r.Reply(append(result, '}'))
}
