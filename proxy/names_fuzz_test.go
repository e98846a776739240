package proxy

import (
	"slices"
	"strings"
	"testing"

	"coffer/upstream"
)

// minLimit is the least max_name_length that a config may have.
const minLimit = 16

// fuzzServers reads servers from text: one a line, its key, its prefix and its
// tools, with tabs between. A prefix of "-" is none of its own.
func fuzzServers(text string) (specs []*upstream.Spec, listings []*upstream.Listing) {
	keys := map[string]bool{}
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.Split(line, "\t")
		if fields[0] == "" || keys[fields[0]] {
			continue // the config allows neither
		}
		keys[fields[0]] = true
		spec := &upstream.Spec{Name: fields[0]}
		if len(fields) > 1 && fields[1] != "-" {
			spec.Prefix = &fields[1]
		}
		listing := &upstream.Listing{}
		for _, tool := range fields[min(len(fields), 2):] {
			known := slices.ContainsFunc(listing.Items, func(i upstream.Item) bool { return i.Key == tool })
			if tool != "" && !known { // package upstream leaves out the others
				listing.Items = append(listing.Items, upstream.Item{Key: tool})
			}
		}
		specs, listings = append(specs, spec), append(listings, listing)
	}
	return specs, listings
}

// FuzzNaming: merged names are unique, no longer than allowed, of characters
// that every client takes, and lead back to the server and its own name; where
// no two servers can clash, they do not depend on other servers; and they stand
// while a list is unknown.
func FuzzNaming(f *testing.F) {
	for _, seed := range []string{
		"fs\t-\tread\twrite\ndb\t-\tread",
		"a\tx\tt\nb\tx\tt\nc\tx\tt\tx__t",
		"a\t\tb__t\tt\nb\t-\tt",
		"a b\t-\tt\na_b\t-\tt\na__b\t-\tt\n_a\t-\tt",
		"s\t-\t" + strings.Repeat("long", 30) + "\t" + strings.Repeat("long", 30) + "er\tné\tn:e\tn e\t\xff",
		"s\t\t" + strings.Repeat("x", 64) + "\t" + strings.Repeat("x", 65) + "\n" + strings.Repeat("key", 20) + "\t-\tt",
	} {
		f.Add(seed, 64)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = minLimit + max(limit, -limit, 0)%256
		specs, listings := fuzzServers(text)
		n := newNaming(inOrder(specs), limit)
		n.settle(listings)
		items := 0
		for i, spec := range specs {
			for _, item := range listings[i].Items {
				items++
				checkName(t, n, specs, i, item.Key)
			}
			if len(n.settled[i]) != len(listings[i].Items) {
				t.Errorf("%q has %d names for %d tools", spec.Name, len(n.settled[i]), len(listings[i].Items))
			}
		}
		if len(n.routes) != items {
			t.Errorf("%d names for %d tools", len(n.routes), items)
		}
		before := n.routes
		for i := range listings {
			listings[i] = nil
		}
		n.settle(listings)
		for name, at := range before {
			if n.routes[name] != at {
				t.Errorf("%q is of %v, and while no list is known of %v", name, at, n.routes[name])
			}
		}
	})
}

// checkName checks the name of one tool.
func checkName(t *testing.T, n *naming, specs []*upstream.Spec, server int, tool string) {
	t.Helper()
	name := n.settled[server][tool]
	if n.routes[name] != (target{server, tool}) {
		t.Errorf("%q of %q is called %q, which is %v", tool, specs[server].Name, name, n.routes[name])
	}
	if name == "" || len(name) > n.limit {
		t.Errorf("%q has %d bytes, allowed are %d", name, len(name), n.limit)
	}
	prefix := prefixOf(specs[server])
	if (prefix != "" || len(tool) > n.limit) && !allPlain(name) {
		t.Errorf("%q has characters that not every client takes", name)
	}
	prefixes := map[string]int{}
	for _, spec := range specs {
		prefixes[prefixOf(spec)]++
	}
	if prefixes[""] == 0 && prefixes[prefix] == 1 && name != MergedName(specs[server], tool, n.limit) {
		t.Errorf("%q is called %q although nothing clashes with %q", tool, name, MergedName(specs[server], tool, n.limit))
	}
}
