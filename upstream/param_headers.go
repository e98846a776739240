package upstream

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"coffer/jsonrpc"
)

// paramHeader is a tool's argument that goes into a header too (MCP
// 2026-07-28, streamable HTTP, "Custom Headers from Tool Parameters").
type paramHeader struct {
	name string   // Mcp-Param-<name>
	path []string // the chain of properties that leads to the argument
}

// subschemas are the keywords of JSON Schema that hold schemas which no chain
// of properties reaches; true: a map of schemas, false: a schema or an array.
var subschemas = map[string]bool{
	"items": false, "prefixItems": false, "contains": false, "additionalItems": false, "unevaluatedItems": false,
	"additionalProperties": false, "unevaluatedProperties": false, "propertyNames": false, "contentSchema": false,
	"oneOf": false, "anyOf": false, "allOf": false, "not": false, "if": false, "then": false, "else": false,
	"patternProperties": true, "$defs": true, "definitions": true, "dependentSchemas": true, "dependencies": true,
}

// maxSafeInteger is the largest that a header may carry: 2^53-1.
const maxSafeInteger = 1<<53 - 1

// annotation is the keyword that makes a header of an argument.
const annotation = "x-mcp-header"

// maxSchemaDepth is how deep annotations are looked for. Each level is read once
// for all levels above it, so without a bound a schema that is nothing but depth
// would cost the square of its length.
const maxSchemaDepth = 64

// paramHeaders reads the annotations of a tool's inputSchema. An error means
// that the tool must not be shown.
func paramHeaders(schema []byte) ([]paramHeader, error) {
	if !mayAnnotate(schema) {
		return nil, nil
	}
	w := headerWalk{seen: map[string]bool{}}
	w.schema(schema, nil, true, 0)
	return w.found, w.err
}

// mayAnnotate reports whether a text can hold the keyword, if with escapes.
func mayAnnotate(text []byte) bool {
	return bytes.Contains(text, []byte(annotation)) || bytes.Contains(text, []byte(`\u`))
}

type headerWalk struct {
	found []paramHeader
	seen  map[string]bool // names in lower case
	err   error
}

// schema walks a schema that stands below depth others.
func (w *headerWalk) schema(schema []byte, path []string, reachable bool, depth int) {
	if depth > maxSchemaDepth && w.err == nil && mayAnnotate(schema) {
		w.err = fmt.Errorf("its schema may have an %s deeper than %d levels", annotation, maxSchemaDepth)
	}
	if w.err != nil || depth > maxSchemaDepth {
		return
	}
	jsonrpc.Members(schema, func(key string, value []byte) {
		isMap, below := subschemas[key]
		switch {
		case w.err != nil:
		case key == annotation:
			w.annotation(schema, value, path, reachable)
		case key == "properties":
			jsonrpc.Members(value, func(name string, property []byte) {
				w.schema(property, append(path[:len(path):len(path)], name), reachable, depth+1)
			})
		case below:
			w.unreachable(value, isMap, depth+1)
		}
	})
}

// unreachable walks a map of schemas, an array of schemas or a schema.
func (w *headerWalk) unreachable(value []byte, isMap bool, depth int) {
	if isMap {
		jsonrpc.Members(value, func(_ string, inner []byte) { w.schema(inner, nil, false, depth) })
		return
	}
	if elements, ok := jsonrpc.Elements(value); ok {
		for _, e := range elements {
			w.schema(e, nil, false, depth)
		}
		return
	}
	w.schema(value, nil, false, depth)
}

func (w *headerWalk) annotation(schema, value []byte, path []string, reachable bool) {
	name, ok := jsonrpc.Text(value)
	kind, _ := jsonrpc.TextAt(schema, "type")
	switch {
	case w.err != nil:
	case !ok || name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isTokenRune(r) }):
		w.err = fmt.Errorf("x-mcp-header %s is not a header name", value)
	case !reachable || len(path) == 0:
		w.err = fmt.Errorf("x-mcp-header %q stands where no argument can be found", name)
	case kind != "string" && kind != "integer" && kind != "boolean":
		w.err = fmt.Errorf("x-mcp-header %q is on a parameter of type %q", name, kind)
	case w.seen[strings.ToLower(name)]:
		w.err = fmt.Errorf("x-mcp-header %q stands twice", name)
	default:
		w.seen[strings.ToLower(name)] = true
		w.found = append(w.found, paramHeader{name, path})
	}
}

// isTokenRune reports whether r is a tchar (RFC 9110 §5.6.2).
func isTokenRune(r rune) bool {
	return r < 0x80 && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
}

// setParamHeaders puts a call's arguments where the annotations say.
func setParamHeaders(to http.Header, headers []paramHeader, arguments []byte) {
	for _, h := range headers {
		if text, ok := paramText(jsonrpc.Lookup(arguments, h.path...)); ok {
			to["Mcp-Param-"+h.name] = []string{headerValue(text)}
		}
	}
}

// paramText returns an argument as text; false for null, for what is not there,
// and for what no header may carry.
func paramText(raw []byte) (string, bool) {
	if len(raw) == 0 {
		return "", false
	}
	switch raw[0] {
	case '"':
		return jsonrpc.Text(raw)
	case 't', 'f':
		return string(raw), true
	case 'n', '{', '[':
		return "", false
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil || n > maxSafeInteger || n < -maxSafeInteger:
		return "", false
	case n == math.Trunc(n):
		return strconv.FormatInt(int64(n), 10), true // 1.0 and 1e3 are integers too
	}
	return string(raw), true
}

const (
	sentinelStart = "=?base64?"
	sentinelEnd   = "?="
)

// headerValue encodes text for a header (MCP 2026-07-28, streamable HTTP,
// "Value Encoding").
func headerValue(text string) string {
	odd := strings.ContainsFunc(text, func(r rune) bool { return (r < 0x20 && r != '\t') || r > 0x7E })
	padded := strings.TrimSpace(text) != text
	sentinel := strings.HasPrefix(text, sentinelStart) && strings.HasSuffix(text, sentinelEnd)
	if !odd && !padded && !sentinel {
		return text
	}
	return sentinelStart + base64.StdEncoding.EncodeToString([]byte(text)) + sentinelEnd
}

// errNotModern is what a probe over HTTP ends with when the server's refusal is
// not one of 2026-07-28.
var errNotModern = errors.New("not a server of " + ModernVersion)
