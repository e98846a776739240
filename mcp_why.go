package main

import (
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"coffer/prefs"
	"coffer/proxy"
	"coffer/upstream"
)

// explained is one capability in `coffer mcp why --json`. Enabled is what
// clients meet: false, too, where the server as a whole is disabled.
type explained struct {
	item
	// By is who decided on enabled: a person, the server's policy
	// (auto_enable_new_capabilities), or the config, where the server is disabled.
	By    string `json:"by"`
	Since moment `json:"since"` // of the decision; null: since the config says so, or nobody knows
	// Shortened says that the name is not simply the prefix and the server's own.
	Shortened bool `json:"shortened"`
}

// What decides whether a capability is on.
const (
	byPerson = "person"
	byPolicy = "policy"
	byConfig = "config"
)

// mcpWhy is `coffer mcp why`.
func (p *program) mcpWhy(c *cli.Context) error {
	args, err := positionals(c, 1, 1)
	if err != nil {
		return err
	}
	config, err := p.config(c)
	if err != nil {
		return err
	}
	store, err := p.store(c)
	if err != nil {
		return err
	}
	defer store.Close()
	rows, err := store.Rows(c.Context, prefs.Filter{})
	if err != nil {
		return err
	}
	n, err := p.naming(c.Context, config, store)
	if err != nil {
		return err
	}
	name := args[0]
	found := n.explain(rows, name)
	if own, ok := withoutClientPrefix(name); ok && len(found) == 0 {
		found = n.explain(rows, own)
	}
	if len(found) == 0 {
		return n.unexplained(rows, name)
	}
	if c.Bool("json") {
		return p.printJSON(map[string]any{"name": name, "capabilities": found})
	}
	for i, e := range found {
		if i > 0 {
			p.say("")
		}
		p.printExplained(n, e)
	}
	return nil
}

// withoutClientPrefix returns the name that coffer gave to what Claude Code
// calls mcp__<coffer's key>__<name>.
func withoutClientPrefix(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "mcp__")
	if !ok {
		return "", false
	}
	_, own, ok := strings.Cut(rest, "__")
	return own, ok
}

// explain returns what is known under a name: a tool and a prompt may share
// one.
func (n *naming) explain(rows []prefs.Row, name string) []explained {
	var found []explained
	for _, r := range rows {
		spec := specOf(n.config, r.Server)
		if spec == nil {
			continue
		}
		e := explained{item: n.item(r), By: byPolicy, Since: moment(r.FirstSeen)}
		uri := r.Type == prefs.Resource || r.Type == prefs.ResourceTemplate
		if *e.Name != name && !(uri && proxy.Address(r.Server, r.Key.Key) == name) {
			continue
		}
		e.Shortened = renamed(spec, r.Key, *e.Name)
		if !r.SetAt.IsZero() {
			e.By, e.Since = byPerson, moment(r.SetAt)
		}
		if spec.Disabled {
			e.Enabled, e.By, e.Since = false, byConfig, moment{}
		}
		found = append(found, e)
	}
	return found
}

// renamed reports whether name is anything but the server's own behind its
// prefix.
func renamed(spec *upstream.Spec, k prefs.Key, name string) bool {
	if k.Type == prefs.Resource || k.Type == prefs.ResourceTemplate {
		return name != k.Key
	}
	return name != proxy.PlainName(spec, k.Key)
}

// unexplained says that a name is not known, and what may be meant.
func (n *naming) unexplained(rows []prefs.Row, name string) error {
	var meant []string
	for _, r := range rows {
		if shown := n.of(r.Key); shown != nil && r.Key.Key == name {
			meant = append(meant, *shown)
		}
	}
	hint := "`coffer mcp refresh --all` asks the servers what they have now"
	if len(meant) > 0 {
		hint = "clients see " + strings.Join(meant, ", ")
	}
	return failf(exitNotFound, hint, "nothing that clients see is known as %q", name)
}

func (p *program) printExplained(n *naming, e explained) {
	p.say("%s is the %s %s of %s.", *e.Name, nounOf(e.Type), e.Key, e.Server)
	switch {
	case !e.Shortened:
	case e.Type == prefs.Resource || e.Type == prefs.ResourceTemplate:
		p.say("The URI is not %s's own, because a server before it in the config has the same.", e.Server)
	default:
		p.say("The name is not %s's own behind the prefix, because that is too long, has characters that some clients refuse, or is taken.", e.Server)
	}
	since := ""
	if !time.Time(e.Since).IsZero() {
		since = " since " + e.Since.short()
	}
	spec := specOf(n.config, e.Server)
	switch e.By {
	case byConfig:
		p.say("It is off: the server is disabled in %s.", n.config.Path)
		p.say("To switch it on, set disabled to false for %s there.", e.Server)
		return
	case byPerson:
		p.say("It is %s%s: a person set it.", onOff(e.Enabled), since)
	default:
		p.say("It is %s%s: nobody set it, so the policy for what is new decided (auto_enable_new_capabilities, now %t for %s).",
			onOff(e.Enabled), since, spec.AutoEnable, e.Server)
	}
	if time.Time(e.LastSeenAt).IsZero() {
		p.say("The server has not listed it yet.")
	} else {
		p.say("The server listed it first at %s and last at %s.", e.FirstSeenAt.short(), e.LastSeenAt.short())
	}
	p.say("To switch it %s: %s", onOff(!e.Enabled), setCommand(prefs.Key{Server: e.Server, Type: e.Type, Key: e.Key}, !e.Enabled))
}
