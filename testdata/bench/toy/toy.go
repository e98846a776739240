// Package toy is the MCP server that the benchmark measures through: it answers
// at once and always the same, so that what a proxy adds is what is seen. It
// reads requests with as little work as it can and knows no requests but those
// of the benchmark and of what stands between.
package toy

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// Servers and ToolsEach make up the scenario: that many upstreams with that
	// many tools each.
	Servers   = 5
	ToolsEach = 20
	// schemaSize is the length of each tool's inputSchema in bytes.
	schemaSize = 700
	// MaxResult is the largest size that a result is padded to, in bytes.
	MaxResult = 10 << 20
)

// Name is the name of a server, counted from 0.
func Name(server int) string { return "s" + strconv.Itoa(server+1) }

// Tool is a server's own name of a tool, counted from 0.
func Tool(tool int) string { return fmt.Sprintf("t%02d", tool+1) }

// Merged is the name of a tool behind coffer, and that of a server that has all.
func Merged(server, tool int) string { return Name(server) + "__" + Tool(tool) }

// Server is one toy server. Its methods are safe for concurrent use.
type Server struct {
	prefix string // what clients of a proxy see before the names of its tools
	list   []byte // the result of tools/list
}

// New returns the server of that number, or one that has the tools of all
// servers under their merged names if number is -1.
func New(number int) *Server {
	if number >= 0 {
		return &Server{prefix: Merged(number, 0)[:len(Name(number))+len("__")], list: listResult(Tools(number, Tool))}
	}
	var all []string
	for server := range Servers {
		all = append(all, Tools(server, func(tool int) string { return Merged(server, tool) })...)
	}
	return &Server{list: listResult(all)}
}

// Tools returns a server's tools as JSON texts, under the names that name gives.
func Tools(server int, name func(tool int) string) []string {
	var all []string
	for tool := range ToolsEach {
		all = append(all, fmt.Sprintf(`{"name":%q,"description":"Tool %d of server %d","inputSchema":%s}`,
			name(tool), tool+1, server+1, schema(tool)))
	}
	return all
}

// schema is an inputSchema of exactly schemaSize bytes.
func schema(tool int) string {
	text := fmt.Sprintf(`{"type":"object","properties":{"n":{"type":"integer"},"size":{"type":"integer"},"ms":{"type":"integer"},`+
		`"note%02d":{"type":"string","description":""}},"required":["n"]}`, tool)
	pad := strings.Repeat("What it is for, in some detail. ", schemaSize)[:schemaSize-len(text)]
	return strings.Replace(text, `"description":""`, `"description":"`+pad+`"`, 1)
}

func listResult(tools []string) []byte {
	return []byte(`{"tools":[` + strings.Join(tools, ",") + `]}`)
}

// List is the result of tools/list as a client behind coffer has to see it.
func List() []byte { return New(-1).list }

// padding is what big results are made of: no two stretches of it are alike, or
// a proxy that loses a piece would not be found out.
var padding = sync.OnceValue(func() []byte {
	out := make([]byte, 0, MaxResult+16)
	for i := 0; len(out) < MaxResult; i++ {
		out = append(strconv.AppendInt(out, int64(i), 10), ' ')
	}
	return out
})

// AppendResult appends the result of calling the tool of that merged name with
// the arguments n and size.
func AppendResult(dst []byte, name []byte, n, size int) []byte {
	dst = append(append(dst, `{"content":[{"type":"text","text":"`...), name...)
	dst = strconv.AppendInt(append(dst, ' '), int64(n), 10)
	if size > 0 {
		dst = append(append(dst, ' '), padding()[:size]...)
	}
	return append(dst, `"}]}`...)
}

// AppendCall appends a tools/call request, with a newline.
func AppendCall(dst []byte, id int, name string, n, size, ms int) []byte {
	dst = strconv.AppendInt(append(dst, `{"jsonrpc":"2.0","id":`...), int64(id), 10)
	dst = append(append(dst, `,"method":"tools/call","params":{"name":"`...), name...)
	dst = strconv.AppendInt(append(dst, `","arguments":{"n":`...), int64(n), 10)
	dst = strconv.AppendInt(append(dst, `,"size":`...), int64(size), 10)
	dst = strconv.AppendInt(append(dst, `,"ms":`...), int64(ms), 10)
	return append(dst, "}}}\n"...)
}

// AppendAnswer appends the answer to the request in line, with a newline;
// nothing if it gets none. wait is how long the tool takes, which is the
// caller's to spend.
func (s *Server) AppendAnswer(dst, line []byte) (answer []byte, wait time.Duration) {
	id := after(line, `"id":`)
	if id == nil {
		return dst, 0
	}
	dst = append(append(append(dst, `{"jsonrpc":"2.0","id":`...), id...), ',')
	switch method := string(after(line, `"method":`)); method {
	case `"tools/call"`:
		params := line[bytes.Index(line, []byte(`"params":`)):]
		name := bytes.Trim(after(params, `"name":`), `"`)
		full := append(append(make([]byte, 0, 32), s.prefix...), name...)
		dst = append(dst, `"result":`...)
		dst = AppendResult(dst, full, number(params, `"n":`), number(params, `"size":`))
		wait = time.Duration(number(params, `"ms":`)) * time.Millisecond
	case `"tools/list"`:
		dst = append(append(dst, `"result":`...), s.list...)
	case `"initialize"`:
		dst = append(dst, `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"toy","version":"1"}}`...)
	case `"ping"`:
		dst = append(dst, `"result":{}`...)
	default:
		dst = append(dst, `"error":{"code":-32601,"message":"Method not found"}`...)
	}
	return append(dst, "}\n"...), wait
}

// after returns the string or number behind the first key in line, or nil.
func after(line []byte, key string) []byte {
	i := bytes.Index(line, []byte(key))
	if i < 0 {
		return nil
	}
	value := line[i+len(key):]
	if value[0] == '"' {
		return value[:bytes.IndexByte(value[1:], '"')+2]
	}
	return value[:bytes.IndexAny(value, ",}")]
}

func number(params []byte, key string) int {
	n, _ := strconv.Atoi(string(after(params, key))) // 0 if it is not there
	return n
}
