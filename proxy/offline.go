package proxy

import "coffer/upstream"

// Prefix returns the prefix of a server's tools and prompts, "" for none.
func Prefix(spec *upstream.Spec) string { return prefixOf(spec) }

// PlainName returns the name that a server's tool or prompt has where nothing
// stands against it: the original behind the prefix.
func PlainName(spec *upstream.Spec, original string) string {
	if prefix := prefixOf(spec); prefix != "" {
		return prefix + separator + original
	}
	return original
}

// Names are the names under which clients see capabilities, worked out without
// a session: for commands, which show them beside the servers' own.
type Names struct {
	limit   int
	servers *roster
	named   map[upstream.Kind]*naming
	owners  *owners
}

// NewNames works the names out. offered returns what a server is known to list;
// no server has to be up for that, and for a server of which nothing is known
// the names are right unless an earlier server has taken one.
func NewNames(config *upstream.Config, offered func(server string, k upstream.Kind) []string) *Names {
	n := &Names{limit: config.MaxNameLength, servers: rosterOf(config), named: map[upstream.Kind]*naming{}}
	listings := func(k upstream.Kind) []*upstream.Listing {
		all := make([]*upstream.Listing, n.servers.size())
		for i, spec := range n.servers.all() {
			all[i] = &upstream.Listing{Kind: k}
			for _, key := range offered(spec.Name, k) {
				all[i].Items = append(all[i].Items, upstream.Item{Key: key})
			}
		}
		return all
	}
	for _, k := range []upstream.Kind{upstream.Tools, upstream.Prompts} {
		n.named[k] = newNaming(n.servers, n.limit)
		n.named[k].settle(listings(k))
	}
	n.owners = newOwners(n.servers, listings(upstream.Resources), listings(upstream.Templates))
	return n
}

// Of returns the name, or the URI, under which clients see the capability that
// the server itself calls key.
func (n *Names) Of(spec *upstream.Spec, k upstream.Kind, key string) string {
	i := n.servers.index(spec.Name)
	enabled := i >= 0
	naming, named := n.named[k]
	switch {
	case !named && enabled:
		return n.owners.show(spec, i, key)
	case !named:
		return key
	case enabled:
		if name, settled := naming.settled[i][key]; settled {
			return name
		}
	}
	return qualify(prefixOf(spec), key, n.limit)
}

// Address returns the coffer:// form of a server's URI or URI template, which
// can be used in its place whichever server is shown to have it.
func Address(server, uri string) string { return address(server, uri) }
