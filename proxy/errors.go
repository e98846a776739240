package proxy

import (
	"errors"
	"fmt"

	"coffer/jsonrpc"
	"coffer/upstream"
)

// The codes of coffer's own errors (design §6). They stand outside the ranges
// that JSON-RPC and MCP keep for themselves.
const (
	codeDisabled    = 403
	codeUnavailable = 503
	codeTimeout     = 504

	// codeNoResource is what an unknown resource is to a client before
	// 2026-07-28 (MCP 2025-11-25, server/resources, "Error Handling").
	codeNoResource = -32002
	// codeURLNeeded is how a server of 2025-11-25 asks for an elicitation by
	// URL before it can go on (client/elicitation, "URL Elicitation Required").
	codeURLNeeded = -32042

	// Those of 2026-07-28 (schema).
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

// wireError is an answer that coffer itself gives in place of a result.
type wireError struct {
	code     int
	message  string
	reason   string // data.code, or ""
	upstream string // data.upstream
	hint     string // data.hint, or ""
	uri      string // data.uri, or ""
	data     []byte // or the raw data, whole
}

func (e *wireError) Error() string { return e.message }

func invalidParams(format string, args ...any) error {
	return &wireError{code: jsonrpc.CodeInvalidParams, message: fmt.Sprintf(format, args...)}
}

func noResource(uri string) error {
	return &wireError{code: codeNoResource, message: "Resource not found: " + uri, uri: uri}
}

// disabled is the answer to a request for what a person has switched off, or
// for what is off until a person switches it on.
func disabled(server, what, hint string) error {
	return &wireError{code: codeDisabled, message: what + " is switched off", reason: "CAPABILITY_DISABLED", upstream: server, hint: hint}
}

// toWire returns the error object that err is to a client of either era. It is
// the only place where a Go error becomes one.
func toWire(err error, modern bool) []byte {
	if e, ok := errors.AsType[*wireError](err); ok {
		return e.object(modern)
	}
	if e, ok := errors.AsType[*upstream.Error](err); ok {
		w := wireError{code: codeUnavailable, message: e.Error(), reason: reasonOf(e), upstream: e.Upstream, hint: e.Hint}
		if errors.Is(e, upstream.ErrTimeout) {
			w.code = codeTimeout
		}
		return w.object(modern)
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok { // not as the cause of a failure of ours
		return relayedError(e, modern)
	}
	return jsonrpc.ErrorObject(jsonrpc.CodeInternal, "internal error", nil)
}

// relayedError returns an upstream's error as a client of either era knows it.
// All codes pass but the one that 2026-07-28 replaced (server/resources, "Error
// Handling"). Those that belong to the hop between us do not come so far.
func relayedError(e *jsonrpc.Error, modern bool) []byte {
	if e.Code == codeNoResource && modern {
		return jsonrpc.Set(e.Raw, "code", []byte("-32602"))
	}
	return e.Raw
}

// missingCapability returns the error object of 2026-07-28 for a request that
// needs capabilities, a raw object, that its client has not declared.
func missingCapability(message string, capabilities []byte) []byte {
	return jsonrpc.ErrorObject(codeMissingCapability, message, jsonrpc.Set([]byte(`{}`), "requiredCapabilities", capabilities))
}

// reasonOf returns the data.code of an upstream's failure.
func reasonOf(err error) string {
	if errors.Is(err, upstream.ErrTimeout) {
		return "UPSTREAM_TIMEOUT"
	}
	return "UPSTREAM_UNAVAILABLE"
}

func (e *wireError) object(modern bool) []byte {
	data, code := e.data, e.code
	if modern && code == codeNoResource {
		code = jsonrpc.CodeInvalidParams
	}
	add := func(key, value string) {
		if value == "" {
			return
		}
		if data == nil {
			data = []byte(`{}`)
		}
		data = jsonrpc.Set(data, key, jsonrpc.Quote(value))
	}
	add("code", e.reason)
	add("upstream", e.upstream)
	add("hint", e.hint)
	add("uri", e.uri)
	return jsonrpc.ErrorObject(code, e.message, data)
}
