package proxy

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coffer/jsonrpc"
	"coffer/prefs"
	"coffer/upstream"
)

// thousand is a catalog of ten servers that has learned a hundred tools of each,
// and their listings.
func thousand() (*catalog, []*upstream.Listing) {
	const servers, each = 10, 100
	schema := `{"type":"object","description":"` + strings.Repeat("x", 660) + `"}`
	var specs []*upstream.Spec
	var listings []*upstream.Listing
	for i := range servers {
		specs = append(specs, &upstream.Spec{Name: fmt.Sprintf("server%d", i), AutoEnable: true})
		l := &upstream.Listing{Kind: upstream.Tools, TTL: -1}
		for j := range each {
			raw := fmt.Appendf(nil, `{"name":"tool_%d","inputSchema":%s}`, j, schema)
			token := jsonrpc.Lookup(raw, "name")
			name, _ := jsonrpc.Text(token)
			l.Items = append(l.Items, upstream.Item{Key: name, Token: token, Raw: raw})
		}
		listings = append(listings, l)
	}
	c := newCatalog(inOrder(specs), 64)
	for i, l := range listings {
		c.learn(slot{i, upstream.Tools}, l)
	}
	return c, listings
}

// rows is a snapshot that has a row for each of the tools.
func rows(b *testing.B, c *catalog, listings []*upstream.Listing) *prefs.Snapshot {
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		b.Fatal(err)
	}
	store, err := prefs.Open(b.Context(), filepath.Join(b.TempDir(), "coffer.db"), string(schema), prefs.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	for i, l := range listings {
		var keys []string
		for _, item := range l.Items {
			keys = append(keys, item.Key)
		}
		if _, err := store.Reconcile(b.Context(), c.roster.specs[i].Name, []prefs.Listed{{Type: prefs.Tool, Keys: keys}}, true, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
	snap, err := store.Fresh(context.WithoutCancel(b.Context()))
	if err != nil || snap.Len() != 1000 {
		b.Fatal(snap.Len(), err)
	}
	return snap
}

// BenchmarkRender is the merged list of a thousand tools: made anew, as after a
// change, and ready, as it is for all other requests.
func BenchmarkRender(b *testing.B) {
	c, listings := thousand()
	snap := rows(b, c, listings)
	want := c.render(upstream.Tools, listings, snap, false)
	for _, form := range []struct {
		name  string
		ready bool
	}{{"1000 tools merged", false}, {"1000 tools ready", true}} {
		b.Run(form.name, func(b *testing.B) {
			b.SetBytes(int64(len(want)))
			b.ReportAllocs()
			for b.Loop() {
				if !form.ready {
					c.dropViews(upstream.Tools)
				}
				if got := c.render(upstream.Tools, listings, snap, false); len(got) != len(want) {
					b.Fatal("another list")
				}
			}
		})
	}
	if got := c.render(upstream.Tools, listings, snap, false); !bytes.Equal(got, want) {
		b.Fatal("another list")
	}
}

// BenchmarkRoute is what a call asks before it is sent: whose is the name, and
// is it switched on.
func BenchmarkRoute(b *testing.B) {
	c, listings := thousand()
	snap := rows(b, c, listings)
	b.ReportAllocs()
	for b.Loop() {
		t, listed, ok := c.route(upstream.Tools, "server7__tool_42")
		if !listed || !ok || !enabled(snap, c.roster.specs[t.server], prefs.Tool, t.key) {
			b.Fatal("not found")
		}
	}
}
