package proxy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"coffer/jsonrpc"
	"coffer/prefs"
	"coffer/upstream"
)

// call routes tools/call and prompts/get to the upstream whose item it is.
func (s *Session) call(r *request, k upstream.Kind) {
	token, n := jsonrpc.Member(r.Params, "name")
	name, ok := jsonrpc.Text(token)
	if n != 1 || !ok {
		s.fail(r, invalidParams("%s needs one name", r.Method))
		return
	}
	if r.modern && s.parked.resume(r, name, func(x *exchange) error {
		own, _ := jsonrpc.TextAt(x.params, "name")
		snap, _ := s.prefs.now()
		return s.gate(x.server, prefTypes[k], own, snap)
	}) {
		return
	}
	snap, checked := s.prefs.now()
	t, listed, found := s.catalog.route(k, name)
	if checked && (listed || found && !hasTail(name)) {
		if c := s.callTarget(r, k, t, token, snap); c != nil {
			s.soil(c)
		}
		return
	}
	// Either the preferences are still being opened, or the name is in no list
	// that we have seen: it may be in one that we have not.
	s.work(r, func(ctx context.Context) {
		snap := s.prefs.later(ctx)
		if !listed {
			s.learnAll(ctx, k)
		}
		t, _, found := s.catalog.route(k, name)
		if !found {
			s.fail(r, s.unknownName(k, name))
			return
		}
		if c := s.callTarget(r, k, t, token, snap); c != nil {
			c.Flush()
		}
	})
}

// nouns are for messages to people.
var nouns = map[upstream.Kind]string{
	upstream.Tools: "tool", upstream.Resources: "resource", upstream.Templates: "resource template", upstream.Prompts: "prompt",
}

// unknownName says that no upstream has a tool or prompt of that name, or that
// the server which would have it is switched off in the config.
func (s *Session) unknownName(k upstream.Kind, name string) error {
	off := s.roster().off
	if t, ok := guess(slices.All(off), name); ok && prefixOf(off[t.server]) != "" {
		return serverDisabled(off[t.server].Name)
	}
	// A server without a prefix whose list could not be had may hold it.
	for i, spec := range s.roster().all() {
		if err := s.notices.failure(slot{i, k}); err != nil && prefixOf(spec) == "" {
			return err
		}
	}
	return invalidParams("Unknown %s: %s", nouns[k], name)
}

func serverDisabled(server string) error {
	return disabled(server, fmt.Sprintf("server %q", server), "set disabled to false for this server in the config")
}

// learnAll asks every server for its list of that kind that has not been asked
// in this session, and waits as long as a list would.
func (s *Session) learnAll(ctx context.Context, kinds ...upstream.Kind) {
	now := time.Now()
	for _, k := range kinds {
		if len(s.catalog.unknown(k)) > 0 {
			s.fetchAll(ctx, s.roster(), k, now)
		}
	}
}

// callTarget asks the gate and forwards r to t, whose name stands in r.Params
// as token. It returns the connection to flush, if there is one.
func (s *Session) callTarget(r *request, k upstream.Kind, t target, token []byte, snap *prefs.Snapshot) *upstream.Conn {
	if err := s.gate(t.server, prefTypes[k], t.key, snap); err != nil {
		s.fail(r, err)
		return nil
	}
	params := r.Params
	if name, _ := jsonrpc.Text(token); name != t.key {
		params = jsonrpc.Splice(params, jsonrpc.Edit{Old: token, New: jsonrpc.Quote(t.key)})
	}
	return s.forward(r, t.server, params, s.rewriter(t.server, ""))
}

// gate refuses what a person has switched off, and what is off by policy.
func (s *Session) gate(server int, t prefs.Type, key string, snap *prefs.Snapshot) error {
	spec := s.server(server).Spec()
	if enabled(snap, spec, t, key) {
		return nil
	}
	return disabled(spec.Name, fmt.Sprintf("%s %q of %q", t, key, spec.Name),
		fmt.Sprintf("switch it on with: coffer prefs set %s %s %s on", shellWord(spec.Name), t, shellWord(key)))
}

// shellWord quotes text for a command line that a person may paste.
func shellWord(text string) string {
	if text != "" && allShellPlain(text) {
		return text
	}
	quoted := []byte{'\''}
	for i := range len(text) {
		if text[i] == '\'' {
			quoted = append(quoted, `'\''`...)
		} else {
			quoted = append(quoted, text[i])
		}
	}
	return string(append(quoted, '\''))
}

func allShellPlain(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case plain(c), c == '.', c == '/', c == ':', c == '@', c == '%', c == '+', c == ',':
		default:
			return false
		}
	}
	return true
}

// complete routes completion/complete by what it refers to: a prompt's name,
// or a resource template, or else a URI.
func (s *Session) complete(r *request) {
	ref := jsonrpc.Lookup(r.Params, "ref")
	switch kind, _ := jsonrpc.TextAt(ref, "type"); kind {
	case "ref/prompt":
		s.completeRef(r, ref, "name", func(ctx context.Context, name string) (target, error) {
			t, listed, found := s.catalog.route(upstream.Prompts, name)
			if !listed && (!found || hasTail(name)) {
				s.learnAll(ctx, upstream.Prompts)
				t, _, found = s.catalog.route(upstream.Prompts, name)
			}
			if !found {
				return t, s.unknownName(upstream.Prompts, name)
			}
			return t, s.gate(t.server, prefs.Prompt, t.key, s.prefs.later(ctx))
		})
	case "ref/resource":
		s.completeRef(r, ref, "uri", func(ctx context.Context, uri string) (target, error) {
			o, err := s.locate(ctx, uri)
			if err != nil {
				return target{}, err
			}
			return target{o.server, o.uri}, s.gateURI(o, s.prefs.later(ctx))
		})
	default:
		s.fail(r, invalidParams("completion/complete needs a ref of type ref/prompt or ref/resource"))
	}
}

// completeRef forwards a completion whose reference stands in ref's member key.
func (s *Session) completeRef(r *request, ref []byte, key string, find func(ctx context.Context, name string) (target, error)) {
	token, n := jsonrpc.Member(ref, key)
	name, ok := jsonrpc.Text(token)
	if n != 1 || !ok {
		s.fail(r, invalidParams("completion/complete needs one %s in its ref", key))
		return
	}
	s.work(r, func(ctx context.Context) {
		t, err := find(ctx, name)
		if err != nil {
			s.fail(r, err)
			return
		}
		params := jsonrpc.Splice(r.Params, jsonrpc.Edit{Old: token, New: jsonrpc.Quote(t.key)})
		if c := s.forward(r, t.server, params, nil); c != nil {
			c.Flush()
		}
	})
}
