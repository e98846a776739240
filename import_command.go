package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"coffer/clients"
	"coffer/upstream"
)

func importFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "from", Usage: "only from this `CLIENT` or file: " + strings.Join(clientNames(), ", ") + "; may be repeated"},
		dryRunFlag(), jsonFlag(),
	}
}

// clientNames are the words for the clients.
func clientNames() []string {
	var all []string
	for _, c := range clients.All {
		all = append(all, c.Name)
	}
	return all
}

// clientSystem is where this run looks for clients' files.
func (p *program) clientSystem() (clients.System, error) {
	s := clients.System{OS: p.system, Getenv: os.Getenv}
	if os.Getenv(s.HomeVariable()) == "" {
		return s, failf(exitError, "", "clients keep their files in the home folder, and %s is not set", s.HomeVariable())
	}
	dir, err := os.Getwd()
	if err != nil {
		return s, fmt.Errorf("the folder that coffer runs in: %w", err)
	}
	s.Dir = dir
	return s, nil
}

// source is one file that servers are taken from.
type source struct {
	file    clients.File
	servers []clients.Server
}

// importServers is `coffer import`.
func (p *program) importServers(c *cli.Context) error {
	if _, err := positionals(c, 0, 0); err != nil {
		return err
	}
	files, err := p.importFiles(c)
	if err != nil {
		return err
	}
	var sources []source
	var failed []error
	unread := []unreadFile{}
	for _, file := range files {
		text, err := upstream.ReadFile(file.Path)
		if err == nil && text == nil {
			continue
		}
		var servers []clients.Server
		if err == nil {
			servers, err = file.Servers(text)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", file.Title(), err))
			unread = append(unread, unreadFile{importPlace: importPlaceOf(file), Error: err.Error()})
			continue
		}
		sources = append(sources, source{file, servers})
	}
	var plan *importPlan
	var config *upstream.Config
	at := ""
	err = p.editImport(c, func(path string, d *upstream.Document, s *upstream.Servers) (err error) {
		at, plan = path, planImport(s.All(), sources)
		for _, e := range plan.added {
			s.Add(e)
		}
		config, err = upstream.ParseConfig(path, d.Text(), os.LookupEnv)
		return err
	})
	switch {
	case err != nil:
	case c.Bool("json"):
		err = p.printJSON(imported{Config: at, DryRun: c.Bool("dry-run"), Servers: plan.rows, Warnings: importWarnings(plan, config), Errors: unread})
	case len(plan.rows) > 0:
		p.printImport(c, at, plan, config)
	case len(failed) == 0:
		p.say("Found no servers in your clients' configs.")
	}
	return together(append(failed, err)...)
}

// editImport is editConfig without the diff, which would show what a table of
// servers does not.
func (p *program) editImport(c *cli.Context, change func(string, *upstream.Document, *upstream.Servers) error) error {
	if !c.Bool("dry-run") {
		return p.editConfig(c, change)
	}
	path, _, err := p.configPath(c)
	if err != nil {
		return err
	}
	d, _, s, err := readDocument(path)
	if err != nil {
		return err
	}
	return change(path, d, s)
}

// importFiles are the files that --from names, or those of all clients.
func (p *program) importFiles(c *cli.Context) ([]clients.File, error) {
	system, err := p.clientSystem()
	if err != nil {
		return nil, err
	}
	from := c.StringSlice("from")
	if len(from) == 0 {
		var all []clients.File
		for _, client := range clients.All {
			all = append(all, system.Files(client)...)
		}
		return all, nil
	}
	var all []clients.File
	for _, name := range from {
		client := clients.Find(name)
		if client == nil {
			if _, err := os.Stat(name); err != nil {
				if !strings.ContainsAny(name, `./\`) {
					return nil, usagef("one of "+strings.Join(clientNames(), ", ")+", or a file", "--from: no client and no file %q", name)
				}
				return nil, err
			}
			all = append(all, system.Named(name))
			continue
		}
		files := system.Files(client)
		found := false
		for _, file := range files {
			_, err := os.Stat(file.Path)
			found = found || err == nil
		}
		if !found {
			return nil, failf(exitError, "name its file with --from FILE if it is elsewhere", "found no config of %s: there is no %s", client.Title, files[0].Path)
		}
		all = append(all, files...)
	}
	return all, nil
}

// importPlan is what an import does.
type importPlan struct {
	added []upstream.Entry
	rows  []importRow
}

// planImport decides what becomes of each server, beside those that the config has.
func planImport(existing []upstream.Entry, sources []source) *importPlan {
	plan := &importPlan{rows: []importRow{}}
	for _, from := range sources {
		for _, server := range from.servers {
			e := server.Entry
			row := importRow{Server: server.Raw.Name, importPlace: importPlaceOf(from.file), What: describe(e), from: from.file.Title()}
			switch same := sameAs(slices.Concat(existing, plan.added), e); {
			case clients.IsCoffer(e):
				row.skip("coffer itself")
			case unusable(e) != nil:
				row.skip(unusable(e).Error())
			case same != "":
				row.Result, row.Name = importPresent, &same
			default:
				e.Name = freeName(slices.Concat(existing, plan.added), e.Name, from.file)
				row.Result, row.Name = importAdded, &e.Name
				plan.added = append(plan.added, e)
			}
			plan.rows = append(plan.rows, row)
		}
	}
	return plan
}

// sameAs returns the name of the entry that reaches the same server as e, "" if
// none does.
func sameAs(entries []upstream.Entry, e upstream.Entry) string {
	found := ""
	for _, other := range entries {
		if clients.Same(other, e) && (found == "" || other.Name == e.Name) {
			found = other.Name
		}
	}
	return found
}

// unusable says why e cannot be in a config.
func unusable(e upstream.Entry) error {
	d, err := upstream.ParseDocument("", nil)
	if err != nil {
		return err
	}
	s, err := d.ConfigServers()
	if err != nil {
		return err
	}
	s.Add(e)
	_, err = upstream.ParseConfig("", d.Text(), os.LookupEnv)
	if err != nil { // without the position in a file that is none
		_, message, _ := strings.Cut(err.Error(), ": ")
		return fmt.Errorf("%s", strings.TrimPrefix(message, fmt.Sprintf("server %q", e.Name)+" "))
	}
	return nil
}

// freeName is name, or a name made from it and the file's client, that none of the
// entries has.
func freeName(entries []upstream.Entry, name string, file clients.File) string {
	taken := map[string]bool{}
	for _, e := range entries {
		taken[e.Name] = true
	}
	if !taken[name] {
		return name
	}
	whose := strings.TrimSuffix(filepath.Base(file.Path), filepath.Ext(file.Path))
	if file.Client != nil {
		whose = file.Client.Name
	}
	free := name + "-" + whose
	for n := 2; taken[free]; n++ {
		free = fmt.Sprintf("%s-%s-%d", name, whose, n)
	}
	return free
}

// describe says what a server is, without anything that may be secret: a program's
// name, or a host.
func describe(e upstream.Entry) string {
	var command, address string
	json.Unmarshal(e.Get("command"), &command) // "" if it is no text
	json.Unmarshal(e.Get("url"), &address)
	if command != "" {
		return command[strings.LastIndexAny(command, `/\`)+1:]
	}
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Scheme + "://" + u.Host
	}
	return "?"
}

// printImport says what an import did, or would do.
func (p *program) printImport(c *cli.Context, path string, plan *importPlan, config *upstream.Config) {
	rows := [][]string{{"SERVER", "FROM", "WHAT", "RESULT"}}
	for _, r := range plan.rows {
		rows = append(rows, []string{r.Server, r.from, r.What, r.becomes()})
	}
	p.table("", rows)
	verb := "Added"
	if c.Bool("dry-run") {
		verb = "Would add"
	}
	p.say("%s %s to %s.", verb, count(len(plan.added), "server"), path)
	p.out.Flush() // before what goes to stderr
	for _, e := range plan.added {
		p.warnLiterals(e)
		p.warnOf(config, e.Name)
	}
}

// warnOf repeats what the config has to say of one server.
func (p *program) warnOf(config *upstream.Config, name string) {
	for _, w := range config.Warnings {
		if w.Server == name {
			p.warn("server %q: %s", name, w.Message)
		}
	}
	if spec := specOf(config, name); spec != nil && spec.Err != nil {
		p.warn("cannot be started yet: %s", spec.Err)
		if hint := hintOf(spec.Err); hint != "" {
			fmt.Fprintf(p.stderr, "coffer: hint: %s\n", printable(hint))
		}
	}
}
