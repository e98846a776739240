package upstreamtest

import (
	"bytes"
	"slices"
	"strings"

	"coffer/jsonrpc"
)

// Traffic checks what one side of a conversation sends, message by message. It
// must be told of all that is said, in order: which revision counts, and what a
// response answers, depends on what came before.
type Traffic struct {
	schemas *Schemas
	server  bool              // it is the server whose messages are checked
	agreed  string            // the revision of the handshake, or what server/discover told; "" before
	asked   map[string]asked  // raw id -> the checked side's own open request
	got     map[string]asked  // raw id -> the other side's
	tokens  map[string]string // progress token -> revision of the request that brought it
}

// asked is a request that waits for its response.
type asked struct {
	method, version string
	cancelled       bool // its id may be used again
}

// Check returns a Traffic about what the server, or the client, sends.
func (s *Schemas) Check(server bool) *Traffic {
	return &Traffic{schemas: s, server: server, asked: map[string]asked{}, got: map[string]asked{}, tokens: map[string]string{}}
}

// Received takes a line that the other side has sent, whatever it is.
func (t *Traffic) Received(line []byte) {
	elements, isBatch := jsonrpc.Batch(line)
	if !isBatch {
		elements = [][]byte{line}
	}
	for _, text := range elements {
		m, err := jsonrpc.Parse(text)
		if err != nil {
			continue
		}
		switch {
		case m.IsRequest():
			t.receivedRequest(m)
		case m.Method == "notifications/cancelled":
			id := string(jsonrpc.Lookup(m.Params, "requestId"))
			if q, open := t.got[id]; open {
				q.cancelled = true
				t.got[id] = q
			}
		case m.Method == "":
			q := t.asked[string(m.ID)]
			delete(t.asked, string(m.ID))
			t.agree(q.method, m.Result)
		}
	}
}

func (t *Traffic) receivedRequest(m *jsonrpc.Message) {
	version := t.revision(m)
	if q, open := t.got[string(m.ID)]; !open || q.cancelled { // else it is refused without an id
		t.got[string(m.ID)] = asked{method: m.Method, version: version}
	}
	t.note(m, version)
}

// note keeps the revision of a request for notices of its progress.
func (t *Traffic) note(m *jsonrpc.Message, version string) {
	if token := jsonrpc.Lookup(m.Params, "_meta", "progressToken"); token != nil {
		t.tokens[string(token)] = version
	}
}

// agree takes the result that settles the revision. The first one counts.
func (t *Traffic) agree(method string, result []byte) {
	switch {
	case t.agreed != "":
	case method == "initialize":
		if version, _ := jsonrpc.TextAt(result, "protocolVersion"); slices.Contains(versions, version) {
			t.agreed = version
		}
	case method == "server/discover" && !t.server: // as a server it serves both eras
		if bytes.Contains(jsonrpc.Lookup(result, "supportedVersions"), []byte(`"`+modern+`"`)) {
			t.agreed = modern
		}
	}
}

// revision returns that of a request or notification.
func (t *Traffic) revision(m *jsonrpc.Message) string {
	meta := jsonrpc.Lookup(m.Params, "_meta")
	ofToken := t.tokens[string(jsonrpc.Lookup(m.Params, "progressToken"))]
	switch {
	case m.Method == "initialize":
		return versions[0]
	case m.Method == "server/discover", jsonrpc.Lookup(meta, metaVersion) != nil, jsonrpc.Lookup(meta, metaListen) != nil:
		return modern
	case m.Method == "notifications/progress" && ofToken != "":
		return ofToken
	case t.agreed != "":
		return t.agreed
	case t.server && !m.IsRequest():
		return modern // to a client without a handshake
	}
	return versions[0]
}

// Sent takes a line that the checked side has sent and returns what is wrong.
func (t *Traffic) Sent(line []byte) []Fault {
	elements, isBatch := jsonrpc.Batch(line)
	if !isBatch {
		return t.sent(line)
	}
	if t.agreed != "2025-03-26" {
		return []Fault{{t.agreed, "JSONRPCMessage", "", "a batch, which only 2025-03-26 has", line}}
	}
	var all []Fault
	for _, text := range elements {
		all = append(all, t.sent(text)...)
	}
	return all
}

func (t *Traffic) sent(line []byte) []Fault {
	m, err := jsonrpc.Parse(line)
	switch {
	case err != nil:
		return []Fault{{t.agreed, "JSONRPCMessage", "", err.Error(), line}}
	case m.Method == "":
		return t.responded(m, line)
	}
	version, kind, envelope := t.revision(m), "Notification", "JSONRPCNotification"
	if m.IsRequest() {
		kind, envelope = "Request", "JSONRPCRequest"
		t.asked[string(m.ID)] = asked{method: m.Method, version: version}
		t.note(m, version)
	}
	r := t.schemas.revisions[version]
	faults := t.schemas.check(version, envelope, "", line, line)
	name := r.methods[m.Method]
	switch {
	case name == "" && t.schemas.known(m.Method):
		return append(faults, Fault{version, kind, "/method", "this revision has no " + m.Method, line})
	case name == "":
		return faults // one that no revision has, passed on
	case !r.sends(t.side()+kind, name):
		return append(faults, Fault{version, t.side() + kind, "/method", "the other side's", line})
	}
	return append(faults, t.schemas.check(version, name, "", line, line)...)
}

func (t *Traffic) side() string {
	if t.server {
		return "Server"
	}
	return "Client"
}

// responded takes a response of the checked side.
func (t *Traffic) responded(m *jsonrpc.Message, line []byte) []Fault {
	q, known := t.got[string(m.ID)]
	if m.ID != nil {
		delete(t.got, string(m.ID))
	}
	if !known && m.ID != nil {
		return []Fault{{t.agreed, "JSONRPCResponse", "/id", "answers nothing that was asked", line}}
	}
	if !known {
		q.version = t.agreed
		if q.version == "" {
			q.version = versions[0]
		}
	}
	if m.Result == nil {
		return t.failed(q, m, line)
	}
	t.agree(q.method, m.Result)
	if q.method == "initialize" {
		q.version = t.agreed
	}
	return t.answered(q, m, line)
}

// answered checks a response that is no error.
func (t *Traffic) answered(q asked, m *jsonrpc.Message, line []byte) []Fault {
	r := t.schemas.revisions[q.version]
	envelope := "JSONRPCResultResponse"
	if r.defined[envelope] == nil {
		envelope = "JSONRPCResponse"
	}
	faults := t.schemas.check(q.version, envelope, "", line, line)
	base := strings.TrimSuffix(r.methods[q.method], "Request")
	kind, _ := jsonrpc.TextAt(m.Result, "resultType")
	switch {
	case q.version == modern && kind == "input_required":
		// Taken by its word: the schema's choice of the two would let any object
		// with a resultType pass as a question, whose other members are optional.
		if !r.asks(base + "ResultResponse") {
			faults = append(faults, Fault{q.version, base + "Result", "/result/resultType", "this request cannot be answered with a question", line})
		}
		return append(faults, t.schemas.check(q.version, "InputRequiredResult", "/result", m.Result, line)...)
	case base != "" && r.defined[base+"Result"] != nil:
		return append(faults, t.schemas.check(q.version, base+"Result", "/result", m.Result, line)...)
	}
	return faults
}

// errorDefinitions are the errors that have data of their own.
var errorDefinitions = map[int]string{
	-32020: "HeaderMismatchError", -32021: "MissingRequiredClientCapabilityError", unsupported: "UnsupportedProtocolVersionError",
	-32042: "URLElicitationRequiredError",
}

// failed checks an error.
func (t *Traffic) failed(q asked, m *jsonrpc.Message, line []byte) []Fault {
	r := t.schemas.revisions[q.version]
	name := "JSONRPCErrorResponse"
	if r.defined[name] == nil {
		name = "JSONRPCError"
		if m.ID == nil {
			// Before 2025-11-25 the schemas require an id of every error, and
			// have none for what cannot be read, which JSON-RPC 2.0 (section 5)
			// wants answered with null: whatever is sent breaks one of them.
			// Without the id it is what 2025-11-25 made of it.
			line = jsonrpc.Set(line, "id", []byte("0"))
		}
	}
	code := jsonrpc.AsError(m.Error).Code
	if q.version == modern && (code == -32002 || code == -32042) {
		return []Fault{{modern, name, "/error/code", "a code that 2026-07-28 must not have (basic, \"Error Codes\")", line}}
	}
	if special := errorDefinitions[code]; r.defined[special] != nil {
		name = special
	}
	return t.schemas.check(q.version, name, "", line, line)
}
