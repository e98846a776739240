package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"coffer/jsonrpc"
)

// askedVersion is what initialize asks for: the newest of the handshake era.
const askedVersion = "2025-11-25"

// legacyVersions are the revisions that begin with a handshake, newest first.
var legacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// LegacyVersions returns the revisions of the handshake era, newest first.
func LegacyVersions() []string { return slices.Clone(legacyVersions) }

// hello is what an upstream said of itself when the session began.
type hello struct {
	version      string
	capabilities []byte // raw
	instructions string
	serverInfo   []byte // raw
}

// open connects and shakes hands. On an error nothing is left of the attempt.
func (s *Server) open(ctx context.Context) (*Conn, error) {
	c := &Conn{server: s, handler: s.set.opts.Handler, log: s.log}
	s.mu.Lock()
	if s.all == nil {
		s.all = map[*Conn]bool{}
	}
	s.mu.Unlock()
	err := c.dial(ctx)
	if err == nil {
		s.mu.Lock()
		s.all[c] = true
		s.mu.Unlock()
		err = c.greet(ctx)
	}
	if err == nil {
		return c, nil
	}
	if c.link != nil {
		if !errors.Is(err, errProbeKilled) {
			err = c.explain(err)
		}
		s.mu.Lock()
		delete(s.all, c)
		s.mu.Unlock()
		c.link.stop(s.set.ladder())
	}
	if errors.Is(err, errProbeKilled) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return s.open(ctx) // it is remembered as legacy, so this happens once
	}
	return nil, err
}

// initialize performs the handshake (MCP 2025-11-25, basic/lifecycle).
func (c *Conn) initialize(ctx context.Context, client Client) error {
	c.told = client.Capabilities
	params := fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":%s,"clientInfo":%s}`, askedVersion, client.Capabilities, client.info())
	result, err := c.call(ctx, "initialize", params)
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	version := textAt(result, "protocolVersion")
	if !slices.Contains(legacyVersions, version) {
		return fmt.Errorf("initialize: protocol version %q is none of %s", version, strings.Join(legacyVersions, ", "))
	}
	if !c.agree(hello{
		version:      version,
		capabilities: jsonrpc.Lookup(result, "capabilities"),
		instructions: textAt(result, "instructions"),
		serverInfo:   jsonrpc.Lookup(result, "serverInfo"),
	}) {
		return nil // server/discover was answered first after all
	}
	c.server.remember(eraLegacy)
	c.Notify("notifications/initialized", nil)
	c.Flush()
	return nil
}

// info returns the client's clientInfo, which initialize cannot be without.
func (c Client) info() []byte {
	if c.Info == nil {
		return []byte(`{"name":"unknown","version":"0"}`)
	}
	return c.Info
}

// explain adds what the upstream wrote to stderr to the reason why it could
// not be started.
func (c *Conn) explain(err error) error {
	if errors.Is(err, errClosing) {
		return err
	}
	_, answered := errors.AsType[*jsonrpc.Error](err)
	if lost := c.Err(); lost != nil && !answered {
		err = lost // "exit status 1" says more than "connection lost", and less than what the server said
	}
	lines := c.link.stderr()
	if len(lines) == 0 {
		return err
	}
	return fmt.Errorf("%w; its last words on stderr:\n  %s", err, strings.Join(lines, "\n  "))
}

// said returns what the upstream said of itself; nothing before the handshake.
func (c *Conn) said() hello {
	if h := c.agreed.Load(); h != nil {
		return *h
	}
	return hello{}
}

// Version returns the protocol revision that was agreed on, "" before that.
func (c *Conn) Version() string { return c.said().version }

// Instructions returns the upstream's instructions, or "".
func (c *Conn) Instructions() string { return c.said().instructions }

// Info returns the upstream's raw serverInfo, or nil.
func (c *Conn) Info() []byte { return c.said().serverInfo }

// Offers reports whether the upstream declared the capability at that path,
// {"resources", "subscribe"} for instance, as an object or as true.
func (c *Conn) Offers(path ...string) bool {
	value := string(jsonrpc.Lookup(c.said().capabilities, path...))
	return value == "true" || strings.HasPrefix(value, "{")
}
