package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"coffer/clients"
	"coffer/prefs"
	"coffer/upstream"
)

// completeCommand is the hidden command behind the completion scripts. Its
// arguments are the words after coffer, up to the one at the cursor, which may
// be empty; it prints what may stand there, one a line, each with a tab and a
// description behind it. Nothing printed means: a file, or anything.
//
// The library's own completion reads os.Args, knows flags and commands only,
// and its script for zsh quotes nothing, so it is not used.
const completeCommand = "__complete"

// completion is `coffer completion`.
func (p *program) completion(c *cli.Context) error {
	args, err := positionals(c, 1, 1)
	if err != nil {
		return err
	}
	script, known := completionScripts[args[0]]
	if !known {
		return usagef("bash, zsh or fish", "no completion for shell %q", args[0])
	}
	p.out.WriteString(script)
	return nil
}

// completionScripts are by shell.
var completionScripts = map[string]string{
	"bash": `# completion of coffer for bash; in ~/.bashrc: eval "$(coffer completion bash)"
_coffer() {
	local cur cword line words
	if declare -F _get_comp_words_by_ref >/dev/null; then
		_get_comp_words_by_ref -n =: cur words cword
	else
		cur=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
	fi
	COMPREPLY=()
	while IFS= read -r line; do
		printf -v line %q "${line%%$'\t'*}"
		COMPREPLY+=("$line")
	done < <("${words[0]/#\~/$HOME}" __complete "${words[@]:1:cword}" 2>/dev/null)
	if declare -F __ltrim_colon_completions >/dev/null; then
		__ltrim_colon_completions "$cur"
	fi
}
complete -o default -F _coffer coffer
`,
	"zsh": `#compdef coffer
# completion of coffer for zsh; in ~/.zshrc, after compinit: eval "$(coffer completion zsh)"
_coffer() {
	local -a found
	local line
	for line in "${(@f)$("${(Q)words[1]/#\~/$HOME}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
		[[ $line == *$'\t'* ]] || line+=$'\t'
		[[ $line == $'\t' ]] || found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
	done
	if (( $#found )); then
		_describe coffer found
	else
		_files
	fi
}
if [[ $funcstack[1] == _coffer ]]; then
	_coffer "$@"
else
	compdef _coffer coffer
fi
`,
	"fish": `# completion of coffer for fish: coffer completion fish >~/.config/fish/completions/coffer.fish
function __coffer_complete
	set -l before (commandline -opc)
	coffer __complete $before[2..] (commandline -ct) 2>/dev/null
end
complete -c coffer -f -n 'count (__coffer_complete) >/dev/null' -a '(__coffer_complete)'
`,
}

// complete is the hidden command.
func (p *program) complete(c *cli.Context) error {
	words := c.Args().Slice()
	if len(words) == 0 {
		words = []string{""}
	}
	current := words[len(words)-1]
	l := read(c.App, words[:len(words)-1])
	for _, suggestion := range p.suggest(c, l, current) {
		value, _, _ := strings.Cut(suggestion, "\t")
		if strings.HasPrefix(value, current) {
			fmt.Fprintln(p.out, printable(suggestion))
		}
	}
	return nil
}

// suggest returns what may follow the words of l.
func (p *program) suggest(c *cli.Context, l *commandLine, current string) []string {
	commands, flags := c.App.Commands, c.App.Flags
	if len(l.path) > 0 {
		last := l.path[len(l.path)-1]
		commands, flags = last.Subcommands, append(last.Flags, flags...)
	}
	switch {
	case l.pending != nil:
		return flagValues[l.pending.Names()[0]]
	case strings.HasPrefix(current, "-") && !l.dashes:
		return describeFlags(flags)
	case len(commands) > 0 && len(l.arguments) == 0:
		return describeCommands(commands)
	case len(l.path) == 0:
		return nil
	}
	return p.suggestArgument(c, l)
}

// flagValues are the values of the flags that have a closed set of them.
var flagValues = map[string][]string{"type": typeNames, "log-level": logLevels, "transport": {"stdio", "http", "sse"}, "from": clientNames()}

var typeNames = []string{string(prefs.Tool), string(prefs.Resource), string(prefs.ResourceTemplate), string(prefs.Prompt)}

func describeFlags(flags []cli.Flag) []string {
	all := []string{"--help\tshow help"}
	for _, f := range flags {
		d, ok := f.(cli.DocGenerationFlag)
		if name := f.Names()[0]; ok && name != "help" && len(name) > 1 {
			all = append(all, "--"+name+"\t"+strings.ReplaceAll(d.GetUsage(), "`", ""))
		}
	}
	return all
}

func describeCommands(commands []*cli.Command) []string {
	var all []string
	for _, c := range commands {
		if !c.Hidden {
			all = append(all, c.Name+"\t"+c.Usage)
		}
	}
	return all
}

// suggestArgument returns what may be the command's next argument.
func (p *program) suggestArgument(c *cli.Context, l *commandLine) []string {
	var names []string
	for _, command := range l.path {
		names = append(names, command.Name)
	}
	at := len(l.arguments)
	switch name := strings.Join(names, " "); name {
	case "completion":
		return []string{"bash", "zsh", "fish"}[:max(0, 3-3*at)]
	case "mcp test", "mcp capabilities", "mcp remove", "mcp enable", "mcp disable", "prefs list", "prefs prune", "logs":
		if at == 0 {
			return p.suggestServers(c, l)
		}
	case "mcp refresh":
		return p.suggestServers(c, l)
	case "install", "uninstall":
		return describeClients()
	case "mcp why":
		if at == 0 {
			return p.suggestNames(c, l)
		}
	case "mcp call":
		switch at {
		case 0:
			return p.suggestServers(c, l)
		case 1:
			return p.suggestKeys(c, l, l.arguments[0], prefs.Tool)
		}
	case "prefs set", "prefs get":
		switch {
		case at == 0:
			return p.suggestServers(c, l)
		case at == 1:
			return typeNames
		case at == 2:
			return p.suggestKeys(c, l, l.arguments[0], prefs.Type(l.arguments[1]))
		case at == 3 && name == "prefs set":
			return []string{"on", "off"}
		}
	}
	return nil
}

func describeClients() []string {
	var all []string
	for _, client := range clients.All {
		all = append(all, client.Name+"\t"+client.Title)
	}
	return all
}

// suggestServers returns the servers of the config that the words before name.
func (p *program) suggestServers(c *cli.Context, l *commandLine) []string {
	config, err := p.configBefore(c, l)
	if err != nil {
		return nil
	}
	var all []string
	for _, spec := range config.Servers {
		all = append(all, spec.Name+"\t"+spec.Transport.String()+" server")
	}
	return all
}

// suggestNames returns the names that clients see.
func (p *program) suggestNames(c *cli.Context, l *commandLine) []string {
	config, err := p.configBefore(c, l)
	if err != nil {
		return nil
	}
	store, err := p.storeBefore(c, l)
	if err != nil {
		return nil
	}
	defer store.Close()
	rows, err := store.Rows(c.Context, prefs.Filter{})
	if err != nil {
		return nil
	}
	n, err := p.naming(c.Context, config, store)
	if err != nil {
		return nil
	}
	var all []string
	for _, r := range rows {
		if name := n.of(r.Key); name != nil {
			all = append(all, *name+"\t"+nounOf(r.Type)+" of "+r.Server)
		}
	}
	return all
}

// suggestKeys returns the keys of a server and type that are known.
func (p *program) suggestKeys(c *cli.Context, l *commandLine, server string, t prefs.Type) []string {
	store, err := p.storeBefore(c, l)
	if err != nil {
		return nil
	}
	defer store.Close()
	rows, err := store.Rows(c.Context, prefs.Filter{Server: server, Types: []prefs.Type{t}})
	if err != nil {
		return nil
	}
	var all []string
	for _, r := range rows {
		all = append(all, r.Key.Key+"\t"+onOff(r.Enabled))
	}
	return all
}

// configBefore reads the config that the words before the cursor name.
func (p *program) configBefore(c *cli.Context, l *commandLine) (*upstream.Config, error) {
	if path := l.values["config"]; path != "" {
		c.Set("config", path)
	}
	return p.config(c)
}

// storeBefore opens the preferences that the words before the cursor name. A
// database that is not there is not made.
func (p *program) storeBefore(c *cli.Context, l *commandLine) (*prefs.Store, error) {
	if path := l.values["db"]; path != "" {
		c.Set("db", path)
	}
	path, err := p.databasePath(c)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	return p.store(c)
}
