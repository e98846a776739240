package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"coffer/prefs"
	"coffer/upstream"
)

// diagnosis is `coffer doctor --json`.
type diagnosis struct {
	OK       bool              `json:"ok"` // there is no problem; there may be warnings
	Config   diagnosedFile     `json:"config"`
	Database diagnosedFile     `json:"database"`
	Servers  []examined        `json:"servers"`
	Tools    diagnosedTools    `json:"tools"`
	Coffers  []running         `json:"coffers"` // as in `coffer status --json`
	Clients  []diagnosedClient `json:"clients"`
	Findings []finding         `json:"findings"`
}

// diagnosedFile is the config or the preferences.
type diagnosedFile struct {
	Path   string `json:"path"`
	Exists bool   `json:"exists"`
	Valid  bool   `json:"valid"`
	Count  int    `json:"count"` // of servers, or of preferences
}

// diagnosedTools is how many tools clients see, and how many are off.
type diagnosedTools struct {
	On  int `json:"on"`
	Off int `json:"off"`
}

// examined is one server. What it listed is nil where it could not be asked.
type examined struct {
	tested
	Enabled bool               `json:"enabled"`
	Command *string            `json:"command"`  // the program that is started
	FoundOn *upstream.Found    `json:"found_on"` // how it was found
	Listed  map[prefs.Type]int `json:"listed"`   // of the lists that came

	look     *look
	findings []finding
}

// finding is something that is wrong, or may be.
type finding struct {
	Level   level   `json:"level"`
	About   string  `json:"about"`  // config, database, server, names, tools, coffers, clients
	Server  *string `json:"server"` // null: it is about none, or several
	Message string  `json:"message"`
	Fix     string  `json:"fix"`
}

// level says how much a finding matters.
type level string

const (
	problem level = "problem" // something does not work; the exit code says so
	warning level = "warning" // something may not work, with some clients
	note    level = "note"    // good to know
)

func (p *program) doctorCommand() *cli.Command {
	return adopting(&cli.Command{Name: "doctor", Usage: "find out what is wrong, and how to fix it",
		Description: "It starts every enabled server once, and changes nothing. Exit code 1: there is a problem;\n" +
			"warnings and notes leave it at 0.",
		Flags: []cli.Flag{jsonFlag()}, Action: p.doctor})
}

// doctor is `coffer doctor`.
func (p *program) doctor(c *cli.Context) error {
	if _, err := positionals(c, 0, 0); err != nil {
		return err
	}
	log, err := p.logger(c, zerolog.Disabled)
	if err != nil {
		return err
	}
	d := &diagnosis{Servers: []examined{}, Clients: []diagnosedClient{}, Findings: []finding{}}
	config, err := d.checkConfig(p, c)
	if err != nil {
		return err // the words on the command line are wrong
	}
	rows, err := d.checkDatabase(p, c)
	if err != nil {
		return err
	}
	if config != nil {
		d.checkServers(c, config, log)
		d.checkTools(config, rows)
	}
	if c.Context.Err() != nil {
		return fmt.Errorf("interrupted: %w", c.Context.Err())
	}
	d.checkCoffers(p, c)
	if err := d.checkClients(p, config); err != nil {
		return err
	}
	problems := 0
	for _, f := range d.Findings {
		if f.Level == problem {
			problems++
		}
	}
	d.OK = problems == 0
	if c.Bool("json") {
		err = p.printJSON(d)
	} else {
		p.printDiagnosis(d)
	}
	if problems > 0 {
		return together(failf(exitError, "", "coffer doctor found %s", count(problems, "problem")), err)
	}
	return err
}

// find notes a finding.
func (d *diagnosis) find(l level, about, fix, format string, args ...any) {
	d.Findings = append(d.Findings, finding{Level: l, About: about, Message: fmt.Sprintf(format, args...), Fix: fix})
}

func (p *program) printDiagnosis(d *diagnosis) {
	state := func(f diagnosedFile, noun string) string {
		switch {
		case f.Valid:
			return f.Path + ", " + count(f.Count, noun)
		case f.Exists:
			return f.Path + ", which cannot be used"
		}
		return f.Path + ", which is not there yet"
	}
	p.say("Config: %s", state(d.Config, "server"))
	p.say("Preferences: %s", state(d.Database, "preference"))
	p.say("Running: %s", count(len(d.Coffers), "coffer"))
	for _, f := range d.Clients {
		if f.Entry != nil {
			p.say("Client: %s starts %s (%s)", f.Client, *f.Command, f.Path)
		}
	}
	if len(d.Servers) > 0 {
		p.say("Tools for clients: %d, and %d switched off", d.Tools.On, d.Tools.Off)
		p.say("")
		rows := [][]string{{"SERVER", "STATE", "READY AFTER", "PING", "TOOLS", "RESOURCES", "TEMPLATES", "PROMPTS", "PROGRAM"}}
		for _, e := range d.Servers {
			rows = append(rows, e.row())
		}
		p.table("", rows)
	}
	for _, f := range d.Findings {
		p.say("")
		p.say("%s: %s", f.Level, f.Message)
		p.say("  fix: %s", f.Fix)
	}
	if len(d.Findings) == 0 {
		p.say("")
		p.say("Nothing is wrong.")
	}
	p.out.Flush() // before what goes to stderr
}

// row describes a server in the table.
func (e *examined) row() []string {
	row := []string{e.Server, "works", "", ""}
	switch {
	case !e.Enabled:
		row[1] = "disabled"
	case !e.Live:
		row[1] = "FAILS"
	case len(e.findings) > 0:
		row[1] = "in part"
	}
	if e.ConnectMS != nil {
		row[2] = fmt.Sprintf("%.0f ms", *e.ConnectMS)
	}
	if e.LatencyMS != nil {
		row[3] = fmt.Sprintf("%.1f ms", *e.LatencyMS)
	}
	for _, k := range upstream.Kinds() {
		cell := "?"
		if n, known := e.Listed[typeOf[k]]; known {
			cell = strconv.Itoa(n)
		} else if !e.Enabled {
			cell = ""
		}
		row = append(row, cell)
	}
	program := ""
	if e.Command != nil {
		program = *e.Command
		if *e.FoundOn != upstream.FoundByPath {
			program += " (" + string(*e.FoundOn) + ")"
		}
	}
	return append(row, program)
}

// someOf quotes the first few of names, and says how many more there are.
func someOf(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
