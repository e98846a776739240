package upstream

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"coffer/jsonrpc"
)

// Kind is one of the four lists that a server can have.
type Kind int

// The kinds, in the order in which coffer shows them.
const (
	Tools Kind = iota
	Resources
	Templates
	Prompts
	kinds
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Tools, Resources, Templates, Prompts} }

// kindWords are the protocol's words for each kind.
var kindWords = [kinds]struct{ method, member, key, capability string }{
	Tools:     {"tools/list", "tools", "name", "tools"},
	Resources: {"resources/list", "resources", "uri", "resources"},
	Templates: {"resources/templates/list", "resourceTemplates", "uriTemplate", "resources"},
	Prompts:   {"prompts/list", "prompts", "name", "prompts"},
}

// Method returns the method that lists the kind.
func (k Kind) Method() string { return kindWords[k].method }

// Member returns the member of the result that holds the items.
func (k Kind) Member() string { return kindWords[k].member }

// Key returns the member of an item that names it.
func (k Kind) Key() string { return kindWords[k].key }

// maxPages bounds one list (design §6).
const maxPages = 1000

// Item is one entry of a listing.
type Item struct {
	Key   string // its name, URI or URI template, as the upstream wrote it
	Token []byte // the JSON string that Key was read from: a sub-slice of Raw
	Raw   []byte // the whole item
}

// Listing is one upstream's complete answer to a list. It does not change.
type Listing struct {
	Kind  Kind
	Items []Item // in the upstream's order, each key once
	// Rotten counts items that were left out: not an object, or without a key.
	Rotten int
	// Cut is true if there were more than 1,000 pages.
	Cut bool
	// TTL is how long the server says that the listing may be kept; negative if
	// it cannot say so (before 2026-07-28).
	TTL time.Duration
}

// Modern reports whether the listing is of a server of 2026-07-28.
func (l *Listing) Modern() bool { return l.TTL >= 0 }

// List asks for every page of one list. A server that did not declare the
// capability, or says that it has no such method, has an empty list. A page
// that fails discards all pages; a cursor that repeats ends the list with what
// was read, since it leads nowhere new.
func (c *Conn) List(ctx context.Context, k Kind) (*Listing, error) {
	l := c.newListing(k)
	if !c.Offers(kindWords[k].capability) {
		return l, nil
	}
	seen := map[string]bool{}   // cursors
	listed := map[string]bool{} // keys
	params := []byte(nil)       // of the first page: none
	for page := 0; ; page++ {
		if page == maxPages {
			l.Cut = true
			c.log.Warn().Str("method", k.Method()).Int("pages", maxPages).Msg("list cut off: too many pages")
			break
		}
		result, err := c.Call(ctx, k.Method(), params)
		if jsonrpc.CodeOf(err) == jsonrpc.CodeMethodNotFound {
			l = c.newListing(k)
			break
		}
		if err != nil {
			return nil, err
		}
		items, ok := jsonrpc.Elements(jsonrpc.Lookup(result, k.Member()))
		if !ok {
			return nil, fmt.Errorf("%s: the result has no array %q", k.Method(), k.Member())
		}
		l.add(items, listed)
		if c.Modern() {
			l.TTL = min(l.TTL, ttlOf(result))
		}
		cursor := jsonrpc.Lookup(result, "nextCursor")
		if cursor == nil || string(cursor) == "null" {
			break
		}
		if seen[string(cursor)] {
			c.log.Warn().Str("method", k.Method()).RawJSON("cursor", cursor).Msg("list ended: the same cursor came twice")
			break
		}
		seen[string(cursor)] = true
		params = append(append([]byte(`{"cursor":`), cursor...), '}')
	}
	if l.Rotten > 0 {
		c.log.Warn().Str("method", k.Method()).Int("items", l.Rotten).Msg("items without a name left out")
	}
	if k == Tools && c.Modern() && !c.piped() {
		c.keepHeaders(l)
	}
	c.server.proven(c)
	return l, nil
}

// newListing returns an empty listing that may be kept as long as any.
func (c *Conn) newListing(k Kind) *Listing {
	l := &Listing{Kind: k, TTL: -1}
	if c.Modern() {
		l.TTL = math.MaxInt64
	}
	return l
}

// ttlOf returns a result's ttlMs; absent or negative is 0 (MCP 2026-07-28,
// server/utilities/caching).
func ttlOf(result []byte) time.Duration {
	ms, err := strconv.ParseFloat(string(jsonrpc.Lookup(result, "ttlMs")), 64)
	if err != nil || ms <= 0 {
		return 0
	}
	return time.Duration(min(ms, maxTTL)) * time.Millisecond
}

// maxTTL is the longest ttlMs that is believed: a day, far more than any cache
// of coffer's keeps.
const maxTTL = 24 * 60 * 60 * 1000

// keepHeaders remembers which arguments of which tool go into headers, and
// takes tools out of the listing whose annotations are invalid: a client MUST
// NOT show them (MCP 2026-07-28, streamable HTTP, "Schema Extension").
func (c *Conn) keepHeaders(l *Listing) {
	headers := map[string][]paramHeader{}
	kept := l.Items[:0]
	for _, item := range l.Items {
		found, err := paramHeaders(jsonrpc.Lookup(item.Raw, "inputSchema"))
		if err != nil {
			c.log.Warn().Err(err).Str("tool", item.Key).Msg("tool left out")
			continue
		}
		headers[item.Key] = found
		kept = append(kept, item)
	}
	l.Items = kept
	c.headers.Store(&headers)
}

// add takes the items of one page.
func (l *Listing) add(items [][]byte, listed map[string]bool) {
	for _, raw := range items {
		token, n := jsonrpc.Member(raw, l.Kind.Key())
		key, ok := jsonrpc.Text(token)
		if n != 1 || !ok || key == "" {
			l.Rotten++
			continue
		}
		if listed[key] {
			continue // the first counts (design §4)
		}
		listed[key] = true
		l.Items = append(l.Items, Item{Key: key, Token: token, Raw: raw})
	}
}

// Same reports whether two listings show the same items in the same order.
func (l *Listing) Same(other *Listing) bool {
	if other == nil || len(l.Items) != len(other.Items) || l.Modern() != other.Modern() {
		return false
	}
	for i := range l.Items {
		if string(l.Items[i].Raw) != string(other.Items[i].Raw) {
			return false
		}
	}
	return true
}
