package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"coffer/prefs"
	"coffer/upstream"
)

// offered is `coffer mcp capabilities --json`.
type offered struct {
	Server string `json:"server"`
	// Live says that every list that was asked for came from the server just now.
	Live         bool         `json:"live"`
	Error        *string      `json:"error"`
	Hint         *string      `json:"hint"`
	Lists        []listResult `json:"lists"`
	Capabilities []item       `json:"capabilities"`

	why string // there are lists that are not live, for a person
}

// listResult is how one list went.
type listResult struct {
	Type  prefs.Type `json:"type"`
	Live  bool       `json:"live"`
	Error *string    `json:"error"`
}

// mcpCapabilities is `coffer mcp capabilities`.
func (p *program) mcpCapabilities(c *cli.Context) error {
	_, config, spec, log, err := p.oneServer(c, 1, 1)
	if err != nil {
		return err
	}
	types, err := typesFlag(c)
	if err != nil {
		return err
	}
	store, err := p.store(c)
	if err != nil {
		return err
	}
	defer store.Close()
	seen, _, failed := p.lookAt(c.Context, config, spec, store, kindsOf(types), log) // what is new is in the rows now
	rows, err := store.Rows(c.Context, prefs.Filter{Server: spec.Name, Types: types})
	if err != nil {
		return err
	}
	n, err := p.naming(c.Context, config, store)
	if err != nil {
		return err
	}
	view := viewOf(n, spec, seen, rows)
	view.Live = failed == nil
	view.Error, view.Hint = optional(textOf(failed)), optional(hintOf(failed))
	if c.Bool("json") {
		return together(p.printJSON(view), failed)
	}
	p.printOffered(view)
	return failed
}

// lookAt connects to spec, lists kinds and records what was listed. What it
// returns has an entry for each kind, even if there was no connection.
func (p *program) lookAt(ctx context.Context, config *upstream.Config, spec *upstream.Spec, store *prefs.Store, kinds []upstream.Kind, log zerolog.Logger) (*look, prefs.Diff, error) {
	r, err := reach(ctx, config, spec, log)
	if err != nil {
		l := &look{kinds: kinds, failed: map[upstream.Kind]error{}}
		for _, k := range kinds {
			l.failed[k] = err
		}
		return l, prefs.Diff{}, err
	}
	defer r.close(ctx)
	l := r.list(ctx, kinds)
	diff, err := l.record(ctx, store, spec)
	if err != nil {
		p.warn("what %s listed could not be recorded: %v", spec.Name, err)
	}
	return l, diff, l.err()
}

// viewOf lays what was listed and what is stored together: for a list that
// came, its items in the server's order; for one that did not, what is known.
func viewOf(n *naming, spec *upstream.Spec, seen *look, rows []prefs.Row) offered {
	view := offered{Server: spec.Name, Capabilities: []item{}, why: "could not be loaded"}
	if spec.Disabled {
		view.why = "not asked, since the server is disabled"
	}
	stored := make(map[prefs.Key]prefs.Row, len(rows))
	for _, r := range rows {
		stored[r.Key] = r
	}
	for _, k := range seen.kinds {
		t := typeOf[k]
		view.Lists = append(view.Lists, listResult{Type: t, Live: seen.failed[k] == nil, Error: optional(textOf(seen.failed[k]))})
		if listing := seen.listings[k]; listing != nil {
			for _, it := range listing.Items {
				key := prefs.Key{Server: spec.Name, Type: t, Key: it.Key}
				row, known := stored[key]
				if !known { // it could not be recorded
					row = prefs.Row{Key: key, Enabled: spec.AutoEnable}
				}
				live := n.item(row)
				live.Live = true
				view.Capabilities = append(view.Capabilities, live)
			}
			continue
		}
		for _, r := range rows {
			if r.Type == t {
				view.Capabilities = append(view.Capabilities, n.item(r))
			}
		}
	}
	return view
}

func (p *program) printOffered(view offered) {
	for i, list := range view.Lists {
		if i > 0 {
			p.say("")
		}
		items := ofType(view.Capabilities, list.Type)
		head := capitalised(nounOf(list.Type)) + "s"
		switch {
		case !list.Live && len(items) == 0:
			p.say("%s: %s; nothing is known from before", head, view.why)
			continue
		case !list.Live:
			p.say("%s: %s; NOT LIVE, from the preferences:", head, view.why)
		case len(items) == 0:
			p.say("%s: none", head)
			continue
		default:
			p.say("%s:", head)
		}
		rows := [][]string{{"STATE", "NAME FOR CLIENTS", "SERVER'S OWN NAME", "FIRST SEEN", "LAST SEEN"}}
		for _, it := range items {
			rows = append(rows, []string{onOff(it.Enabled), *it.Name, it.Key, it.FirstSeenAt.short(), it.LastSeenAt.short()})
		}
		p.table("  ", rows)
	}
}

func ofType(items []item, t prefs.Type) []item {
	var of []item
	for _, it := range items {
		if it.Type == t {
			of = append(of, it)
		}
	}
	return of
}

func capitalised(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// refreshed is one server in `coffer mcp refresh --json`.
type refreshed struct {
	Server string             `json:"server"`
	Live   bool               `json:"live"`
	Error  *string            `json:"error"`
	Counts map[prefs.Type]int `json:"listed"` // of the lists that came
	New    []item             `json:"new"`
	Gone   []item             `json:"gone"`

	err error
}

// mcpRefresh is `coffer mcp refresh`.
func (p *program) mcpRefresh(c *cli.Context) error {
	names, err := positionals(c, 0, -1)
	if err != nil {
		return err
	}
	if c.Bool("all") == (len(names) > 0) {
		return usagef("write coffer mcp refresh NAME... or coffer mcp refresh --all", "refresh needs names of servers, or --all, and not both")
	}
	log, err := p.logger(c, zerolog.Disabled)
	if err != nil {
		return err
	}
	config, err := p.config(c)
	if err != nil {
		return err
	}
	specs, err := p.specsNamed(config, names)
	if err != nil {
		return err
	}
	store, err := p.store(c)
	if err != nil {
		return err
	}
	defer store.Close()
	results, err := p.refreshAll(c.Context, config, specs, store, log)
	if c.Context.Err() != nil {
		return context.Cause(c.Context)
	}
	if err != nil {
		return err
	}
	var bumped []string
	for _, spec := range specs {
		bumped = append(bumped, spec.Name)
	}
	// Even for a server that we could not reach: a running coffer may.
	if err := store.BumpRefresh(c.Context, bumped, c.Bool("reconnect")); err != nil {
		return err
	}
	var failed []error
	for _, r := range results {
		failed = append(failed, r.err)
	}
	if c.Bool("json") {
		return together(append(failed, p.printJSON(map[string]any{"servers": results}))...)
	}
	if len(results) == 0 {
		p.say("No server in %s is enabled: nothing to refresh.", config.Path)
	}
	for _, r := range results {
		p.printRefreshed(r)
	}
	return together(failed...)
}

// specsNamed returns the servers with these names, each once; without names,
// all that are not disabled.
func (p *program) specsNamed(config *upstream.Config, names []string) ([]*upstream.Spec, error) {
	var specs []*upstream.Spec
	if len(names) == 0 {
		for i := range config.Servers {
			if !config.Servers[i].Disabled {
				specs = append(specs, &config.Servers[i])
			}
		}
	}
	for _, name := range names {
		spec, err := findServer(config, name)
		if err != nil {
			return nil, err
		}
		if spec.Disabled {
			return nil, failf(exitError, "set disabled to false for this server in "+config.Path, "server %q is disabled in the config", name)
		}
		if !slices.Contains(specs, spec) {
			specs = append(specs, spec)
		}
	}
	return specs, nil
}

// refreshAll asks all servers for all lists, at once.
func (p *program) refreshAll(ctx context.Context, config *upstream.Config, specs []*upstream.Spec, store *prefs.Store, log zerolog.Logger) ([]refreshed, error) {
	results := make([]refreshed, len(specs))
	diffs := make([]prefs.Diff, len(specs))
	var wg sync.WaitGroup
	for i, spec := range specs {
		wg.Go(func() {
			l, diff, err := p.lookAt(ctx, config, spec, store, upstream.Kinds(), log)
			r := refreshed{Server: spec.Name, Live: err == nil, Error: optional(textOf(err)), Counts: map[prefs.Type]int{}, New: []item{}, err: err}
			for k, listing := range l.listings {
				r.Counts[typeOf[k]] = len(listing.Items)
			}
			results[i], diffs[i] = r, diff
		})
	}
	wg.Wait()
	n, err := p.naming(ctx, config, store)
	if err != nil {
		return nil, err
	}
	for i, diff := range diffs {
		for _, key := range diff.New {
			row, known, err := store.Get(ctx, key)
			if err != nil {
				return nil, err
			}
			if known { // else it was pruned this very moment
				it := n.item(row)
				it.Live = true
				results[i].New = append(results[i].New, it)
			}
		}
		results[i].Gone = n.items(diff.Gone)
	}
	return results, nil
}

func (p *program) printRefreshed(r refreshed) {
	if len(r.Counts) == 0 {
		p.say("%s: could not be loaded.", r.Server)
		return
	}
	var counts, missing []string
	for _, k := range upstream.Kinds() {
		noun := nounOf(typeOf[k])
		if n, known := r.Counts[typeOf[k]]; known {
			counts = append(counts, count(n, noun))
		} else {
			missing = append(missing, noun+"s")
		}
	}
	p.say("%s: %s.", r.Server, strings.Join(counts, ", "))
	if len(missing) > 0 {
		p.say("  Could not be loaded: %s.", strings.Join(missing, ", "))
	}
	p.printChange("New", r.New, func(it item) string { return onOff(it.Enabled) })
	p.printChange("No longer offered", r.Gone, func(it item) string {
		return fmt.Sprintf("%s, last seen %s", onOff(it.Enabled), it.LastSeenAt.short())
	})
}

// printChange prints one line for each item, or that there is none.
func (p *program) printChange(head string, items []item, more func(item) string) {
	if len(items) == 0 {
		p.say("  %s: none.", head)
		return
	}
	p.say("  %s:", head)
	for _, it := range items {
		p.say("    %s %s (%s)", nounOf(it.Type), it.Key, more(it))
	}
}
