package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"coffer/prefs"
)

// killable is a command that writes files, and the world that it is run in.
type killable struct {
	name    string
	args    []string
	stdin   string
	files   map[string]string // by path in the world's folder
	prepare []string          // a command to run first
	again   int               // the exit code where nothing is left to do
	undo    []string          // a command that brings back the clients' files, to the byte
}

const (
	killConfig = `{
  // the team's
  "mcpServers": {
    "github": { "command": "node", "args": ["gh.js"] },
    "fetch": { "command": "uvx", "args": ["mcp-server-fetch"], "disabled": true },
    "old": { "command": "x" },
  }
}
`
	killJSON = `{
  // mine
  "mcpServers": {
    "github": { "command": "node", "args": ["gh.js"] }, // of work
    "mine":   { "command": "node", "args": ["other.js"] },
  }
}
`
	killTOML = `model = "gpt-5" # the usual

[mcp_servers.github] # of work
command = "node"
args = [
  "gh.js",
]

[tui]
theme = "dark"
`
)

// killables are the commands that write what a person would miss.
func killables() []killable {
	var lines, rows []string
	for i := range 60 {
		lines = append(lines, fmt.Sprintf(`["github", "tool", "t%d", "%s"]`, i, onOff(i%2 == 0)))
		rows = append(rows, fmt.Sprintf(`{"server": "github", "type": "tool", "key": "t%[1]d", "enabled": %[2]t, "first_seen_at": %[3]q, "last_seen_at": %[3]q}`, i, i%3 == 0, "2020-01-01T00:00:00.000Z"))
	}
	config := map[string]string{"config.json": killConfig}
	exported := map[string]string{"config.json": killConfig, "export.json": `{"version": 1, "preferences": [` + strings.Join(rows, ",\n") + `]}`}
	world := map[string]string{"config.json": killConfig, "home/.cursor/mcp.json": killJSON, "home/.codex/config.toml": killTOML}
	install := []string{"install", "cursor", "codex", "--replace", "--yes"}
	uninstall := []string{"uninstall", "cursor", "codex", "--yes"}
	load := []string{"prefs", "import", "export.json"}
	return []killable{
		{name: "add", args: []string{"mcp", "add", "new", "--", "x"}, files: config, again: exitError},
		{name: "add the first", args: []string{"mcp", "add", "new", "--", "x"}, again: exitError},
		{name: "remove", args: []string{"mcp", "remove", "old"}, files: config, again: exitNotFound},
		{name: "enable", args: []string{"mcp", "enable", "fetch"}, files: config},
		{name: "disable", args: []string{"mcp", "disable", "old"}, files: config},
		{name: "import", args: []string{"import"}, files: world},
		{name: "install", args: install, files: world, undo: uninstall},
		{name: "uninstall", args: uninstall, files: world, prepare: install},
		{name: "prefs set", args: []string{"prefs", "set", "-"}, stdin: strings.Join(lines, "\n"), files: exported, prepare: load},
		{name: "prefs import", args: load, files: exported},
		{name: "prefs prune", args: []string{"prefs", "prune", "--unseen-for", "90d"}, files: exported, prepare: load},
	}
}

const (
	killsAtChanges = 8 // at most, over all changes that a command makes
	killsRandomly  = 2
	killsTried     = 100 // at most, until one comes before the command's end
)

// TestCommandsKilled kills each command that writes, at the changes that it makes to
// its folders and at random moments. Every file is then the old or the new one, in
// whole. The same command run again ends where one that nobody killed ends, and
// leaves no temporary file of the dead.
func TestCommandsKilled(t *testing.T) {
	for _, k := range killables() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			k.test(t)
		})
	}
}

func (k killable) test(t *testing.T) {
	w := &killWorld{root: t.TempDir(), binary: cofferBinary(t)}
	for path, text := range k.files {
		w.write(t, path, []byte(text))
	}
	if k.prepare != nil {
		w.mustRun(t, k.prepare, "")
	}
	w.raw, w.before = w.files(t), w.look(t)
	began := time.Now()
	changes, _ := w.runUntil(t, k, make(chan time.Time), 0)
	usual := time.Since(began)
	w.after = w.look(t)
	if maps.Equal(w.after.texts, w.before.texts) {
		t.Fatal("the command changes nothing")
	}
	some := rand.Perm(changes)
	some = some[:min(changes, killsAtChanges)]
	killed, runs := 0, 0
	for ; runs < len(some)+killsRandomly || killed == 0 && runs < killsTried; runs++ {
		w.reset(t)
		var moment <-chan time.Time
		change := 0
		if runs < len(some) {
			change = some[runs] + 1
		} else {
			moment = time.After(rand.N(usual))
		}
		if _, dead := w.runUntil(t, k, moment, change); dead {
			killed++
		}
		w.checkKilled(t, k)
		if t.Failed() {
			t.Fatalf("killed at change %d of %d (0: at a random moment of %v)", change, changes, usual)
		}
	}
	t.Logf("%d of %d runs were killed, at %d of %d changes and within %v", killed, runs, len(some), changes, usual)
	if killed == 0 {
		t.Error("no run was killed before its end")
	}
}

// killWorld is a folder with all that a command reads and writes.
type killWorld struct {
	root, binary  string
	raw           map[string][]byte // the files to begin with
	before, after sight             // what there is before and after the command
}

func (w *killWorld) path(elem string) string { return filepath.Join(w.root, filepath.FromSlash(elem)) }

func (w *killWorld) write(t *testing.T, path string, text []byte) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(w.path(path)), 0o700)
	if err == nil {
		err = os.WriteFile(w.path(path), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reset makes the world what it was to begin with.
func (w *killWorld) reset(t *testing.T) {
	t.Helper()
	for path := range w.files(t) {
		if err := os.Remove(w.path(path)); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range w.raw {
		w.write(t, path, text)
	}
}

// files are the texts of all files, by path.
func (w *killWorld) files(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	root := os.DirFS(w.root)
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all[path], err = fs.ReadFile(root, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sight is what a person has: the texts of files, with the preferences as one of
// them; and what coffer left beside them.
type sight struct {
	texts     map[string]string
	backups   []backupSight
	temporary []string
}

// backupSight is a backup of the file at path.
type backupSight struct{ path, suffix, text string }

const killDB = "coffer.db"

func (w *killWorld) look(t *testing.T) sight {
	t.Helper()
	s := sight{texts: map[string]string{}}
	for path, text := range w.files(t) {
		suffix := filepath.Ext(path)
		switch {
		case strings.HasPrefix(path, killDB), suffix == ".lock":
		case suffix == ".tmp":
			s.temporary = append(s.temporary, path)
		case suffix == backupSuffix, suffix == replacedSuffix:
			stamped := strings.TrimSuffix(path, suffix)
			s.backups = append(s.backups, backupSight{strings.TrimSuffix(stamped, filepath.Ext(stamped)), suffix, string(text)})
		default:
			s.texts[path] = string(text)
		}
	}
	if _, err := os.Stat(w.path(killDB)); err == nil {
		if choices := w.preferences(t); choices != "" {
			s.texts[killDB] = choices
		}
	}
	return s
}

// preferences are those in the database, which must be sound.
func (w *killWorld) preferences(t *testing.T) string {
	t.Helper()
	store, err := prefs.Open(t.Context(), w.path(killDB), schema, prefs.Options{BusyTimeout: liveLimit})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := store.Rows(t.Context(), prefs.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, r := range rows {
		fmt.Fprintln(&all, r.Key, r.Enabled)
	}
	return all.String()
}

func (w *killWorld) command(args []string, stdin string) *exec.Cmd {
	cmd := exec.Command(w.binary, args...)
	cmd.Dir, cmd.Stdin = w.root, strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GORACE="+atOnce, "HOME="+w.path("home"), "USERPROFILE="+w.path("home"), "APPDATA="+w.path("home"),
		"XDG_CONFIG_HOME=", "CODEX_HOME=", "COFFER_CONFIG="+w.path("config.json"), "COFFER_DB="+w.path(killDB))
	return cmd
}

// mustRun runs a command to its end.
func (w *killWorld) mustRun(t *testing.T, args []string, stdin string) {
	t.Helper()
	if out, err := w.command(args, stdin).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// runUntil runs k's command and kills it at the moment, or if that is nil at the
// change of that number, of those that it makes to the folders. It returns how many
// changes there were and whether the kill came before the end.
func (w *killWorld) runUntil(t *testing.T, k killable, moment <-chan time.Time, change int) (changes int, killed bool) {
	t.Helper()
	watcher, err := fsnotify.NewBufferedWatcher(1000)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	folders := []string{w.root}
	for path := range w.raw {
		folders = append(folders, filepath.Dir(w.path(path)))
	}
	for _, folder := range folders { // one that it has, it does not add again
		if err := watcher.Add(folder); err != nil {
			t.Fatal(err)
		}
	}
	cmd := w.command(k.args, k.stdin)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	kill := func() {
		killed = true
		cmd.Process.Kill()
	}
	for {
		select {
		case <-watcher.Events:
			if changes++; moment == nil && changes == change {
				kill()
			}
		case <-moment:
			kill()
		case err := <-ended:
			if err != nil && !killed {
				t.Fatalf("%v: %v: %s", k.args, err, &said)
			}
			return changes + len(watcher.Events), err != nil
		}
	}
}

// checkKilled checks what a kill left, and that the same command makes up for it.
func (w *killWorld) checkKilled(t *testing.T, k killable) {
	t.Helper()
	now := w.look(t)
	for path := range w.before.texts {
		if _, there := now.texts[path]; !there && w.after.texts[path] != "" {
			t.Errorf("%s is gone", path)
		}
	}
	for path, text := range now.texts {
		if text != w.before.texts[path] && text != w.after.texts[path] {
			t.Errorf("%s is neither the old nor the new one:\n%s", path, text)
		}
		// What was moved out is in a backup, whatever comes next.
		moved := backupSight{path, replacedSuffix, w.before.texts[path]}
		if slices.Contains(w.after.backups, moved) && text != moved.text && !slices.Contains(now.backups, moved) {
			t.Errorf("%s is the new one, and there is no backup with what was moved out: %v", path, now.backups)
		}
	}
	for _, b := range now.backups {
		if b.text != w.before.texts[b.path] && !slices.ContainsFunc(w.before.backups, func(old backupSight) bool { return old.path == b.path && old.text == b.text }) {
			t.Errorf("a backup of %s is not whole:\n%s", b.path, b.text)
		}
	}

	done := maps.Equal(now.texts, w.after.texts)
	if out, err := w.command(k.args, k.stdin).CombinedOutput(); err != nil {
		exit, ended := err.(*exec.ExitError)
		if !ended || !done || exit.ExitCode() != k.again {
			t.Errorf("run again (done: %t): %v: %s", done, err, out)
		}
	}
	then := w.look(t)
	if !maps.Equal(then.texts, w.after.texts) {
		t.Errorf("run again, it ends with %q, want %q", then.texts, w.after.texts)
	}
	if len(then.temporary) > 0 {
		t.Errorf("temporary files stay: %v", then.temporary)
	}
	if got, want := then.toPutBack(), w.after.toPutBack(); !slices.Equal(got, want) {
		t.Errorf("%q are to be put back, want %q", got, want)
	}
	if k.undo != nil {
		w.mustRun(t, k.undo, "")
		if undone := w.look(t); !maps.Equal(undone.texts, w.before.texts) || undone.toPutBack() != nil {
			t.Errorf("undone, there is %q, want %q", undone.texts, w.before.texts)
		}
	}
}

// toPutBack are the files with servers that a later uninstall puts back.
func (s sight) toPutBack() []string {
	var all []string
	for _, b := range s.backups {
		if b.suffix == replacedSuffix {
			all = append(all, b.path)
		}
	}
	slices.Sort(all)
	return all
}
