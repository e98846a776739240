package proxy

import (
	"container/list"

	"coffer/jsonrpc"
	"coffer/upstream"
)

// sightings remembers which server last showed a URI, for the newest limit
// URIs. It is not safe for concurrent use.
type sightings struct {
	limit int
	order *list.List               // of sighting, newest first
	byURI map[string]*list.Element // URI -> its place in order
}

type sighting struct {
	uri    string
	server int
}

func newSightings(limit int) sightings {
	return sightings{limit: limit, order: list.New(), byURI: map[string]*list.Element{}}
}

func (s *sightings) put(uri string, server int) {
	if e, ok := s.byURI[uri]; ok {
		e.Value = sighting{uri, server}
		s.order.MoveToFront(e)
		return
	}
	s.byURI[uri] = s.order.PushFront(sighting{uri, server})
	if s.order.Len() > s.limit {
		oldest := s.order.Remove(s.order.Back()).(sighting)
		delete(s.byURI, oldest.uri)
	}
}

func (s *sightings) get(uri string) (server int, ok bool) {
	e, ok := s.byURI[uri]
	if !ok {
		return 0, false
	}
	return e.Value.(sighting).server, true
}

// sightTools remembers the app resources that tools point to (MCP Apps,
// _meta.ui.resourceUri). c.mu is held.
func (c *catalog) sightTools(at slot, l *upstream.Listing) {
	if at.kind != upstream.Tools || c.roster.sole() {
		return
	}
	for _, item := range l.Items {
		if uri, ok := jsonrpc.TextAt(item.Raw, "_meta", "ui", "resourceUri"); ok {
			c.seen.put(uri, at.server)
		}
	}
}
