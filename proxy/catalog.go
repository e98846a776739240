package proxy

import (
	"slices"
	"sync"

	"coffer/prefs"
	"coffer/upstream"
)

// maxSightings bounds how many URIs from results are remembered.
const maxSightings = 4096

// catalog is what the session knows of all upstreams' lists: the newest answer
// of each, however old, and what follows from them: merged names, owners of
// URIs, and the list as bytes. Freshness is the cache's business, not its.
type catalog struct {
	limit int

	mu     sync.Mutex // guards all below
	roster *roster
	known  map[upstream.Kind][]*upstream.Listing // newest listing of each server; nil: none yet
	down   map[upstream.Kind][]bool              // the newest attempt to list failed
	names  map[upstream.Kind]*naming             // of tools and prompts
	owners *owners
	views  map[viewKey]*view // the newest merged lists
	seen   sightings         // URI in a result -> server
}

// viewKey is one list in the form of one era.
type viewKey struct {
	kind   upstream.Kind
	modern bool
}

// view is a merged list, and what it was made of.
type view struct {
	listings []*upstream.Listing
	snap     *prefs.Snapshot
	result   []byte
}

// slot is the cache's key: one list of one server.
type slot struct {
	server int
	kind   upstream.Kind
}

func newCatalog(r *roster, limit int) *catalog {
	c := &catalog{
		limit: limit, roster: r,
		known: map[upstream.Kind][]*upstream.Listing{}, down: map[upstream.Kind][]bool{},
		names: map[upstream.Kind]*naming{}, views: map[viewKey]*view{},
		seen: newSightings(maxSightings),
	}
	for _, k := range upstream.Kinds() {
		c.known[k] = make([]*upstream.Listing, r.size())
		c.down[k] = make([]bool, r.size())
	}
	c.names[upstream.Tools] = newNaming(r, limit)
	c.names[upstream.Prompts] = newNaming(r, limit)
	c.rebuildOwners()
	return c
}

// follow goes over to another roster, which publish makes known to the session at
// the same moment: none of them knows a server that the other does not. A server
// that takes another's place keeps the names of that one until its own list is
// known.
func (c *catalog) follow(r *roster, publish func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	publish()
	before := c.roster
	c.roster = r
	for _, k := range upstream.Kinds() {
		known, down := make([]*upstream.Listing, r.size()), make([]bool, r.size())
		for i := range before.all() {
			if r.specs[i] != nil {
				known[i], down[i] = c.known[k][i], c.down[k][i]
			}
		}
		c.known[k], c.down[k] = known, down
		if n := c.names[k]; n != nil {
			n.follow(before, r)
		}
	}
	for _, k := range upstream.Kinds() {
		c.changed(k)
	}
}

func (c *catalog) rebuildOwners() {
	c.owners = newOwners(c.roster, c.known[upstream.Resources], c.known[upstream.Templates])
}

// learn takes a new listing. If it says the same as the one before, that one
// is returned, so that equal lists stay one object.
func (c *catalog) learn(at slot, l *upstream.Listing) *upstream.Listing {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, wasDown := c.known[at.kind][at.server], c.down[at.kind][at.server]
	if before != nil && before.Same(l) {
		l = before
	}
	c.known[at.kind][at.server] = l
	c.down[at.kind][at.server] = false
	if before != l || wasDown {
		c.changed(at.kind)
		c.sightTools(at, l)
	}
	return l
}

// lose notes that a list could not be had.
func (c *catalog) lose(at slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.down[at.kind][at.server] {
		c.down[at.kind][at.server] = true
		c.changed(at.kind)
	}
}

// changed derives names and owners anew. c.mu is held.
func (c *catalog) changed(k upstream.Kind) {
	c.dropViews(k)
	n, named := c.names[k]
	if !named {
		c.rebuildOwners()
		c.dropViews(upstream.Resources)
		c.dropViews(upstream.Templates)
		return
	}
	listings := make([]*upstream.Listing, c.roster.size())
	for i := range listings {
		if !c.down[k][i] {
			listings[i] = c.known[k][i]
		}
	}
	n.settle(listings)
}

func (c *catalog) dropViews(k upstream.Kind) {
	delete(c.views, viewKey{k, false})
	delete(c.views, viewKey{k, true})
}

// newest returns the newest listing, or nil.
func (c *catalog) newest(at slot) *upstream.Listing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[at.kind][at.server]
}

// unknown returns the servers none of whose listings of that kind has been
// seen and whose newest attempt did not fail either.
func (c *catalog) unknown(k upstream.Kind) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var servers []int
	for i := range c.roster.all() {
		if c.known[k][i] == nil && !c.down[k][i] {
			servers = append(servers, i)
		}
	}
	return servers
}

// render returns the result of a list made of listings (nil: left out), from
// the ready bytes if nothing has changed. It is a whole result without _meta.
func (c *catalog) render(k upstream.Kind, listings []*upstream.Listing, snap *prefs.Snapshot, modern bool) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.views[viewKey{k, modern}]; v != nil && v.snap == snap && slices.Equal(v.listings, listings) {
		return v.result
	}
	name := func(server int, item upstream.Item) string {
		if n, named := c.names[k]; named {
			if merged, ok := n.settled[server][item.Key]; ok {
				return merged
			}
			return MergedName(c.roster.specs[server], item.Key, c.limit)
		}
		return c.owners.show(c.roster.specs[server], server, item.Key)
	}
	result := append([]byte(`{"`+k.Member()+`":`), merge(c.roster, listings, snap, modern, name)...)
	result = append(result, '}')
	c.views[viewKey{k, modern}] = &view{append([]*upstream.Listing(nil), listings...), snap, result}
	return result
}

// route returns what a merged name of a tool or prompt stands for. listed is
// false if it is a guess.
func (c *catalog) route(k upstream.Kind, name string) (t target, listed, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok = c.names[k].routes[name]; ok {
		return t, true, true
	}
	t, ok = guess(c.roster.all(), name)
	return t, false, ok
}

// owner is where a URI leads.
type owner struct {
	server   int
	uri      string // as the upstream has it
	form     string // the coffer:// form that the client used, or ""
	listed   bool   // the exact URI is in the server's list of resources
	template string // else: the server's template that it matches, or is
}

// find returns the owner of a URI (design §4). ok is false if nobody is known
// to hold it.
func (c *catalog) find(uri string) (o owner, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o = owner{server: -1, uri: uri}
	for i, spec := range c.roster.all() {
		if original, ours := addressed(spec.Name, uri); ours {
			o.server, o.uri, o.form = i, original, uri
		}
	}
	if o.server < 0 {
		if o.server, ok = c.search(uri); !ok {
			return o, false
		}
	}
	c.describe(&o)
	return o, true
}

// at is find for a URI of a server that is known.
func (c *catalog) at(server int, uri string) owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := owner{server: server, uri: uri}
	c.describe(&o)
	return o
}

// describe tells what o's server lists of its URI. c.mu is held.
func (c *catalog) describe(o *owner) {
	if o.listed = c.owners.lists[upstream.Resources][o.server][o.uri]; o.listed {
		return
	}
	if c.owners.lists[upstream.Templates][o.server][o.uri] {
		o.template = o.uri
	} else if p, found := c.owners.matching(o.uri, o.server); found {
		o.template = p.template
	}
}

// search finds the server of a URI that does not name one. c.mu is held.
func (c *catalog) search(uri string) (server int, ok bool) {
	if i, listed := c.owners.uris[uri]; listed {
		return i, true
	}
	if i, listed := c.owners.templates[uri]; listed {
		return i, true
	}
	if i, seen := c.seen.get(uri); seen && c.roster.specs[i] != nil {
		return i, true
	}
	if p, found := c.owners.matching(uri, -1); found {
		return p.server, true
	}
	if i, found := c.owners.byScheme(uri); found {
		return i, true
	}
	if c.roster.sole() {
		return c.roster.order[0], true
	}
	return 0, false
}

// hides reports whether the server has any URI that another's covers.
func (c *catalog) hides(server int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.owners.hidden[server]) > 0
}

// public returns the form in which clients know the server's URI.
func (c *catalog) public(server int, uri string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners.show(c.roster.servers[server].Spec(), server, uri)
}

// sight remembers that a result of the server showed uri.
func (c *catalog) sight(server int, uri string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.put(uri, server)
}
