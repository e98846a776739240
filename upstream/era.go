package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"coffer/jsonrpc"
)

// ModernVersion is the revision without a handshake that coffer speaks: each
// request says in its _meta who asks (MCP 2026-07-28, basic/versioning).
const ModernVersion = "2026-07-28"

// The keys of _meta that belong to a hop (MCP 2026-07-28, basic, "_meta").
const (
	MetaVersion      = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo   = "io.modelcontextprotocol/clientInfo"
	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel     = "io.modelcontextprotocol/logLevel"
	MetaServerInfo   = "io.modelcontextprotocol/serverInfo"
	MetaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// hopKeys are those of a request.
var hopKeys = []string{MetaVersion, MetaClientInfo, MetaCapabilities, MetaLogLevel}

// The error codes by which a server is known to be of 2026-07-28 (schema,
// HeaderMismatch, MissingRequiredClientCapability, UnsupportedProtocolVersion).
const (
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

// probeTime is how long a server has to answer server/discover before the
// handshake is tried too. Servers of the older era may say nothing at all.
const probeTime = time.Second

// era is what a server speaks, as far as is known.
type era int

const (
	eraUnknown era = iota
	eraLegacy
	eraModern
)

// errProbeKilled is why a connection is made again: the server ended when it
// was asked what it speaks.
var errProbeKilled = errors.New("server/discover ended it")

// Modern reports whether the connection speaks 2026-07-28.
func (c *Conn) Modern() bool {
	h := c.agreed.Load()
	return h != nil && h.version == ModernVersion
}

// Legacy reports whether the server spoke with a handshake last.
func (s *Server) Legacy() bool { return s.remembered() == eraLegacy }

// Modern reports whether the server spoke 2026-07-28 last.
func (s *Server) Modern() bool { return s.remembered() == eraModern }

// remember keeps what the server speaks for the next connection.
func (s *Server) remember(e era) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.era = e
}

func (s *Server) remembered() era {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.era
}

// greet finds out what the server speaks and begins to speak it: what it spoke
// before, else the client's own era, so that translation is needed only where
// it must be (design §8).
func (c *Conn) greet(ctx context.Context) error {
	client := c.server.set.who()
	known := c.server.remembered()
	if c.server.spec.Transport == TransportSSE {
		return c.initialize(ctx, client) // that transport ended with 2024-11-05
	}
	if known == eraModern || known == eraUnknown && client.Modern {
		return c.probe(ctx, client)
	}
	err := c.initialize(ctx, client)
	if _, answered := errors.AsType[*jsonrpc.Error](err); answered {
		// A server of the newer era only: its error is all that it has to say
		// to initialize. It may have been taken for an older one, or replaced.
		if c.discover(ctx, client) == nil {
			return nil
		}
	}
	return err
}

// probe asks server/discover first and falls back to initialize on any answer
// but a DiscoverResult or an error that only the newer era has, on silence,
// and on the server's death (MCP 2026-07-28, stdio, "Backward Compatibility").
func (c *Conn) probe(ctx context.Context, client Client) error {
	found := make(chan error, 1)
	call := &jsonrpc.Call{Method: "server/discover", Params: modernParams(nil, client), Done: func(a jsonrpc.Answer) {
		found <- c.discovered(a)
	}}
	c.probing.Store(call)
	c.rpc.Start(call)
	c.Flush()
	silence := time.NewTimer(probeTime)
	defer silence.Stop()
	select {
	case err := <-found:
		return c.afterProbe(ctx, client, err)
	case <-silence.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// The discover stays open: whichever answer is usable first decides.
	greeted := make(chan error, 1)
	handshake, stop := context.WithCancel(ctx)
	defer stop()
	c.server.set.run(func() { greeted <- c.initialize(handshake, client) })
	var refusal error // of initialize
	for {
		select {
		case err := <-found:
			switch {
			case err == nil:
				return nil
			case c.Err() != nil:
				return c.killed()
			case refusal != nil:
				return refusal
			}
			found = nil
		case err := <-greeted:
			switch {
			case err != nil && c.Err() != nil:
				return c.killed()
			case err == nil || found == nil:
				return err
			}
			refusal, greeted = err, nil
			silence.Reset(probeTime) // it speaks now, so it can answer the other too
		case <-silence.C:
			return refusal
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// killed notes that server/discover has ended the server.
func (c *Conn) killed() error {
	c.server.remember(eraLegacy)
	return errProbeKilled
}

// afterProbe goes on after an answer to server/discover.
func (c *Conn) afterProbe(ctx context.Context, client Client, err error) error {
	if err == nil {
		return nil
	}
	if c.Err() != nil {
		return c.killed()
	}
	refusal, answered := errors.AsType[*jsonrpc.Error](err)
	if !answered && !errors.Is(err, errNotModern) {
		return err // unreachable, or refused for another reason: 401 is no era
	}
	if answered {
		switch refusal.Code {
		case codeHeaderMismatch, codeMissingCapability:
			return fmt.Errorf("server/discover: %w", err)
		case codeUnsupportedVersion:
			if speaksModern(refusal.Raw) { // it was not ready, or confused: it has to be asked again
				return c.discover(ctx, client)
			}
			if !speaksLegacy(refusal.Raw) {
				return fmt.Errorf("server/discover: it speaks none of our protocol versions: %w", err)
			}
		}
	}
	return c.initialize(ctx, client)
}

// speaksLegacy reports whether a server's list of versions has one that begins
// with a handshake.
func speaksLegacy(refusal []byte) bool {
	supported, _ := jsonrpc.Elements(jsonrpc.Lookup(refusal, "data", "supported"))
	return slices.ContainsFunc(supported, isLegacy)
}

// speaksModern reports whether a server's list of versions has ours of the
// newer era.
func speaksModern(refusal []byte) bool {
	supported, _ := jsonrpc.Elements(jsonrpc.Lookup(refusal, "data", "supported"))
	return slices.ContainsFunc(supported, isModern)
}

func isModern(raw []byte) bool { return string(raw) == `"`+ModernVersion+`"` }

func isLegacy(raw []byte) bool {
	version, _ := jsonrpc.Text(raw)
	return slices.Contains(legacyVersions, version)
}

// discover asks a server that is known to be of the newer era, or has refused
// the handshake.
func (c *Conn) discover(ctx context.Context, client Client) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	result, err := c.call(ctx, "server/discover", modernParams(nil, client))
	if err != nil {
		return err
	}
	return c.discovered(jsonrpc.Answer{Result: result})
}

// discovered takes the answer to server/discover.
func (c *Conn) discovered(a jsonrpc.Answer) error {
	switch {
	case a.Err != nil:
		return a.Err
	case a.Error != nil:
		return jsonrpc.AsError(a.Error)
	}
	versions, ok := jsonrpc.Elements(jsonrpc.Lookup(a.Result, "supportedVersions"))
	if !ok {
		return fmt.Errorf("server/discover: %w", errNotModern) // an answer to anything at all
	}
	if !slices.ContainsFunc(versions, isModern) {
		if slices.ContainsFunc(versions, isLegacy) {
			return fmt.Errorf("server/discover: %w", errNotModern)
		}
		return fmt.Errorf("server/discover: it does not speak %s", ModernVersion)
	}
	c.server.remember(eraModern)
	c.agree(hello{
		version:      ModernVersion,
		capabilities: jsonrpc.Lookup(a.Result, "capabilities"),
		instructions: textAt(a.Result, "instructions"),
		serverInfo:   jsonrpc.Lookup(a.Result, "_meta", MetaServerInfo),
	})
	return nil
}

func textAt(obj []byte, key string) string {
	text, _ := jsonrpc.TextAt(obj, key)
	return text
}

// agree settles how the connection is spoken. Only the first agreement counts.
func (c *Conn) agree(h hello) bool {
	if !c.agreed.CompareAndSwap(nil, &h) {
		return false
	}
	c.link.settled(h.version)
	return true
}

// modernParams returns params with the metadata that every request of
// 2026-07-28 carries, unless it has some already: those of the client's own
// request, which pass through.
func modernParams(params []byte, client Client) []byte {
	if params == nil {
		params = []byte(`{}`)
	}
	meta, n := jsonrpc.Member(params, "_meta")
	if n == 0 || meta[0] != '{' {
		meta = []byte(`{}`)
	}
	if _, own := jsonrpc.Member(meta, MetaVersion); own > 0 {
		return params
	}
	meta = jsonrpc.Set(meta, MetaVersion, jsonrpc.Quote(ModernVersion))
	if client.Info != nil {
		meta = jsonrpc.Set(meta, MetaClientInfo, client.Info)
	}
	if client.LogLevel != "" {
		meta = jsonrpc.Set(meta, MetaLogLevel, jsonrpc.Quote(client.LogLevel))
	}
	return jsonrpc.Set(params, "_meta", jsonrpc.Set(meta, MetaCapabilities, client.Capabilities))
}

// legacyParams returns params without what only 2026-07-28 has in a request.
func legacyParams(params []byte) []byte {
	meta, n := jsonrpc.Member(params, "_meta")
	if n == 0 || !bytes.Contains(meta, []byte("modelcontextprotocol")) {
		return params
	}
	for _, key := range hopKeys {
		meta = jsonrpc.Delete(meta, key)
	}
	for _, key := range []string{"inputResponses", "requestState"} {
		params = jsonrpc.Delete(params, key)
	}
	if string(meta) == "{}" {
		return jsonrpc.Delete(params, "_meta")
	}
	return jsonrpc.Set(params, "_meta", meta)
}

// isModernRefusal reports whether the body of an HTTP refusal is an error that
// only a server of 2026-07-28 gives (streamable HTTP, "HTTP+SSE Transport"), or
// one that names the version.
func isModernRefusal(text []byte) bool {
	m, err := jsonrpc.Parse(text)
	if err != nil || m.Error == nil {
		return false
	}
	switch jsonrpc.AsError(m.Error).Code {
	case codeHeaderMismatch, codeMissingCapability, codeUnsupportedVersion, jsonrpc.CodeMethodNotFound:
		return true
	}
	return bytes.Contains(m.Error, []byte(ModernVersion))
}

// hopLocal returns the answer that a forwarded request gets. What a server of
// 2026-07-28 says of the version and the headers that coffer chose is nothing
// that the client could act on: it is a failure of this server, and the request
// has not run. Over HTTP another server may have come to the same place, so the
// version is settled anew, once.
func (c *Conn) hopLocal(a jsonrpc.Answer) jsonrpc.Answer {
	e, failure := jsonrpc.AsError(a.Error), &Error{Upstream: c.Name(), Kind: ErrUnavailable}
	switch e.Code {
	default:
		return a
	case codeHeaderMismatch:
		failure.Err = fmt.Errorf("it refuses the headers of the request: %w", e)
		if !c.piped() {
			failure.Hint = "something between coffer and this server may have changed the HTTP headers"
		}
	case codeUnsupportedVersion:
		failure.Err = fmt.Errorf("it refuses the protocol version %s that it had agreed to: %w", c.Version(), e)
		if !c.piped() {
			failure.Err = fmt.Errorf("%w; %w", failure.Err, errReplaced)
		}
	}
	return jsonrpc.Answer{Err: failure}
}

// outgoing returns params as a request on c carries them.
func (c *Conn) outgoing(params []byte) []byte {
	if c.Modern() {
		return modernParams(params, c.server.set.who())
	}
	return legacyParams(params)
}
