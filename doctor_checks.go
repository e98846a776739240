package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"coffer/prefs"
	"coffer/proxy"
	"coffer/upstream"
)

// checkConfig reads the config; nil if it cannot be used.
func (d *diagnosis) checkConfig(p *program, c *cli.Context) (*upstream.Config, error) {
	path, explicit, err := p.configPath(c)
	if err != nil {
		return nil, err
	}
	d.Config.Path = path
	config, err := upstream.ReadConfig(path, explicit, os.LookupEnv)
	if err != nil {
		_, missing := os.Stat(path)
		d.Config.Exists = !errors.Is(missing, fs.ErrNotExist)
		d.find(problem, "config", cmp.Or(hintOf(err), "correct the file; `coffer mcp list` reads it again"), "%v", err)
		return nil, nil
	}
	d.Config = diagnosedFile{Path: path, Exists: !config.Missing, Valid: !config.Missing, Count: len(config.Servers)}
	switch {
	case config.Missing:
		d.find(problem, "config", missingConfigHint, "there is no config file %s, so there are no servers", path)
	case len(config.Servers) == 0:
		d.find(problem, "config", "write servers into "+path, "the config has no servers")
	}
	for _, w := range config.Warnings {
		d.find(warning, "config", "correct or remove it", "%s", w)
		if w.Server != "" {
			d.Findings[len(d.Findings)-1].Server = &w.Server
		}
	}
	return config, nil
}

// checkDatabase reads the preferences, which it does not make.
func (d *diagnosis) checkDatabase(p *program, c *cli.Context) ([]prefs.Row, error) {
	path, err := p.databasePath(c)
	if err != nil {
		return nil, err
	}
	d.Database.Path = path
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the first coffer makes it
	}
	d.Database.Exists = true
	rows, err := readSound(p, c)
	if err != nil {
		d.find(problem, "database", cmp.Or(hintOf(err), "name another file with --db"), "%v", err)
		return nil, nil
	}
	d.Database.Valid, d.Database.Count = true, len(rows)
	return rows, nil
}

// readSound reads all preferences and checks that the file is sound.
func readSound(p *program, c *cli.Context) ([]prefs.Row, error) {
	store, err := p.store(c)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if err := store.Check(c.Context); err != nil {
		return nil, err
	}
	return store.Rows(c.Context, prefs.Filter{})
}

// checkServers starts all enabled servers, at once.
func (d *diagnosis) checkServers(c *cli.Context, config *upstream.Config, log zerolog.Logger) {
	d.Servers = make([]examined, len(config.Servers))
	var all sync.WaitGroup
	for i := range config.Servers {
		all.Go(func() { d.Servers[i] = examine(c, config, &config.Servers[i], log) })
	}
	all.Wait()
	for _, e := range d.Servers {
		d.Findings = append(d.Findings, e.findings...)
	}
}

// examine tries one server.
func examine(c *cli.Context, config *upstream.Config, spec *upstream.Spec, log zerolog.Logger) examined {
	e := examined{Enabled: !spec.Disabled, tested: tested{Server: spec.Name, Transport: spec.Transport.String(), Offers: []string{}}}
	if spec.Disabled {
		return e
	}
	if spec.Err == nil && spec.Transport == upstream.TransportStdio {
		if path, how, err := spec.Locate(c.Context, os.Environ()); err == nil { // else connecting says so
			e.Command, e.FoundOn = &path, &how
		}
	}
	var r *reached
	var err error
	e.tested, r, err = try(c, config, spec, log)
	if r != nil {
		defer r.close(c.Context)
	}
	if err == nil {
		e.look = r.list(c.Context, upstream.Kinds())
		e.Listed = map[prefs.Type]int{}
		for k, listing := range e.look.listings {
			e.Listed[typeOf[k]] = len(listing.Items)
		}
		err = e.look.err()
	}
	if err != nil {
		e.findings = append(e.findings, finding{Level: problem, About: "server", Server: &e.Server, Message: err.Error(),
			Fix: cmp.Or(hintOf(err), fmt.Sprintf("check its entry in %s; `coffer mcp test %s` tries it alone", config.Path, shellWord(spec.Name)))})
	}
	return e
}

// checkCoffers asks the coffers that run.
func (d *diagnosis) checkCoffers(p *program, c *cli.Context) {
	d.Coffers = p.askRunning(c)
	for _, r := range d.Coffers {
		switch {
		case r.Error != nil:
			d.find(warning, "coffers", fmt.Sprintf("if its client does not answer either, end the process: kill %d", r.PID),
				"the coffer with pid %d does not tell what it is doing: %s", r.PID, *r.Error)
		case r.Version != versionText():
			d.find(warning, "coffers", "restart its client",
				"the coffer of %s (pid %d) is version %s, and this is %s", r.clientText(), r.PID, r.Version, versionText())
		}
	}
}

// nameLimit is from which length on clients refuse a tool's name, their own
// prefix included. Cursor leaves out tools whose name and server's name have
// more than 60 characters together; the APIs of models take 64, and a longer one
// spoils every request of Claude Code (anthropics/claude-code#19882).
const nameLimit = 60

// clientPrefix is the longest that a client is known to put before a tool's
// name: Claude Code's, where coffer's entry is called coffer.
const clientPrefix = "mcp__coffer__"

// toolLimits are how many tools clients take (looked up in December 2026).
var toolLimits = []struct {
	most   int
	client string
}{
	// 40 until 2.3; since 2.4 (January 2026) tools are loaded when they are
	// needed, and cursor.com/docs/mcp names no limit.
	{40, "Cursor before 2.4 takes 40"},
	// "Cascade has a limit of 100 total tools": docs.devin.ai/desktop/cascade/mcp,
	// where docs.windsurf.com/windsurf/cascade/mcp leads.
	{100, "Windsurf takes 100"},
	// "A chat request can have a maximum of 128 tools enabled at a time", save
	// with models that search tools: code.visualstudio.com/docs/copilot/agents/agent-tools.
	{128, "VS Code takes 128 in a request"},
}

// checkTools counts what clients see and looks at its names.
func (d *diagnosis) checkTools(config *upstream.Config, rows []prefs.Row) {
	enabled := make(map[prefs.Key]bool, len(rows))
	for _, r := range rows {
		enabled[r.Key] = r.Enabled
	}
	offered := d.offered(rows)
	names := proxy.NewNames(config, offered)
	var long, most []string
	for i := range config.Servers {
		spec := &config.Servers[i]
		if spec.Disabled {
			continue
		}
		var short []string
		on := 0
		for _, k := range []upstream.Kind{upstream.Tools, upstream.Prompts} {
			for _, own := range offered(spec.Name, k) {
				key := prefs.Key{Server: spec.Name, Type: typeOf[k], Key: own}
				if set, known := enabled[key]; known && !set || !known && !spec.AutoEnable {
					d.Tools.Off += one(k == upstream.Tools)
					continue
				}
				on += one(k == upstream.Tools)
				name := names.Of(spec, k, own)
				if renamed(spec, key, name) {
					short = append(short, own+" is "+name)
				}
				if k == upstream.Tools && len(clientPrefix)+len(name) > nameLimit {
					long = append(long, name)
				}
			}
		}
		if len(short) > 0 {
			d.find(note, "names", fmt.Sprintf("a shorter prefix for %s in %s keeps names that are only too long; the others work as they are", spec.Name, config.Path),
				"%s of %s cannot be shown as they are: %s", count(len(short), "name"), spec.Name, someOf(short))
			d.Findings[len(d.Findings)-1].Server = &spec.Name
		}
		d.Tools.On += on
		most = append(most, fmt.Sprintf("%s %d", spec.Name, on))
	}
	if len(long) > 0 {
		d.find(warning, "names", fmt.Sprintf(`set "max_name_length": %d in %s, or a shorter prefix for the server`, nameLimit-len(clientPrefix), config.Path),
			"%s longer than %d characters with %s before it, which some clients refuse: %s", count(len(long), "name"), nameLimit, clientPrefix, someOf(long))
	}
	var over []string
	for _, l := range toolLimits {
		if d.Tools.On > l.most {
			over = append(over, l.client)
		}
	}
	if len(over) > 0 {
		d.find(warning, "tools", "switch off what you do not need: coffer prefs set SERVER tool 'PATTERN' off --glob",
			"clients see %d tools (%s); %s", d.Tools.On, strings.Join(most, ", "), strings.Join(over, ", "))
	}
}

// offered returns what each server lists: just now, or else when it was last
// asked.
func (d *diagnosis) offered(rows []prefs.Row) func(server string, k upstream.Kind) []string {
	before := lastListed(rows)
	return func(server string, k upstream.Kind) []string {
		for _, e := range d.Servers {
			if e.Server != server || e.look == nil || e.look.listings[k] == nil {
				continue
			}
			var keys []string
			for _, it := range e.look.listings[k].Items {
				keys = append(keys, it.Key)
			}
			return keys
		}
		return before(server, k)
	}
}

// one is 1 for true.
func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
