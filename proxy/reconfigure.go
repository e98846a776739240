package proxy

import "coffer/upstream"

// roster returns the servers of the moment.
func (s *Session) roster() *roster { return s.servers.Load() }

// server returns the server with that index, whether or not it has left.
func (s *Session) server(index int) *upstream.Server { return s.roster().servers[index] }

// enlist enters the servers of the first roster into the Set.
func (s *Session) enlist() {
	first := *s.roster()
	for _, spec := range first.specs {
		first.servers = append(first.servers, s.set.Add(spec))
	}
	s.catalog.follow(&first, func() { s.servers.Store(&first) })
}

// reconfigure has the session follow an edit of the config file: servers that are
// not in it any more are stopped once what is open on them has ended, new ones are
// started, one whose entry has changed is started anew, and the rest notices
// nothing. The client is told where its lists have changed. What stands beside the
// servers (cache_ttl, max_name_length and so on) holds for a session from its
// start. Only one goroutine calls reconfigure.
func (s *Session) reconfigure(config *upstream.Config) {
	now := s.roster()
	next, come, gone := now.follow(config)
	lost := s.lostKinds(now, next, gone)
	for _, i := range come {
		next.servers = append(next.servers, s.set.Add(next.specs[i]))
		s.notices.expect(i, now.index(next.specs[i].Name))
	}
	s.catalog.follow(next, func() { s.servers.Store(next) })
	for _, i := range come {
		s.log.Info().Str("upstream", next.specs[i].Name).Msg("the config has this server anew")
	}
	for _, i := range gone {
		s.notices.forget(i)
		for _, k := range upstream.Kinds() {
			s.lists.Evict(slot{i, k}) // nobody asks for it any more
		}
		s.set.Remove(next.servers[i])
		s.log.Info().Str("upstream", now.specs[i].Name).Msg("the config has this server no more")
	}
	for _, k := range lost {
		s.notices.send(k)
	}
	if !s.set.Started() {
		return // lists are asked when there is a client
	}
	for _, i := range come {
		for _, k := range upstream.Kinds() {
			s.notices.check(slot{i, k})
		}
	}
}

// lostKinds returns a kind of each method of list_changed of which a client saw
// something that is gone for good. A server that comes again is not: its lists are
// compared with what they were when they arrive.
func (s *Session) lostKinds(now, next *roster, gone []int) []upstream.Kind {
	var kinds []upstream.Kind
	told := map[string]bool{}
	for _, k := range upstream.Kinds() {
		for _, i := range gone {
			at := slot{i, k}
			if told[changedMethods[k]] || next.index(now.specs[i].Name) >= 0 || s.notices.failure(at) != nil {
				continue
			}
			if !s.notices.alike(at, s.catalog.newest(at), nil) {
				told[changedMethods[k]] = true
				kinds = append(kinds, k)
			}
		}
	}
	return kinds
}
