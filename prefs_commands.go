package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"coffer/prefs"
	"coffer/upstream"
)

// prefsCommands are the commands of `coffer prefs`.
func (p *program) prefsCommands() []*cli.Command {
	return []*cli.Command{
		{Name: "set", Usage: "switch a capability on or off for every client", ArgsUsage: "SERVER TYPE KEY on|off | -",
			Description: "TYPE is tool, resource, resource_template or prompt; KEY is the server's own name or URI.\n" +
				"With - it reads stdin, one JSON array or object a line, and changes all or nothing:\n" +
				`["fs","tool","read_file","off"]` + "\n" +
				`{"server":"fs","type":"tool","key":"read_file","enabled":false}`,
			Flags: []cli.Flag{
				boolFlag("glob", "KEY is a pattern over the known keys: * any text, ? one character, [a-z] one of a set"),
			}, Action: p.prefsSet},
		{Name: "list", Usage: "show the preferences", ArgsUsage: "[SERVER]", Flags: []cli.Flag{
			typeFlag(),
			boolFlag("on", "only what is on"),
			boolFlag("off", "only what is off"),
			boolFlag("chosen", "only what a person set"),
			jsonFlag(),
		}, Action: p.prefsList},
		{Name: "get", Usage: "print on or off", ArgsUsage: "SERVER TYPE KEY", Flags: []cli.Flag{jsonFlag()}, Action: p.prefsGet},
		{Name: "export", Usage: "print all preferences as JSON, for import",
			Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Hidden: true}}, Action: p.prefsExport}, // JSON either way
		{Name: "import", Usage: "take the preferences of an export", ArgsUsage: "FILE | -", Flags: []cli.Flag{
			boolFlag("replace", "delete every preference that FILE does not have"),
		}, Action: p.prefsImport},
		{Name: "prune", Usage: "delete preferences of what is not offered any more", ArgsUsage: "[SERVER]", Flags: []cli.Flag{
			&cli.StringFlag{Name: "unseen-for", Usage: "only what was not listed for `AGE`, like 90d, 12w or 36h; required without SERVER"},
			boolFlag("dry-run", "say what would be deleted, and delete nothing"),
			boolFlag("all", "what a person set, too"),
			jsonFlag(),
		}, Action: p.prefsPrune},
	}
}

// parseKey reads SERVER TYPE KEY.
func parseKey(args []string) (prefs.Key, error) {
	t, err := prefs.ParseType(args[1])
	if err != nil {
		return prefs.Key{}, usagef("", "%w", err)
	}
	if args[0] == "" || args[2] == "" {
		return prefs.Key{}, usagef("", "SERVER and KEY must not be empty")
	}
	return prefs.Key{Server: args[0], Type: t, Key: args[2]}, nil
}

// prefsList is `coffer prefs list`.
func (p *program) prefsList(c *cli.Context) error {
	args, err := positionals(c, 0, 1)
	if err != nil {
		return err
	}
	types, err := typesFlag(c)
	if err != nil {
		return err
	}
	if c.Bool("on") && c.Bool("off") {
		return usagef("", "--on and --off exclude each other")
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
	filter := prefs.Filter{Types: types}
	if len(args) == 1 {
		filter.Server = args[0]
	}
	rows, err := store.Rows(c.Context, filter)
	if err != nil {
		return err
	}
	if filter.Server != "" && len(rows) == 0 && len(types) == 0 { // then it may be a slip
		if _, err := findServer(config, filter.Server); err != nil {
			return err
		}
	}
	var kept []prefs.Row
	for _, r := range rows {
		if c.Bool("on") && !r.Enabled || c.Bool("off") && r.Enabled || c.Bool("chosen") && r.SetAt.IsZero() {
			continue
		}
		kept = append(kept, r)
	}
	n, err := p.naming(c.Context, config, store)
	if err != nil {
		return err
	}
	items := n.items(kept)
	if c.Bool("json") {
		return p.printJSON(map[string]any{"preferences": items})
	}
	p.printPreferences(config, items)
	return nil
}

func (p *program) printPreferences(config *upstream.Config, items []item) {
	if len(items) == 0 {
		p.say("No preferences.")
		return
	}
	rows := [][]string{{"STATE", "SERVER", "TYPE", "KEY", "NAME FOR CLIENTS", "LAST SEEN", "SET BY HAND"}}
	left := map[string]bool{}
	for _, it := range items {
		name, byHand := "(server not in the config)", ""
		if it.Name != nil {
			name = *it.Name
		} else {
			left[it.Server] = true
		}
		if !time.Time(it.SetAt).IsZero() {
			byHand = it.SetAt.short()
		}
		rows = append(rows, []string{onOff(it.Enabled), it.Server, string(it.Type), it.Key, name, it.LastSeenAt.short(), byHand})
	}
	p.table("", rows)
	for _, it := range items {
		if left[it.Server] {
			left[it.Server] = false
			p.say("%s is not in %s; its preferences wait in case it comes back. `coffer prefs prune %s --all` deletes them.",
				it.Server, config.Path, shellWord(it.Server))
		}
	}
}

// prefsGet is `coffer prefs get`.
func (p *program) prefsGet(c *cli.Context) error {
	args, err := positionals(c, 3, 3)
	if err != nil {
		return err
	}
	key, err := parseKey(args)
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
	row, known, err := store.Get(c.Context, key)
	if err != nil {
		return err
	}
	if !known {
		spec, err := findServer(config, key.Server)
		if err != nil {
			return err
		}
		return failf(exitNotFound, fmt.Sprintf("while there is none, it is %s (auto_enable_new_capabilities); `coffer prefs list %s` shows those there are",
			onOff(spec.AutoEnable), shellWord(key.Server)), "no preference for %s %q of %s", nounOf(key.Type), key.Key, key.Server)
	}
	if c.Bool("json") {
		n, err := p.naming(c.Context, config, store)
		if err != nil {
			return err
		}
		return p.printJSON(n.item(row))
	}
	p.say("%s", onOff(row.Enabled))
	return nil
}

// pruned is `coffer prefs prune --json`.
type pruned struct {
	DryRun  bool   `json:"dry_run"`
	Deleted []item `json:"deleted"`
}

// prefsPrune is `coffer prefs prune`.
func (p *program) prefsPrune(c *cli.Context) error {
	args, err := positionals(c, 0, 1)
	if err != nil {
		return err
	}
	opt := prefs.PruneOptions{All: c.Bool("all"), DryRun: c.Bool("dry-run")}
	if len(args) == 1 {
		opt.Server = args[0]
	}
	age := ""
	switch text := c.String("unseen-for"); {
	case c.IsSet("unseen-for"):
		d, err := parseAge(text)
		if err != nil {
			return err
		}
		opt.UnseenBefore = time.Now().Add(-d)
		age = " not listed for " + text
	case opt.Server == "":
		return usagef("write coffer prefs prune --unseen-for 90d", "prune needs --unseen-for, or a server")
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
	if opt.Server != "" && specOf(config, opt.Server) == nil {
		rows, err := store.Rows(c.Context, prefs.Filter{Server: opt.Server})
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			_, err := findServer(config, opt.Server)
			return err
		}
	}
	n, err := p.naming(c.Context, config, store) // while the rows are there
	if err != nil {
		return err
	}
	rows, err := store.Prune(c.Context, opt)
	if err != nil {
		return err
	}
	items := n.items(rows)
	if c.Bool("json") {
		return p.printJSON(pruned{DryRun: opt.DryRun, Deleted: items})
	}
	return p.printPruned(c, store, opt, items, age)
}

// printPruned says what was deleted, or would be, and what was kept only
// because a person chose it.
func (p *program) printPruned(c *cli.Context, store *prefs.Store, opt prefs.PruneOptions, items []item, age string) error {
	what := "preferences"
	if opt.Server != "" {
		what = "preferences of " + opt.Server
	}
	switch n := len(items); {
	case n == 0:
		p.say("Nothing to delete: no %s%s.", what, age)
	case opt.DryRun:
		p.say("Would delete %d %s%s; nothing was changed:", n, what, age)
	default:
		p.say("Deleted %d %s%s:", n, what, age)
	}
	for _, it := range items {
		p.say("  %s %s %s (%s, last seen %s)", it.Server, it.Type, it.Key, onOff(it.Enabled), it.LastSeenAt.short())
	}
	if opt.All {
		return nil
	}
	n := -len(items)
	if !opt.DryRun {
		n = 0 // they are not among the rest any more
	}
	opt.All, opt.DryRun = true, true
	rest, err := store.Prune(c.Context, opt)
	if n += len(rest); err == nil && n > 0 {
		p.say("Kept %d more that a person set, or that were never listed; --all takes these too.", n)
	}
	return err
}

// parseAge reads a duration that may be in days or weeks.
func parseAge(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	d, err := time.ParseDuration(text)
	for unit, length := range map[string]time.Duration{"d": day, "w": 7 * day} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			var n int64
			n, err = strconv.ParseInt(number, 10, 64)
			if err == nil && n > int64(1<<63-1)/int64(length) {
				err = strconv.ErrRange
			}
			d = time.Duration(n) * length
		}
	}
	if err != nil || d <= 0 {
		return 0, usagef("write it like 90d, 12w or 36h", "--unseen-for: %q is not an age", text)
	}
	return d, nil
}
