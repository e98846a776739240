package proxy

import (
	"bytes"
	"context"

	"coffer/jsonrpc"
	"coffer/prefs"
	"coffer/upstream"
)

// read routes resources/read to the owner of the URI.
func (s *Session) read(r *request) {
	if r.modern {
		uri, _ := jsonrpc.TextAt(r.Params, "uri")
		if s.parked.resume(r, uri, func(x *exchange) error {
			own, _ := jsonrpc.TextAt(x.params, "uri")
			snap, _ := s.prefs.now()
			return s.gateURI(s.catalog.at(x.server, own), snap)
		}) {
			return
		}
	}
	s.onURI(r, func(o owner, token []byte) *upstream.Conn {
		params := r.Params
		if o.form != "" {
			params = jsonrpc.Splice(params, jsonrpc.Edit{Old: token, New: jsonrpc.Quote(o.uri)})
		}
		return s.forward(r, o.server, params, s.rewriter(o.server, o.form))
	})
}

// onURI finds the owner of the URI in r's params, asks the gate, and calls
// then; what that returns is flushed.
func (s *Session) onURI(r *request, then func(o owner, token []byte) *upstream.Conn) {
	token, n := jsonrpc.Member(r.Params, "uri")
	uri, ok := jsonrpc.Text(token)
	if n != 1 || !ok {
		s.fail(r, invalidParams("%s needs one uri", r.Method))
		return
	}
	s.work(r, func(ctx context.Context) {
		o, err := s.locate(ctx, uri)
		if err == nil {
			err = s.gateURI(o, s.prefs.later(ctx))
		}
		if err != nil {
			s.fail(r, err)
			return
		}
		if c := then(o, token); c != nil {
			c.Flush()
		}
	})
}

// locate returns the owner of a URI. Which server that is, and which
// preference judges it, follows from the lists, so those come first.
func (s *Session) locate(ctx context.Context, uri string) (owner, error) {
	s.learnAll(ctx, upstream.Resources, upstream.Templates)
	if o, ok := s.catalog.find(uri); ok {
		return o, nil
	}
	for _, spec := range s.roster().off {
		if _, theirs := addressed(spec.Name, uri); theirs {
			return owner{}, serverDisabled(spec.Name)
		}
	}
	// A server whose lists could not be had may hold it.
	for i := range s.roster().all() {
		for _, k := range []upstream.Kind{upstream.Resources, upstream.Templates} {
			if err := s.notices.failure(slot{i, k}); err != nil {
				return owner{}, err
			}
		}
	}
	return owner{}, noResource(uri)
}

// gateURI judges by the row of the exact URI if it is listed or has a row,
// else by the row of the template that it matches, else by the server's policy
// (design §4).
func (s *Session) gateURI(o owner, snap *prefs.Snapshot) error {
	exact := prefs.Key{Server: s.server(o.server).Name(), Type: prefs.Resource, Key: o.uri}
	if _, row := snap.Lookup(exact); !row && !o.listed && o.template != "" {
		return s.gate(o.server, prefs.ResourceTemplate, o.template, snap)
	}
	return s.gate(o.server, prefs.Resource, o.uri, snap)
}

// rewriter returns what has to be done to a server's results before the client
// sees them: nothing with one upstream. form is the coffer:// URI that the
// client asked with, or "".
func (s *Session) rewriter(server int, form string) func(method string, result []byte) []byte {
	if s.roster().sole() && form == "" {
		return nil
	}
	return func(method string, result []byte) []byte {
		if !bytes.Contains(result, []byte(`"uri"`)) {
			return result
		}
		hides := s.catalog.hides(server)
		var edits []jsonrpc.Edit
		for _, token := range uriTokens(method, result) {
			uri, ok := jsonrpc.Text(token)
			if !ok {
				continue
			}
			s.catalog.sight(server, uri)
			public := uri
			if original, asked := addressed(s.server(server).Name(), form); asked && original == uri {
				public = form
			} else if hides {
				public = s.catalog.public(server, uri)
			}
			if public != uri {
				edits = append(edits, jsonrpc.Edit{Old: token, New: jsonrpc.Quote(public)})
			}
		}
		if edits == nil {
			return result
		}
		return jsonrpc.Splice(result, edits...)
	}
}

// uriTokens returns the JSON strings in a result that are URIs of resources,
// in the order of the text: the contents of a read, and resource links and
// embedded resources in the content of a tool's result or a prompt's messages
// (MCP 2025-11-25, schema ContentBlock).
func uriTokens(method string, result []byte) [][]byte {
	var tokens [][]byte
	add := func(object []byte) {
		if token, n := jsonrpc.Member(object, "uri"); n == 1 {
			tokens = append(tokens, token)
		}
	}
	block := func(content []byte) {
		switch kind, _ := jsonrpc.TextAt(content, "type"); kind {
		case "resource_link":
			add(content)
		case "resource":
			add(jsonrpc.Lookup(content, "resource"))
		}
	}
	each := func(array []byte, f func([]byte)) {
		elements, _ := jsonrpc.Elements(array)
		for _, e := range elements {
			f(e)
		}
	}
	switch method {
	case "resources/read":
		each(jsonrpc.Lookup(result, "contents"), add)
	case "tools/call":
		each(jsonrpc.Lookup(result, "content"), block)
	case "prompts/get":
		each(jsonrpc.Lookup(result, "messages"), func(message []byte) { block(jsonrpc.Lookup(message, "content")) })
	}
	return tokens
}
