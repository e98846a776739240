package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/urfave/cli/v2"

	"coffer/upstream/upstreamtest"
)

// TestMain makes this test binary several commands for scripts and for the
// tests that start processes: coffer, a server that does as its script says,
// and those of which the functions tell.
func TestMain(m *testing.M) {
	testscript.Main(apart{m}, map[string]func(){
		"coffer":         main,
		"mcpgoserver":    mcpgoMain,
		"httpadapter":    adapterMain,
		"fixtureserver":  fixtureMain,
		"suiteclient":    suiteClientMain,
		"prefswriter":    prefsWriterMain,
		"soakserver":     soakServerMain,
		"configwriter":   configWriterMain,
		"coffer-macos":   func() { mainOn("darwin") },
		"coffer-windows": func() { mainOn("windows") },
		"fakeserver": func() {
			os.Exit(upstreamtest.Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// mainOn is main with the places of files that another system has.
func mainOn(system string) {
	p := &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, system: system}
	os.Exit(p.run(context.Background(), os.Args))
}

// apart runs the tests with a runtime folder of their own, so that they and the
// coffers that run on this machine do not see each other. Its path is short
// enough for a socket in it.
type apart struct{ *testing.M }

// Run implements testscript.TestingM.
func (m apart) Run() int {
	folder, err := os.MkdirTemp("", "cof")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	os.Setenv("COFFER_RUNTIME_DIR", folder)
	return m.M.Run()
}

// scriptLimit ends scripts that hang. They need some seconds; the rest is for a
// machine that does ten things at once.
const scriptLimit = 5 * time.Minute

// TestScript runs testdata/script/*.txtar. Each has a folder of its own with
// config.json and coffer.db as coffer's files.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:      "testdata/script",
		Deadline: time.Now().Add(scriptLimit),
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir+"/home")
			e.Setenv("COFFER_RUNTIME_DIR", os.Getenv("COFFER_RUNTIME_DIR"))
			e.Setenv("COFFER_CONFIG", e.WorkDir+"/config.json")
			e.Setenv("COFFER_DB", e.WorkDir+"/state/coffer.db")
			e.Setenv("NO_COLOR", "1")
			e.Setenv("GORACE", atOnce)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   cmdExits,
			"onejson": cmdOneJSON,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// cmdExits is "exits CODE COMMAND ARG...": exec that demands an exit code. Of a
// run that is to fail it demands an error in coffer's form on stderr, of one
// that is to succeed an empty stderr.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	stderr := ts.ReadFile("stderr")
	if want == 0 && stderr != "" {
		ts.Fatalf("something on stderr: %s", stderr)
	}
	if want != 0 && !strings.Contains(stderr, "coffer: error: ") {
		ts.Fatalf("no error on stderr: %s", stderr)
	}
}

// cmdOneJSON is "onejson": stdout is one JSON document and nothing else.
func cmdOneJSON(ts *testscript.TestScript, neg bool, args []string) {
	d := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	var document, more any
	if err := d.Decode(&document); err != nil {
		ts.Fatalf("stdout is no JSON: %v", err)
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		ts.Fatalf("more than one document on stdout (%v)", err)
	}
}

// TestFlagsAgree: arrange reads a flag's value before it knows the command, so
// a name must take a value everywhere or nowhere.
func TestFlagsAgree(t *testing.T) {
	takes := map[string]bool{}
	var check func(where string, flags []cli.Flag, commands []*cli.Command)
	check = func(where string, flags []cli.Flag, commands []*cli.Command) {
		for _, f := range flags {
			for _, name := range f.Names() {
				if was, known := takes[name]; known && was != takesValue(f) {
					t.Errorf("%s: --%s takes a value here or elsewhere, not both", where, name)
				}
				takes[name] = takesValue(f)
			}
		}
		for _, c := range commands {
			check(where+" "+c.Name, c.Flags, c.Subcommands)
		}
	}
	app := new(program).app()
	check("coffer", app.Flags, app.Commands)
}

// TestExamples: every command has examples in its help, which can be read, and no
// example is without a command.
func TestExamples(t *testing.T) {
	left := maps.Clone(examples)
	var check func(words string, commands []*cli.Command)
	check = func(words string, commands []*cli.Command) {
		for _, c := range commands {
			path := strings.TrimSpace(words + " " + c.Name)
			if len(c.Subcommands) > 0 {
				check(path, c.Subcommands)
				continue
			}
			if c.Hidden || c.Name == helpCommand {
				continue
			}
			if len(left[path]) == 0 {
				t.Errorf("coffer %s has no examples", path)
			}
			for _, line := range left[path] {
				_, line, _ = strings.Cut(line, "coffer ")
				line, _, _ = strings.Cut(line, " >")
				l := read(new(program).app(), strings.Fields(strings.TrimRight(line, `)"`)))
				if l.err != nil || !strings.HasPrefix(line, path) {
					t.Errorf("coffer %s: example %q: %v", path, line, l.err)
				}
			}
			delete(left, path)
		}
	}
	check("", new(program).app().Commands)
	if len(left) > 0 {
		t.Errorf("examples of no command: %v", left)
	}
}

func TestArrange(t *testing.T) {
	for _, test := range []struct {
		name string
		in   string
		want string // or the error
	}{
		{"nothing", "", ""},
		{"in order", "--db x mcp list --json", "--db x mcp list --json"},
		{"coffer's flags behind", "mcp list --config x --json", "--config x mcp list --json"},
		{"flags before the command", "--json mcp list", "mcp list --json"},
		{"flags between", "mcp --json call --db=y s t", "--db=y mcp call --json -- s t"},
		{"a flag behind arguments", "prefs set fs tool --glob * off", "prefs set --glob -- fs tool * off"},
		{"a value like a flag", "prefs list --type --json", "prefs list --type --json"},
		{"one dash", "mcp list -json", "mcp list -json"},
		{"a short name", "mcp add -e A=-e --env=B=c -H=x n", "mcp add --env A=-e --env=B=c --header=x -- n"},
		{"a lone dash is an argument", "prefs set -", "prefs set -- -"},
		{"behind dashes all are arguments", "prefs set -- fs tool --json off", "prefs set -- fs tool --json off"},
		{"dashes in the middle", "prefs get fs --json -- tool -k", "prefs get --json -- fs tool -k"},
		{"an argument like a command", "mcp call mcp list", "mcp call -- mcp list"},
		{"help", "help prefs set", "prefs set --help"},
		{"help alone", "help", "--help"},
		{"help of a group", "mcp --help", "mcp --help"},
		{"the hidden command reads by itself", "__complete mcp -", "__complete mcp -"},
		{"an unknown flag", "mcp list --wrong", "unknown flag --wrong"},
		{"another's flag", "mcp list --glob", "coffer mcp list has no flag --glob"},
		{"a flag of nothing", "--json", "coffer has no flag --json"},
		{"a missing value", "mcp list --config", "--config needs a value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			args, err := arrange(new(program).app(), append([]string{"coffer"}, strings.Fields(test.in)...))
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = strings.Join(args[1:], " ")
			}
			if got != test.want {
				t.Errorf("arrange(%q) = %q, want %q", test.in, got, test.want)
			}
		})
	}
}

func TestPlaces(t *testing.T) {
	for _, test := range []struct {
		name, system string
		env          map[string]string
		config, db   string
	}{
		{"XDG's own defaults", "linux", map[string]string{"HOME": "/h"}, "/h/.config/coffer/config.json", "/h/.local/state/coffer/coffer.db"},
		{"XDG", "linux", map[string]string{"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}, "/c/coffer/config.json", "/s/coffer/coffer.db"},
		{"relative is ignored", "freebsd", map[string]string{"HOME": "/h", "XDG_CONFIG_HOME": "c"}, "/h/.config/coffer/config.json", "/h/.local/state/coffer/coffer.db"},
		{"macOS", "darwin", map[string]string{"HOME": "/h", "XDG_CONFIG_HOME": "/c"}, "/h/Library/Application Support/coffer/config.json", "/h/Library/Application Support/coffer/coffer.db"},
		{"Windows", "windows", map[string]string{"APPDATA": "/roaming", "LOCALAPPDATA": "/local"}, "/roaming/coffer/config.json", "/local/coffer/coffer.db"},
		{"nothing", "linux", nil, "no default place for config.json: HOME is not set", "no default place for coffer.db: HOME is not set"},
		{"nothing on Windows", "windows", nil, "no default place for config.json: APPDATA is not set", "no default place for coffer.db: LOCALAPPDATA is not set"},
	} {
		t.Run(test.name, func(t *testing.T) {
			getenv := func(name string) string { return test.env[name] }
			for at, want := range map[*place]string{&configPlace: test.config, &statePlace: test.db} {
				got, err := at.on(test.system, getenv)
				if err != nil {
					got = err.Error()
				}
				if got != want {
					t.Errorf("%s: got %q, want %q", at.name, got, want)
				}
			}
		})
	}
}

// TestTable: a table fits the terminal, and is whole where there is none.
func TestTable(t *testing.T) {
	const wide = "NAME                  KEY                 STATE\nshort                 x                   on\na name of characters  ümläut ümläut ümlä  off\n"
	const fits = "NAME            KEY             STATE\nshort           x               on\na name of char… ümläut ümläut … off\n"
	for width, want := range map[int]string{0: wide, 80: wide, 39: fits} {
		rows := [][]string{{"NAME", "KEY", "STATE"}, {"short", "x", "on"}, {"a name of characters", "ümläut ümläut ümlä", "off"}}
		var got strings.Builder
		writeTable(&got, "", width, rows)
		if squeezed(got.String()) != squeezed(want) {
			t.Errorf("in %d:\n%s", width, got.String())
		}
		for _, line := range strings.Split(got.String(), "\n") {
			if n := len([]rune(line)); width > 0 && n > width {
				t.Errorf("a line of %d characters in %d: %q", n, width, line)
			}
		}
	}
}

// squeezed is text with each run of spaces as one.
func squeezed(text string) string { return regexp.MustCompile(" +").ReplaceAllString(text, " ") }

func TestRuntimeFolders(t *testing.T) {
	for _, test := range []struct {
		name, system string
		env          map[string]string
		folders      string // that there are
		want         string
	}{
		{"a login", "linux", map[string]string{"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7", "/run/user/7/coffer /run/user/7/coffer /tmp/coffer-7"},
		{"as a client launches it", "linux", nil, "/run/user/7", "/run/user/7/coffer /tmp/coffer-7"},
		{"a place of its own", "freebsd", map[string]string{"XDG_RUNTIME_DIR": "/x"}, "", "/x/coffer /tmp/coffer-7"},
		{"relative is ignored", "linux", map[string]string{"XDG_RUNTIME_DIR": "x"}, "", "/tmp/coffer-7"},
		{"named", "linux", map[string]string{"XDG_RUNTIME_DIR": "/x", "COFFER_RUNTIME_DIR": "/own"}, "/run/user/7", "/own"},
		{"macOS", "darwin", map[string]string{"HOME": "/h", "XDG_RUNTIME_DIR": "/x"}, "", "/h/Library/Application Support/coffer/run"},
		{"Windows", "windows", map[string]string{"LOCALAPPDATA": "/local"}, "", "/local/coffer/run"},
		{"nothing on Windows", "windows", nil, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			getenv := func(name string) string { return test.env[name] }
			isFolder := func(path string) bool { return path == test.folders }
			if got := strings.Join(runtimeFoldersOn(test.system, getenv, 7, isFolder), " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestParseAge(t *testing.T) {
	for text, want := range map[string]string{
		"90d": "2160h0m0s", "2w": "336h0m0s", "36h": "36h0m0s", "1h30m": "1h30m0s",
		"": "error", "0d": "error", "-1d": "error", "d": "error", "1.5d": "error", "9999999999d": "error", "90": "error", "x": "error",
	} {
		d, err := parseAge(text)
		got := d.String()
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("parseAge(%q) = %s, want %s", text, got, want)
		}
	}
}

// TestRun: run keeps to the streams it is given.
func TestRun(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(context.Background(), []string{"coffer", "--version"}, strings.NewReader(""), &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("--version: exit %d, stderr %q", code, stderr.String())
	}
	if !strings.HasPrefix(stdout.String(), "coffer version ") {
		t.Errorf("--version printed %q", stdout.String())
	}
	version, commit, date = "1.2.3", "abc", "2026-01-02T03:04:05Z"
	t.Cleanup(func() { version, commit, date = "", "", "" })
	stdout.Reset()
	run(context.Background(), []string{"coffer", "--version"}, strings.NewReader(""), &stdout, &stderr)
	if got, want := stdout.String(), "coffer version 1.2.3 (abc, 2026-01-02T03:04:05Z)\n"; got != want {
		t.Errorf("--version of a release printed %q, want %q", got, want)
	}
	stdout.Reset()
	if code := run(context.Background(), []string{"coffer", "--nope"}, strings.NewReader(""), &stdout, &stderr); code != 2 || stdout.Len() > 0 {
		t.Errorf("--nope: exit %d, stdout %q", code, stdout.String())
	}
}
