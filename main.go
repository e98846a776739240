// Coffer is one MCP server in place of many: it stands between an MCP client
// and the servers of its config, shows one merged list, and lets a person
// switch single tools, resources and prompts off for every client at once.
//
// The files of this package are named after what they are for: main.go sets up
// and ends a run, failure.go says how it failed, args.go puts the arguments into
// order, places.go and log.go say where things are and go, *_commands.go are the
// commands.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"coffer/logfile"
	"coffer/prefs"
	"coffer/proxy"
	"coffer/upstream"
)

// schema is the newest schema of the preference file, whole. It is embedded
// here because go:embed does not reach into a parent folder.
//
//go:embed schema.sql
var schema string

// These are set by a release's linker flags: -X main.version=1.2.3, the commit's
// hash, and its time as RFC 3339 has it.
var version, commit, date string

// lastMoment is how long coffer lives on after a signal to leave (design §9).
const lastMoment = 1500 * time.Millisecond

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), heeded(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
	// Nothing ends a wait in the system for a pipe that nobody reads, or writes to.
	context.AfterFunc(ctx, func() { time.AfterFunc(lastMoment, func() { os.Exit(exitError) }) })
	code := run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// heeded returns those of the signals that whoever started us has not asked us
// to ignore, as nohup does: to be notified of one would end that.
func heeded(signals ...os.Signal) []os.Signal {
	var all []os.Signal
	for _, s := range signals {
		if !signal.Ignored(s) {
			all = append(all, s)
		}
	}
	return all
}

// run is coffer: it does what args say and returns the exit code. ctx ends when
// coffer is told to leave.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr, system: runtime.GOOS}
	return p.run(ctx, args)
}

// run is the function run with what p has set.
func (p *program) run(ctx context.Context, args []string) int {
	p.out, p.fileLog = bufio.NewWriter(p.stdout), zerolog.Nop()
	defer p.close()
	app := p.app()
	args, err := arrange(app, args)
	if err == nil {
		err = app.RunContext(ctx, args)
	}
	if flushed := p.out.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("writing the output: %w", flushed)
	}
	return p.report(err)
}

// program is one run of coffer. Commands print on out; run flushes it.
type program struct {
	stdin  io.Reader
	stdout io.Writer // what is under out: serve's wire
	stderr io.Writer
	out    *bufio.Writer
	typed  *bufio.Reader // stdin, once something was asked
	system string        // whose places files are in, as runtime.GOOS has it

	fileLog zerolog.Logger // where report repeats an error, if there is a log file
	logFile *logfile.File  // nil: none
}

func (p *program) close() {
	if p.logFile != nil {
		p.logFile.Close()
	}
}

// app is the whole command line.
func (p *program) app() *cli.App {
	app := &cli.App{
		Name:    "coffer",
		Usage:   "one MCP server in place of many",
		Version: versionText() + buildText(),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "config", EnvVars: []string{"COFFER_CONFIG"}, Usage: "the config `FILE`, with an mcpServers object", TakesFile: true},
			&cli.StringFlag{Name: "db", EnvVars: []string{"COFFER_DB"}, Usage: "the `FILE` of the preferences", TakesFile: true},
			&cli.StringFlag{Name: "log-level", Usage: "least `LEVEL` that is logged: " + strings.Join(logLevels, ", ")},
			&cli.StringFlag{Name: "log-file", Usage: "log to `FILE` as well", TakesFile: true},
			cli.HelpFlag,
		},
		Commands: []*cli.Command{
			{Name: "serve", Usage: "be the MCP server: the proxy on stdin and stdout", Action: p.serve},
			p.statusCommand(),
			p.logsCommand(),
			p.doctorCommand(),
			p.mcpGroup(),
			{Name: "import", Usage: "take over the servers that your clients have", Flags: importFlags(), Action: p.importServers},
			{Name: "install", Usage: "put coffer into clients' own configs", ArgsUsage: "CLIENT...", Flags: installFlags(), Action: p.install},
			{Name: "uninstall", Usage: "take coffer out of clients' configs, and put back what it replaced", ArgsUsage: "CLIENT...", Flags: uninstallFlags(), Action: p.uninstall},
			group("prefs", "say what clients may see and use", p.prefsCommands()),
			{Name: "demo", Usage: "show in a second what coffer does, with throw-away files", Action: p.demo},
			{Name: "completion", Usage: "print a completion script for a shell", ArgsUsage: "bash|zsh|fish", Action: p.completion},
			{Name: helpCommand, Usage: "show help for a command", ArgsUsage: "[COMMAND]"},
			{Name: demoServerCommand, Hidden: true, Action: p.demoServer},
			{Name: completeCommand, Hidden: true, SkipFlagParsing: true, Action: p.complete},
		},
		Before:    checkLogLevel,
		Action:    missingCommand,
		Writer:    p.out,
		ErrWriter: p.stderr,
		// run prints errors and chooses the exit code, not the library.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   usageProblem,
		// A value is one value, commas included.
		DisableSliceFlagSeparator: true,
		HideHelpCommand:           true, // ours is a word that arrange knows
	}
	settle(app.Commands)
	exemplify(app.Commands, "")
	return app
}

// group is a command that only holds others.
func group(name, usage string, commands []*cli.Command) *cli.Command {
	return &cli.Command{Name: name, Usage: usage, Subcommands: commands, Action: missingCommand}
}

// settle gives every command what all have in common.
func settle(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = usageProblem
		c.HideHelpCommand = true // else no argument could be help, or h
		settle(c.Subcommands)
	}
}

// missingCommand is the action of coffer itself and of groups: it runs when the
// next word is none of their commands.
func missingCommand(c *cli.Context) error {
	whole := c.Command.HelpName
	if word := c.Args().First(); word != "" {
		return usagef(fmt.Sprintf("`%s --help` lists the commands", whole), "%s has no command %q", whole, word)
	}
	return usagef(fmt.Sprintf("`%s --help` lists them", whole), "%s needs a command: %s", whole, commandNames(c))
}

// commandNames lists the commands that may follow c's.
func commandNames(c *cli.Context) string {
	var names []string
	for _, sub := range c.Command.Subcommands {
		if !sub.Hidden && sub.Name != helpCommand {
			names = append(names, sub.Name)
		}
	}
	return strings.Join(names, ", ")
}

// usageProblem says what is wrong with a flag. arrange has found the unknown
// ones and the missing values before.
func usageProblem(c *cli.Context, err error, _ bool) error {
	return usagef(fmt.Sprintf("`%s --help` lists the flags", strings.TrimSpace(c.Command.HelpName)), "%v", err)
}

// versionText is the version that people and servers are told.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return "(devel)"
}

// buildText says what --version adds: the commit that coffer is built from, and its
// time, as far as the linker flags or the Go tool tell.
func buildText() string {
	commit, date, modified := commit, date, ""
	if info, ok := debug.ReadBuildInfo(); ok && commit == "" {
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				commit = setting.Value
			case setting.Key == "vcs.time":
				date = setting.Value
			case setting.Key == "vcs.modified" && setting.Value == "true":
				modified = "with changes"
			}
		}
	}
	parts := slices.DeleteFunc([]string{commit, modified, date}, func(part string) bool { return part == "" })
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// serve is `coffer serve`.
func (p *program) serve(c *cli.Context) error {
	if _, err := positionals(c, 0, 0); err != nil {
		return err
	}
	log, err := p.logger(c, zerolog.InfoLevel)
	if err != nil {
		return err
	}
	path, explicit, err := p.configPath(c)
	if err != nil {
		return err
	}
	edits := followConfig(path, log)
	config, err := upstream.ReadConfig(path, explicit, os.LookupEnv)
	if err != nil {
		return err
	}
	db, err := p.databasePath(c)
	if err != nil {
		return err
	}
	announce(log, config)
	own := running{PID: os.Getpid(), Version: versionText(), StartedAt: moment(time.Now()), Config: absolute(config.Path), DB: absolute(db)}
	// A client that closes our stdout, or stderr, ends the session and does not
	// kill us. (To ignore the signal would make our children ignore it too.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	in, out, restore := unblock(p.stdin, p.stdout)
	defer restore()
	defer upstream.Adopt(log)()
	ctx, leave := context.WithCancel(c.Context)
	defer leave()
	defer whenDeaf(out, leave)()
	var session *proxy.Session
	session = proxy.New(proxy.Options{
		Config:  config,
		Environ: os.Environ(),
		Log:     log,
		Version: versionText(),
		Prefs: func(ctx context.Context) (proxy.Preferences, error) {
			store, err := prefs.Open(ctx, db, schema, prefs.Options{BusyTimeout: serveBusyTimeout, KeepTrying: true})
			if err != nil {
				return nil, err // and not a nil *prefs.Store in an interface
			}
			return store, nil
		},
		Follow: edits.run,
		Stderr: stderrLog(log, db).add,
		Beside: func(ctx context.Context) { own.answer(ctx, log, session) },
	})
	return session.Serve(ctx, in, out)
}

// announce logs what a person who wonders why a server is missing looks for.
func announce(log zerolog.Logger, config *upstream.Config) {
	switch {
	case config.Missing:
		log.Warn().Str("config", config.Path).Msg("no config file, so no servers: " + missingConfigHint)
	case len(config.Servers) == 0:
		log.Warn().Str("config", config.Path).Msg("the config has no servers")
	}
	for _, spec := range config.Servers {
		if spec.Err != nil && !spec.Disabled {
			log.Warn().Str("upstream", spec.Name).AnErr("error", spec.Err).Str("hint", hintOf(spec.Err)).Msg("cannot be started")
		}
	}
}
