package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"coffer/jsonrpc"
	"coffer/prefs"
	"coffer/proxy"
	"coffer/upstream"
)

func jsonFlag() cli.Flag {
	return boolFlag("json", "print one JSON document and nothing else")
}

func boolFlag(name, usage string) cli.Flag {
	return &cli.BoolFlag{Name: name, Usage: usage, DisableDefaultText: true}
}

func typeFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "type", Usage: "only this `TYPE`: tool, resource, resource_template or prompt; may be repeated"}
}

// mcpGroup is `coffer mcp`.
func (p *program) mcpGroup() *cli.Command {
	return adopting(group("mcp", "look at the servers of the config and talk to them", p.mcpCommands()))
}

// adopting has nothing left of what a server has started when the command, or
// one of the group's commands, is done.
func adopting(command *cli.Command) *cli.Command {
	end := func() {}
	command.Before = func(*cli.Context) error {
		end = upstream.Adopt(zerolog.Nop())
		return nil
	}
	command.After = func(*cli.Context) error {
		end()
		return nil
	}
	return command
}

// mcpCommands are the commands of `coffer mcp`.
func (p *program) mcpCommands() []*cli.Command {
	return []*cli.Command{
		{Name: "list", Usage: "show the servers of the config; starts none", Flags: []cli.Flag{jsonFlag()}, Action: p.mcpList},
		{Name: "add", Usage: "add a server to the config file", ArgsUsage: "NAME (--url URL | -- COMMAND [ARG...])", Flags: addFlags(), Action: p.mcpAdd},
		{Name: "remove", Usage: "take a server out of the config file", ArgsUsage: "NAME", Flags: []cli.Flag{dryRunFlag()}, Action: p.mcpRemove},
		{Name: "enable", Usage: "switch a server on", ArgsUsage: "NAME", Flags: []cli.Flag{dryRunFlag()}, Action: p.mcpEnable},
		{Name: "disable", Usage: "switch a server off: not started, not listed", ArgsUsage: "NAME", Flags: []cli.Flag{dryRunFlag()}, Action: p.mcpDisable},
		{Name: "test", Usage: "connect to a server and say how that went", ArgsUsage: "NAME", Flags: []cli.Flag{jsonFlag()}, Action: p.mcpTest},
		{Name: "capabilities", Usage: "show what a server offers, and what of it is switched on", ArgsUsage: "NAME",
			Flags: []cli.Flag{typeFlag(), jsonFlag()}, Action: p.mcpCapabilities},
		{Name: "why", Usage: "explain a name that clients see: whose it is, and why it is on or off", ArgsUsage: "NAME",
			Description: "NAME is a tool's or prompt's name, or a resource's URI, as clients see it; Claude Code's\n" +
				"mcp__coffer__NAME will do. It starts no server: it tells what is known from before.",
			Flags: []cli.Flag{jsonFlag()}, Action: p.mcpWhy},
		{Name: "refresh", Usage: "have every running coffer ask a server anew", ArgsUsage: "NAME... | --all",
			Flags: []cli.Flag{
				boolFlag("all", "every server that is not disabled"),
				boolFlag("reconnect", "have them make a fresh connection too"),
				jsonFlag(),
			}, Action: p.mcpRefresh},
		{Name: "call", Usage: "call a tool by the server's own name for it", ArgsUsage: "NAME TOOL [JSON | -]",
			Flags: []cli.Flag{jsonFlag()}, Action: p.mcpCall},
	}
}

// listedServer is a server in `coffer mcp list --json`.
type listedServer struct {
	Server     string  `json:"server"`
	Transport  string  `json:"transport"`
	Enabled    bool    `json:"enabled"`
	Prefix     string  `json:"prefix"`
	AutoEnable bool    `json:"auto_enable_new_capabilities"`
	Error      *string `json:"error"` // why it cannot be started
	Hint       *string `json:"hint"`
}

// mcpList is `coffer mcp list`.
func (p *program) mcpList(c *cli.Context) error {
	if _, err := positionals(c, 0, 0); err != nil {
		return err
	}
	config, err := p.config(c)
	if err != nil {
		return err
	}
	servers := make([]listedServer, len(config.Servers))
	for i, spec := range config.Servers {
		servers[i] = listedServer{Server: spec.Name, Transport: spec.Transport.String(), Enabled: !spec.Disabled,
			Prefix: proxy.Prefix(&spec), AutoEnable: spec.AutoEnable, Error: optional(textOf(spec.Err)), Hint: optional(hintOf(spec.Err))}
	}
	if c.Bool("json") {
		return p.printJSON(map[string]any{"config": config.Path, "missing": config.Missing, "servers": servers, "warnings": warningsOf(config)})
	}
	p.printServers(config, servers)
	return nil
}

func (p *program) printServers(config *upstream.Config, servers []listedServer) {
	switch {
	case config.Missing:
		p.say("No servers: there is no config file %s.", config.Path)
		p.say("To begin, %s.", missingConfigHint)
	case len(servers) == 0:
		p.say("No servers in %s.", config.Path)
	default:
		rows := [][]string{{"NAME", "TRANSPORT", "STATE", "PREFIX"}}
		for _, s := range servers {
			prefix := s.Prefix
			if prefix == "" {
				prefix = "(none)"
			}
			rows = append(rows, []string{s.Server, s.Transport, onOff(s.Enabled), prefix})
		}
		p.table("", rows)
	}
	p.out.Flush() // before what goes to stderr
	for _, s := range servers {
		if s.Error != nil {
			p.warn("server %q cannot be started: %s", s.Server, *s.Error)
			if s.Hint != nil {
				fmt.Fprintf(p.stderr, "coffer: hint: %s\n", printable(*s.Hint))
			}
		}
	}
	for _, w := range config.Warnings {
		p.warn("%s", w)
	}
}

// warningsOf describes the warnings of a config as JSON.
func warningsOf(config *upstream.Config) []map[string]any {
	all := make([]map[string]any, len(config.Warnings))
	for i, w := range config.Warnings {
		all[i] = map[string]any{"position": w.Pos, "server": optional(w.Server), "key": optional(w.Key), "message": w.Message}
	}
	return all
}

// optional returns nil, which is null in JSON, for an empty text.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// textOf returns an error's text, "" for none.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// oneServer reads what a command about one server needs: its arguments, the
// first of which names the server, the config and the log.
func (p *program) oneServer(c *cli.Context, least, most int) ([]string, *upstream.Config, *upstream.Spec, zerolog.Logger, error) {
	args, err := positionals(c, least, most)
	if err != nil {
		return nil, nil, nil, zerolog.Nop(), err
	}
	log, err := p.logger(c, zerolog.Disabled)
	if err != nil {
		return nil, nil, nil, zerolog.Nop(), err
	}
	config, err := p.config(c)
	if err != nil {
		return nil, nil, nil, zerolog.Nop(), err
	}
	spec, err := findServer(config, args[0])
	return args, config, spec, log, err
}

// tested is `coffer mcp test --json`.
type tested struct {
	Server          string          `json:"server"`
	Live            bool            `json:"live"`
	Transport       string          `json:"transport"`
	ProtocolVersion *string         `json:"protocol_version"`
	ServerInfo      json.RawMessage `json:"server_info"`
	Offers          []string        `json:"offers"`
	ConnectMS       *float64        `json:"connect_ms"`
	LatencyMS       *float64        `json:"latency_ms"`
	Error           *string         `json:"error"`
	Hint            *string         `json:"hint"`
}

// mcpTest is `coffer mcp test`.
func (p *program) mcpTest(c *cli.Context) error {
	_, config, spec, log, err := p.oneServer(c, 1, 1)
	if err != nil {
		return err
	}
	t, r, err := try(c, config, spec, log)
	if r != nil {
		defer r.close(c.Context)
	}
	switch {
	case c.Bool("json"):
		return together(p.printJSON(t), err)
	case err == nil:
		p.printTested(t)
	}
	return err
}

// try connects to a server and says how that went. The caller closes the
// connection, if there is one, also where there is an error.
func try(c *cli.Context, config *upstream.Config, spec *upstream.Spec, log zerolog.Logger) (tested, *reached, error) {
	t := tested{Server: spec.Name, Transport: spec.Transport.String(), Offers: []string{}}
	r, err := reach(c.Context, config, spec, log)
	if err == nil {
		err = t.ask(c, r)
	}
	t.Live = err == nil
	t.Error, t.Hint = optional(textOf(err)), optional(hintOf(err))
	return t, r, err
}

// offers are the capabilities that `coffer mcp test` names.
var offers = []string{"tools", "resources", "prompts", "completions", "logging"}

// ask fills t with what r says.
func (t *tested) ask(c *cli.Context, r *reached) error {
	t.ProtocolVersion = optional(r.conn.Version())
	t.ServerInfo = r.conn.Info()
	t.ConnectMS = milliseconds(r.took)
	for _, name := range offers {
		if r.conn.Offers(name) {
			t.Offers = append(t.Offers, name)
		}
	}
	began := time.Now()
	// An error of the server's is an answer, too: it lives.
	if _, err := r.call(c.Context, "ping", nil, r.spec.ListTimeout); err != nil && jsonrpc.CodeOf(err) == 0 {
		return err
	}
	t.LatencyMS = milliseconds(time.Since(began))
	return nil
}

func milliseconds(d time.Duration) *float64 {
	ms := float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
	return &ms
}

func (p *program) printTested(t tested) {
	name, _ := jsonrpc.TextAt(t.ServerInfo, "name")
	version, _ := jsonrpc.TextAt(t.ServerInfo, "version")
	p.say("%s works: it is %s, over %s, protocol %s.", t.Server, strings.TrimSpace(name+" "+version), t.Transport, *t.ProtocolVersion)
	p.say("It was ready after %.0f ms and answers a ping in %.1f ms.", *t.ConnectMS, *t.LatencyMS)
	if len(t.Offers) == 0 {
		p.say("It offers nothing.")
		return
	}
	p.say("It offers %s.", strings.Join(t.Offers, ", "))
}

// typesFlag reads --type.
func typesFlag(c *cli.Context) ([]prefs.Type, error) {
	var types []prefs.Type
	for _, text := range c.StringSlice("type") {
		t, err := prefs.ParseType(text)
		if err != nil {
			return nil, usagef("", "--type: %w", err)
		}
		types = append(types, t)
	}
	return types, nil
}
