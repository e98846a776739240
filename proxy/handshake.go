package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"coffer/jsonrpc"
	"coffer/upstream"
)

// capabilities are what every client is told, whatever is up: to merge what
// the upstreams declare would mean to wait for them (design §8).
const capabilities = `"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{}`

// relayedExtensions are the capability extensions whose messages coffer can
// route: MCP Apps live in tools' _meta and ui:// resources alone.
var relayedExtensions = []string{"io.modelcontextprotocol/ui"}

// tasksExtension is the one that is not told to upstreams: tasks are not
// offered (design §8).
const tasksExtension = "io.modelcontextprotocol/tasks"

const (
	// maxInstructions bounds one upstream's part of the merged instructions,
	// in bytes; clients put them in front of every conversation.
	maxInstructions = 8 << 10
)

// clientState is what is known of the client. The reader alone writes it.
type clientState struct {
	said  atomic.Pointer[said] // nil before the first request that told anything
	hello *jsonrpc.Request     // its initialize; the reader's own

	once  sync.Once
	ready chan struct{} // closed by notifications/initialized
}

// said is what the client has told of itself.
type said struct {
	version      string // agreed in its handshake; "" without one
	capabilities []byte // as the client declared them
	info         []byte // its raw clientInfo, or nil
}

// version returns the revision of the handshake, or "".
func (c *clientState) version() string {
	if s := c.said.Load(); s != nil {
		return s.version
	}
	return ""
}

// initialized reports whether there was a handshake.
func (c *clientState) initialized() bool { return c.version() != "" }

func (c *clientState) setReady() { c.once.Do(func() { close(c.ready) }) }

func (c *clientState) isReady() bool { return isClosed(c.ready) }

// declares reports whether the client has the capability at that path.
func (c *clientState) declares(path ...string) bool {
	s := c.said.Load()
	return s != nil && declared(jsonrpc.Lookup(s.capabilities, path...))
}

// declared reports whether the value of a capability says that there is one.
func declared(value []byte) bool {
	return string(value) == "true" || len(value) > 0 && value[0] == '{'
}

// initialize answers the handshake (MCP 2025-11-25, basic/lifecycle). It
// starts the upstreams, and waits for nothing but their instructions, and that
// not long.
func (s *Session) initialize(r *request) {
	asked, ok := jsonrpc.TextAt(r.Params, "protocolVersion")
	switch {
	case r.InBatch():
		r.Fail(jsonrpc.ErrorObject(jsonrpc.CodeInvalidRequest, "initialize must not be part of a batch", nil))
		return
	case s.client.initialized():
		r.Fail(jsonrpc.ErrorObject(jsonrpc.CodeInvalidRequest, "already initialized", nil))
		return
	case !ok:
		s.fail(r, invalidParams("initialize without protocolVersion"))
		return
	}
	versions := upstream.LegacyVersions()
	told := said{version: versions[0], capabilities: jsonrpc.Lookup(r.Params, "capabilities"), info: jsonrpc.Lookup(r.Params, "clientInfo")}
	if slices.Contains(versions, asked) {
		told.version = asked
	}
	if len(told.capabilities) == 0 || told.capabilities[0] != '{' {
		told.capabilities = []byte(`{}`)
	}
	s.client.hello = r.Request
	s.client.said.Store(&told)
	s.set.Start(upstream.Client{Info: told.info, Capabilities: s.relayable(told.capabilities)})
	s.work(r, func(ctx context.Context) {
		result := fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":{%s%s},"serverInfo":{"name":"coffer","version":%s}`,
			told.version, capabilities, extensionsOf(told.capabilities), jsonrpc.Quote(s.opts.Version))
		if text := s.instructions(ctx); text != "" {
			result = jsonrpc.AppendQuote(append(result, `,"instructions":`...), text)
		}
		r.Reply(append(result, '}'))
	})
}

// relayable returns the client's capabilities without those that coffer cannot
// pass on (protocol.md §1.4): tasks, and with several upstreams
// sampling.context, whose "thisServer" would mean all of them.
func (s *Session) relayable(capabilities []byte) []byte {
	capabilities = jsonrpc.Delete(capabilities, "tasks")
	if extensions := jsonrpc.Lookup(capabilities, "extensions"); jsonrpc.Lookup(extensions, tasksExtension) != nil {
		capabilities = jsonrpc.Set(capabilities, "extensions", jsonrpc.Delete(extensions, tasksExtension))
	}
	sampling, n := jsonrpc.Member(capabilities, "sampling")
	if n == 0 || s.roster().sole() || jsonrpc.Lookup(sampling, "context") == nil {
		return capabilities
	}
	return jsonrpc.Set(capabilities, "sampling", jsonrpc.Delete(sampling, "context"))
}

// extensionsOf returns the extensions member of coffer's capabilities: the ids
// of the client's own map that are relayed.
func extensionsOf(client []byte) string {
	var ids []string
	for _, id := range relayedExtensions {
		if declared(jsonrpc.Lookup(client, "extensions", id)) {
			ids = append(ids, string(jsonrpc.Quote(id))+":{}")
		}
	}
	if ids == nil {
		return ""
	}
	return `,"extensions":{` + strings.Join(ids, ",") + `}`
}

// instructions returns what the client's model is told: the user's own text,
// or what the upstreams say that are ready in time.
func (s *Session) instructions(ctx context.Context) string {
	if own := s.opts.Config.Instructions; own != nil {
		return *own
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Config.InstructionsWait)
	defer cancel()
	r := s.roster()
	texts := make([]string, r.size())
	var all sync.WaitGroup
	for i := range r.all() {
		all.Go(func() {
			if c := r.servers[i].Await(ctx); c != nil { // who is not ready in time says nothing
				texts[i] = c.Instructions()
			}
		})
	}
	all.Wait()
	return r.mergeInstructions(texts)
}

// mergeInstructions joins what upstreams say: one alone is passed on as it is,
// several each under a heading that tells how their tools are named.
func (r *roster) mergeInstructions(texts []string) string {
	if r.sole() {
		return texts[r.order[0]]
	}
	var b strings.Builder
	for i, spec := range r.all() {
		text := texts[i]
		if text == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "# %s\n", spec.Name)
		if prefix := prefixOf(spec); prefix != "" {
			fmt.Fprintf(&b, "The tools and prompts of this server are named `%s%s…`.\n", prefix, separator)
		}
		b.WriteString("\n" + clipped(text))
	}
	return b.String()
}

// clipped is text, or as much of it as is worth its place, and says which.
func clipped(text string) string {
	if len(text) <= maxInstructions {
		return text
	}
	return strings.ToValidUTF8(text[:maxInstructions], "") + " …"
}

// Up implements upstream.Handler: what the client had set up is restored on
// every new connection, and if it is not the first, what the lists show may
// have changed.
func (s *Session) Up(c *upstream.Conn) {
	s.restoreLevel(c)
	s.subs.restore(c)
	i := s.index(c)
	for _, k := range upstream.Kinds() {
		s.notices.check(slot{i, k})
	}
}

// Down implements upstream.Handler. A restart of the upstream's session
// invalidates its lists; one that is being asked right now will be asked on
// the new connection by who asks.
func (s *Session) Down(c *upstream.Conn) { s.drop(c, upstream.Kinds()) }

// Missed implements upstream.Handler.
func (s *Session) Missed(c *upstream.Conn, kinds ...upstream.Kind) {
	if kinds == nil {
		kinds = upstream.Kinds()
	}
	i := s.drop(c, kinds)
	for _, k := range kinds {
		s.notices.check(slot{i, k})
	}
}

// drop has c's lists of these kinds asked anew, and returns its server's index.
func (s *Session) drop(c *upstream.Conn, kinds []upstream.Kind) int {
	i := s.index(c)
	for _, k := range kinds {
		at := slot{i, k}
		s.notices.cause(at)
		if !s.lists.InFlight(at) {
			s.lists.Evict(at)
		}
	}
	return i
}

// Flush implements upstream.Handler.
func (s *Session) Flush() { s.stream.Out.Flush() }

// Room implements upstream.Handler.
func (s *Session) Room(ctx context.Context) { s.stream.Out.Room(ctx) }

// index returns the index of c's server, whether or not that has left.
func (s *Session) index(c *upstream.Conn) int { return slices.Index(s.roster().servers, c.Server()) }
