package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"coffer/jsonrpc"
	"coffer/prefs"
	"coffer/upstream"
)

// list answers the four */list methods: the union of all upstreams, one page.
func (s *Session) list(r *request, k upstream.Kind) {
	if cursor := jsonrpc.Lookup(r.Params, "cursor"); cursor != nil {
		s.fail(r, invalidParams("unknown cursor %s: lists of coffer have one page", cursor))
		return
	}
	snap, ok := s.prefs.now()
	if ok {
		if result := s.warm(k, snap, r.modern); result != nil {
			r.Reply(result)
			return
		}
	}
	read := time.Now()
	s.work(r, func(ctx context.Context) { s.gather(ctx, r, k, read) })
}

// warm returns the result if every upstream's listing is fresh in the cache.
func (s *Session) warm(k upstream.Kind, snap *prefs.Snapshot, modern bool) []byte {
	left := s.opts.Config.CacheTTL
	r := s.roster()
	listings := make([]*upstream.Listing, r.size())
	for i := range r.all() {
		entry, fresh := s.lists.Peek(slot{i, k})
		if !fresh {
			return nil
		}
		listings[i] = entry.Value
		left = min(left, time.Until(entry.Expires))
	}
	result := s.catalog.render(k, listings, snap, modern)
	if modern {
		result = extend(result, hints(nil, left))
	}
	return result
}

// gather asks all upstreams at once and answers when all have answered, or
// have had their list_timeout since the request was read.
func (s *Session) gather(ctx context.Context, r *request, k upstream.Kind, read time.Time) {
	snap := s.prefs.later(ctx)
	servers := s.roster()
	listings, failures := s.fetchAll(ctx, servers, k, read)
	if ctx.Err() != nil {
		return // cancelled: no answer
	}
	result := s.catalog.render(k, listings, snap, r.modern)
	if r.modern {
		result = extend(result, hints(nil, s.remaining(k)))
	}
	missing := servers.unavailable(failures)
	switch {
	case missing == nil:
	case len(missing) == len(servers.order):
		s.fail(r, failures[servers.order[0]])
		return
	default:
		result = jsonrpc.Set(result, "_meta", fmt.Appendf(nil, `{"coffer/unavailable":%s}`, joinArray(missing)))
	}
	r.Reply(result)
}

// remaining returns how long the newest list stays good: the least of all
// upstreams, 0 if one is missing.
func (s *Session) remaining(k upstream.Kind) time.Duration {
	left := s.opts.Config.CacheTTL
	for i := range s.roster().all() {
		entry, fresh := s.lists.Peek(slot{i, k})
		if !fresh {
			return 0
		}
		left = min(left, time.Until(entry.Expires))
	}
	return left
}

// fetchAll returns each server's listing, or why there is none.
func (s *Session) fetchAll(ctx context.Context, servers *roster, k upstream.Kind, read time.Time) ([]*upstream.Listing, []error) {
	listings, failures := make([]*upstream.Listing, servers.size()), make([]error, servers.size())
	var all sync.WaitGroup
	for i, spec := range servers.all() {
		all.Go(func() {
			at := slot{i, k}
			limit := &upstream.Error{
				Upstream: spec.Name, Kind: upstream.ErrTimeout,
				Err: fmt.Errorf("no answer to %s within %s", k.Method(), spec.ListTimeout), Hint: "raise list_timeout of this server in the config",
			}
			ctx, cancel := context.WithDeadlineCause(ctx, read.Add(spec.ListTimeout), limit)
			defer cancel()
			listings[i], failures[i] = s.fetch(ctx, at)
			if errors.Is(failures[i], upstream.ErrTimeout) || errors.Is(failures[i], upstream.ErrUnavailable) {
				s.notices.unseen(at, failures[i])
			}
		})
	}
	all.Wait()
	return listings, failures
}

// unavailable returns the entries of _meta["coffer/unavailable"] (design §6).
func (r *roster) unavailable(failures []error) [][]byte {
	var entries [][]byte
	for i, spec := range r.all() {
		err := failures[i]
		if err == nil {
			continue
		}
		entry := jsonrpc.Set([]byte(`{}`), "upstream", jsonrpc.Quote(spec.Name))
		entry = jsonrpc.Set(entry, "code", jsonrpc.Quote(reasonOf(err)))
		entries = append(entries, jsonrpc.Set(entry, "message", jsonrpc.Quote(err.Error())))
	}
	return entries
}

func joinArray(entries [][]byte) []byte {
	out := []byte{'['}
	for i, e := range entries {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, ']')
}

// fetch returns a server's listing from the cache, or asks the server; a
// caller whose ctx ends leaves while the fetch goes on. A server that failed
// fails at once until it is tried again in the background.
func (s *Session) fetch(ctx context.Context, at slot) (*upstream.Listing, error) {
	if entry, fresh := s.lists.Peek(at); fresh {
		return entry.Value, nil
	}
	if err := s.notices.failure(at); err != nil {
		if errors.Is(err, upstream.ErrTimeout) || !s.lists.InFlight(at) {
			return nil, err
		}
	}
	return s.ask(ctx, at)
}

// ask is fetch without regard to earlier failures.
func (s *Session) ask(ctx context.Context, at slot) (*upstream.Listing, error) {
	entry, err := s.lists.Get(ctx, at, func(ctx context.Context) (*upstream.Listing, time.Duration, error) {
		l, err := s.retrieve(ctx, at)
		if err != nil {
			s.lost(at, err)
			return nil, 0, err
		}
		ttl := l.TTL
		l = s.catalog.learn(at, l)
		s.rec.add(at, l)
		s.notices.arrived(at, l)
		s.stream.Out.Flush()
		return l, ttl, nil
	})
	if err == nil && !entry.Settled {
		s.notices.unsettled(at, entry.Value)
	}
	return entry.Value, err
}

// lost takes note that a list could not be had.
func (s *Session) lost(at slot, err error) {
	if s.ctx.Err() != nil || s.roster().specs[at.server] == nil {
		return
	}
	s.catalog.lose(at)
	s.notices.failed(at, err)
	s.log.Warn().Err(err).Str("method", at.kind.Method()).Msg("list failed")
	s.stream.Out.Flush()
}

// retrieve asks a server for one list. A failure other than a timeout evicts
// the connection and is retried exactly once on a fresh one (design §1). The
// time that it may take is longer than any request waits: a late answer is
// still worth having.
func (s *Session) retrieve(ctx context.Context, at slot) (*upstream.Listing, error) {
	server, spec := s.server(at.server), s.server(at.server).Spec()
	limit := spec.ConnectTimeout + spec.ListTimeout
	late := &upstream.Error{Upstream: spec.Name, Kind: upstream.ErrTimeout, Err: fmt.Errorf("no answer to %s within %s", at.kind.Method(), limit)}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	for retried := false; ; retried = true {
		c, err := server.Connect(ctx)
		if err != nil {
			return nil, err
		}
		l, err := c.List(ctx, at.kind)
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, upstream.ErrTimeout) || ctx.Err() != nil:
			return nil, err
		}
		if retried {
			return nil, &upstream.Error{
				Upstream: spec.Name, Kind: upstream.ErrUnavailable,
				Err: fmt.Errorf("%s still fails on a fresh connection: %w", at.kind.Method(), err),
			}
		}
		server.Evict(c)
		s.log.Info().Err(err).Str("upstream", spec.Name).Str("method", at.kind.Method()).Msg("list failed, trying once more on a fresh connection")
	}
}

// refresh drops what the cache has of a server and asks again, because a
// person wants to know how things are now.
func (s *Session) refresh(server int, reconnect bool) {
	for _, k := range upstream.Kinds() {
		s.notices.cause(slot{server, k})
		s.lists.Evict(slot{server, k})
	}
	if c := s.server(server).Ready(); c != nil && reconnect {
		s.server(server).Evict(c)
	}
	for _, k := range upstream.Kinds() {
		s.notices.check(slot{server, k})
	}
}
