package main

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/urfave/cli/v2"

	"coffer/upstream"
)

// editTries is how often an edit is made anew when another program writes the
// file meanwhile.
const editTries = 5

func dryRunFlag() cli.Flag { return boolFlag("dry-run", "show what would change, and change nothing") }

func addFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "transport", Aliases: []string{"t"}, Usage: "`KIND` of server: stdio, http or sse; left out, it follows from the rest"},
		&cli.StringFlag{Name: "url", Usage: "the `URL` of a server to call"},
		&cli.StringSliceFlag{Name: "env", Aliases: []string{"e"}, Usage: "a variable `K=V` for the command; may be repeated"},
		&cli.StringFlag{Name: "cwd", Usage: "the `FOLDER` that the command starts in"},
		&cli.StringSliceFlag{Name: "header", Aliases: []string{"H"}, Usage: "a header `'K: V'` for the URL; may be repeated"},
		dryRunFlag(),
	}
}

// editConfig changes the config file: change gets the servers that it has and the
// document that they are part of, and may be called again if another program
// writes the file meanwhile. With --dry-run the change is printed and not made.
func (p *program) editConfig(c *cli.Context, change func(path string, d *upstream.Document, s *upstream.Servers) error) error {
	path, _, err := p.configPath(c)
	if err != nil {
		return err
	}
	edit := func() error {
		document, old, servers, err := readDocument(path)
		if err != nil {
			return err
		}
		before := document.Text() // of a file that is not there, an empty one
		if err := change(path, document, servers); err != nil {
			return err
		}
		text := document.Text()
		switch {
		case string(text) == string(before):
			return nil
		case c.Bool("dry-run"):
			p.printDiff(path, old, text)
			return nil
		}
		return upstream.ReplaceFile(path, old, text)
	}
	if c.Bool("dry-run") {
		return edit()
	}
	return upstream.Locked(c.Context, path, func() error { return retried(edit) })
}

// readDocument reads the config file at path, to be changed. old is nil if it is
// not there.
func readDocument(path string) (d *upstream.Document, old []byte, s *upstream.Servers, err error) {
	if old, err = upstream.ReadFile(path); err == nil {
		d, err = upstream.ParseDocument(path, old)
	}
	if err == nil {
		s, err = d.ConfigServers()
	}
	return d, old, s, err
}

// retried calls edit again while what it read is not what it would replace.
func retried(edit func() error) (err error) {
	for range editTries {
		if err = edit(); !errors.Is(err, upstream.ErrChanged) {
			return err
		}
	}
	return err
}

// printDiff prints what an edit changes, less the secrets in it.
func (p *program) printDiff(path string, old, text []byte) {
	changes := string(diff.Diff(path, old, path, text))
	_, changes, _ = strings.Cut(changes, "\n") // "diff old new" says nothing here
	p.out.WriteString(printable(masked(strings.ReplaceAll(changes, "\r", ""))))
}

// mcpAdd is `coffer mcp add`.
func (p *program) mcpAdd(c *cli.Context) error {
	entry, err := newEntry(c)
	if err != nil {
		return err
	}
	var at string
	err = p.editConfig(c, func(path string, d *upstream.Document, s *upstream.Servers) error {
		at = path
		if _, taken := s.Find(entry.Name); taken {
			return failf(exitError, "`coffer mcp remove` it first, or choose another name", "server %q is in %s already", entry.Name, path)
		}
		s.Add(entry)
		_, err := upstream.ParseConfig(path, d.Text(), os.LookupEnv)
		return err
	})
	if err != nil {
		return err
	}
	if !c.Bool("dry-run") {
		p.say("Added %s to %s.", entry.Name, at)
		p.say("`coffer mcp test %s` tries it.", shellWord(entry.Name))
	}
	p.out.Flush() // before what goes to stderr
	p.warnLiterals(entry)
	return nil
}

// newEntry is the server that the arguments of `coffer mcp add` describe.
func newEntry(c *cli.Context) (upstream.Entry, error) {
	args, err := positionals(c, 1, -1)
	if err != nil {
		return upstream.Entry{}, err
	}
	e, command := upstream.Entry{Name: args[0]}, args[1:]
	if strings.TrimSpace(e.Name) == "" || printable(e.Name) != e.Name || strings.ContainsAny(e.Name, "\n\t") {
		return e, usagef("", "the name %q is empty or holds control characters", e.Name)
	}
	transport, address := c.String("transport"), c.String("url")
	if !slices.Contains([]string{"", "stdio", "http", "sse"}, transport) {
		return e, usagef("one of stdio, http, sse", "--transport: unknown kind %q", transport)
	}
	// As other clients have it: the URL in the command's place.
	if remote := transport == "http" || transport == "sse"; address == "" && len(command) == 1 && (remote || isURL(command[0])) {
		address, command = command[0], nil
	}
	switch {
	case address != "" && len(command) > 0:
		return e, usagef("give one of them", "both a URL and a command")
	case address != "":
		err = remoteMembers(c, &e, transport, address)
	case len(command) > 0:
		err = commandMembers(c, &e, transport, command)
	default:
		err = usagef(fmt.Sprintf("write %s %s", c.Command.HelpName, c.Command.ArgsUsage), "neither a URL nor a command")
	}
	return e, err
}

func isURL(text string) bool {
	return strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")
}

// remoteMembers fills in a server that is called.
func remoteMembers(c *cli.Context, e *upstream.Entry, transport, address string) error {
	switch {
	case transport == "stdio":
		return usagef("leave --transport out, or give a command", "--transport stdio does not go with a URL")
	case c.IsSet("env") || c.IsSet("cwd"):
		return usagef("they are for a command", "--env and --cwd do not go with a URL")
	}
	if u, err := url.Parse(address); !strings.Contains(address, "${") && (err != nil || !isURL(address) || u.Hostname() == "") {
		return usagef("write it whole, like https://example.com/mcp", "the URL is not the address of a server")
	}
	headers, err := keyValues(c.StringSlice("header"), "--header", ":", "'Name: value'")
	if err != nil {
		return err
	}
	if transport != "" {
		e.Members = append(e.Members, upstream.Member{Key: "type", Value: upstream.JSON(transport)})
	}
	e.Members = append(e.Members, upstream.Member{Key: "url", Value: upstream.JSON(address)})
	if len(headers) > 0 {
		e.Members = append(e.Members, upstream.Member{Key: "headers", Value: upstream.Object(headers)})
	}
	return nil
}

// commandMembers fills in a server that is started.
func commandMembers(c *cli.Context, e *upstream.Entry, transport string, command []string) error {
	switch {
	case transport == "http" || transport == "sse":
		return usagef("give --url, or leave --transport out", "--transport %s does not go with a command", transport)
	case c.IsSet("header"):
		return usagef("it is for a URL", "--header does not go with a command")
	case command[0] == "":
		return usagef("", "the command is empty")
	}
	env, err := keyValues(c.StringSlice("env"), "--env", "=", "NAME=value")
	if err != nil {
		return err
	}
	e.Members = append(e.Members, upstream.Member{Key: "command", Value: upstream.JSON(command[0])})
	if len(command) > 1 {
		e.Members = append(e.Members, upstream.Member{Key: "args", Value: upstream.JSON(command[1:])})
	}
	if len(env) > 0 {
		e.Members = append(e.Members, upstream.Member{Key: "env", Value: upstream.Object(env)})
	}
	if cwd := c.String("cwd"); cwd != "" {
		e.Members = append(e.Members, upstream.Member{Key: "cwd", Value: upstream.JSON(cwd)})
	}
	return nil
}

// keyValues reads names and values with mark between them. A message does not repeat
// them: a value may be secret.
func keyValues(texts []string, flag, mark, form string) ([]upstream.Member, error) {
	var all []upstream.Member
	for i, text := range texts {
		name, value, found := strings.Cut(text, mark)
		name = strings.TrimSpace(name)
		if mark == ":" {
			value = strings.TrimSpace(value)
		}
		if !found || name == "" || strings.ContainsAny(name, "= \t") {
			return nil, usagef("write "+flag+" "+form, "%s number %d has no %q between a name and a value", flag, i+1, mark)
		}
		if slices.ContainsFunc(all, func(m upstream.Member) bool { return m.Key == name }) {
			return nil, usagef("", "%s gives %s twice", flag, name)
		}
		all = append(all, upstream.Member{Key: name, Value: upstream.JSON(value)})
	}
	return all, nil
}

// mcpRemove is `coffer mcp remove`.
func (p *program) mcpRemove(c *cli.Context) error {
	return p.editServer(c, "Removed %s from %s.", func(s *upstream.Servers, e upstream.Entry) { s.Remove(e.Name) })
}

// mcpEnable is `coffer mcp enable`.
func (p *program) mcpEnable(c *cli.Context) error {
	return p.editServer(c, "%s is on in %s.", func(s *upstream.Servers, e upstream.Entry) {
		if e.Get("disabled") != nil {
			s.Set(e.Name, "disabled", upstream.JSON(false))
		}
	})
}

// mcpDisable is `coffer mcp disable`.
func (p *program) mcpDisable(c *cli.Context) error {
	return p.editServer(c, "%s is off in %s.", func(s *upstream.Servers, e upstream.Entry) {
		s.Set(e.Name, "disabled", upstream.JSON(true))
	})
}

// editServer changes the one server that the argument names, and says so.
func (p *program) editServer(c *cli.Context, done string, change func(*upstream.Servers, upstream.Entry)) error {
	args, err := positionals(c, 1, 1)
	if err != nil {
		return err
	}
	name, at := args[0], ""
	err = p.editConfig(c, func(path string, d *upstream.Document, s *upstream.Servers) error {
		at = path
		e, found := s.Find(name)
		if !found {
			return noServer(name, path, names(s.All()))
		}
		change(s, e)
		return nil
	})
	if err == nil && !c.Bool("dry-run") {
		p.say(done, name, at)
	}
	return err
}

// names are the names of servers.
func names(entries []upstream.Entry) []string {
	all := make([]string, len(entries))
	for i, e := range entries {
		all[i] = e.Name
	}
	return all
}

// sortedKeys are the keys of a table in the order that they are shown in.
func sortedKeys[V any](table map[string]V) []string { return slices.Sorted(maps.Keys(table)) }
