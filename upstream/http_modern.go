package upstream

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"coffer/jsonrpc"
)

// describe adds the headers that 2026-07-28 makes from a request (streamable
// HTTP, "Request Metadata"). A tool's own need its schema, so on a connection
// that has not listed its tools yet, or with fresh, they are listed first.
func (h *streamable) describe(p *post, to http.Header, fresh bool) error {
	if p.method != "server/discover" && !h.conn.Modern() {
		return nil
	}
	params := jsonrpc.Lookup(p.body, "params")
	version, modern := jsonrpc.TextAt(params, "_meta", MetaVersion)
	if !modern {
		return nil
	}
	to["Mcp-Protocol-Version"] = []string{version}
	to["Mcp-Method"] = []string{headerValue(p.method)}
	name := ""
	switch p.method {
	case "tools/call", "prompts/get":
		name, _ = jsonrpc.TextAt(params, "name")
		to["Mcp-Name"] = []string{headerValue(name)}
	case "resources/read":
		uri, _ := jsonrpc.TextAt(params, "uri")
		to["Mcp-Name"] = []string{headerValue(uri)}
	}
	if p.method != "tools/call" {
		return nil
	}
	if fresh || h.conn.headers.Load() == nil {
		// Without the list the call goes out as it is: the server decides.
		if _, err := h.conn.List(p.ctx, Tools); err != nil && p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
	}
	if headers := h.conn.headers.Load(); headers != nil {
		setParamHeaders(to, (*headers)[name], jsonrpc.Lookup(params, "arguments"))
	}
	return nil
}

// askAgain sends a tool call once more if the server found its headers wrong:
// the schema that they were made from is out of date. Such a call was not run.
// Another refusal is given back to be read.
func (h *streamable) askAgain(p *post, resp *http.Response) (*http.Response, error) {
	text := h.refusal(p, resp)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(text))
	m, err := jsonrpc.Parse(text)
	if err != nil || m.Error == nil || jsonrpc.AsError(m.Error).Code != codeHeaderMismatch {
		return resp, nil
	}
	own := h.header(postHeader())
	if err := h.describe(p, own, true); err != nil {
		return nil, err
	}
	h.conn.handler.Missed(h.conn, Tools) // it changed, and nobody said so
	h.conn.idle()
	return h.exchange(p, h.url, own)
}
