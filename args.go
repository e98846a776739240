package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// helpCommand is another way to write --help.
const helpCommand = "help"

// arrange puts the words of a command line into the order that the library
// reads: coffer's own flags, the command with its flags, then `--` and the
// arguments. People may write flags anywhere before a `--` of their own.
func arrange(app *cli.App, args []string) ([]string, error) {
	app.Setup()
	l := read(app, args[1:])
	if l.err == nil && len(l.path) == 1 && l.path[0].Name == helpCommand {
		l = read(app, append(l.arguments, "--help"))
	}
	if l.err != nil {
		return nil, l.err
	}
	words := append(args[:1:1], l.global...)
	for _, c := range l.path {
		words = append(words, c.Name)
	}
	words = append(words, l.local...)
	if !l.verbatim && (len(l.arguments) > 0 || l.dashes) {
		words = append(words, "--")
	}
	return append(words, l.arguments...), nil
}

// commandLine is a command line taken apart.
type commandLine struct {
	path      []*cli.Command    // the command, from the outermost one
	global    []string          // the words of coffer's own flags
	local     []string          // the words of the command's flags
	arguments []string          // what is neither command nor flag
	values    map[string]string // flag -> its value, where it takes one
	dashes    bool              // a `--` was there
	pending   cli.Flag          // the last word is this flag, and its value is missing
	verbatim  bool              // the command reads everything after it by itself
	err       error             // the first thing that is wrong with a flag
}

// read takes words, which do not hold the program's name, apart.
func read(app *cli.App, words []string) *commandLine {
	l := &commandLine{values: map[string]string{}}
	known := map[string]cli.Flag{}
	collectFlags(known, app.Flags, app.Commands)
	var flags []usedFlag
	for len(words) > 0 && !l.verbatim {
		word := words[0]
		words = words[1:]
		switch {
		case word == "--":
			l.dashes = true
			l.arguments = append(l.arguments, words...)
			words = nil
		case !strings.HasPrefix(word, "-") || word == "-":
			l.take(app, word)
		default:
			used := usedFlag{words: []string{word}}
			name, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
			used.name, used.flag = name, known[name]
			if used.flag != nil && name != used.flag.Names()[0] { // the library takes one form of a flag only
				used.name = used.flag.Names()[0]
				used.words[0] = strings.Replace(word, word[:len(word)-len(strings.TrimLeft(word, "-"))]+name, dashed(used.name), 1)
			}
			if takesValue(used.flag) && !given {
				if len(words) == 0 {
					l.pending = used.flag
				} else {
					value = words[0]
					used.words = append(used.words, value)
					words = words[1:]
				}
			}
			if takesValue(used.flag) {
				l.values[used.flag.Names()[0]] = value
			}
			flags = append(flags, used)
		}
	}
	l.arguments = append(l.arguments, words...)
	for _, used := range flags {
		l.place(app, used)
	}
	if l.pending != nil && l.err == nil {
		l.err = usagef("", "--%s needs a value", l.pending.Names()[0])
	}
	return l
}

// usedFlag is a flag on the command line: one word, or two.
type usedFlag struct {
	name  string
	flag  cli.Flag // nil: no such flag
	words []string
}

// take takes a word that is no flag: the next command, or an argument.
func (l *commandLine) take(app *cli.App, word string) {
	commands := app.Commands
	if len(l.path) > 0 {
		commands = l.path[len(l.path)-1].Subcommands
	}
	if len(l.arguments) == 0 {
		for _, c := range commands {
			if c.HasName(word) {
				l.path = append(l.path, c)
				l.verbatim = c.SkipFlagParsing
				return
			}
		}
	}
	l.arguments = append(l.arguments, word)
}

// place gives a flag to the command if it has it, else to coffer itself.
func (l *commandLine) place(app *cli.App, used usedFlag) {
	whole, own := "coffer", app.Flags
	if len(l.path) > 0 {
		last := l.path[len(l.path)-1]
		own = append([]cli.Flag{cli.HelpFlag}, last.Flags...)
		for _, c := range l.path {
			whole += " " + c.Name
		}
	}
	switch {
	case len(l.path) > 0 && hasFlag(own, used.name):
		l.local = append(l.local, used.words...)
	case hasFlag(app.Flags, used.name):
		l.global = append(l.global, used.words...)
	case l.err != nil:
	case used.flag != nil:
		l.err = usagef(fmt.Sprintf("`%s --help` lists the flags", whole), "%s has no flag %s", whole, dashed(used.name))
	default:
		l.err = usagef(fmt.Sprintf("`%s --help` lists the flags; an argument that begins with a dash goes behind --", whole),
			"unknown flag %s", dashed(used.name))
	}
}

// collectFlags enters all flags of all commands into known, by every name. A
// name takes a value everywhere or nowhere (TestFlagsAgree).
func collectFlags(known map[string]cli.Flag, flags []cli.Flag, commands []*cli.Command) {
	for _, f := range append([]cli.Flag{cli.HelpFlag}, flags...) {
		for _, name := range f.Names() {
			known[name] = f
		}
	}
	for _, c := range commands {
		collectFlags(known, c.Flags, c.Subcommands)
	}
}

func hasFlag(flags []cli.Flag, name string) bool {
	for _, f := range flags {
		for _, n := range f.Names() {
			if n == name {
				return true
			}
		}
	}
	return false
}

func takesValue(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}

// dashed writes a flag's name as it is typed.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// positionals returns the command's arguments, of which there must be least to
// most; most < 0: any number.
func positionals(c *cli.Context, least, most int) ([]string, error) {
	args := c.Args().Slice()
	usage := strings.TrimSpace("write " + c.Command.HelpName + " " + c.Command.ArgsUsage)
	switch {
	case len(args) < least:
		return nil, usagef(usage, "%s needs %s", c.Command.HelpName, c.Command.ArgsUsage)
	case most >= 0 && len(args) > most:
		return nil, usagef(usage, "unexpected argument %q", args[most])
	}
	return args, nil
}
