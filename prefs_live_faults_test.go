package main

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coffer/prefs"
)

// The whole of what a person reads; PATH and FOLDER stand for the file's.
const (
	logGone = `WRN preferences: the last good ones stay in force error="preferences PATH: deleted while in use" ` +
		`hint="put the file back; or run a coffer command that sets a preference, or start a client anew, to begin a new file"`
	logDamaged = `WRN preferences: the last good ones stay in force error="preferences PATH: damaged, or not a preference file: file is not a database" ` +
		`hint="nothing was changed; put a sound copy in its place, or move it and its -wal file away to start afresh"`
	logNewer = `WRN preferences: the last good ones stay in force error="preferences PATH: written by a newer coffer: schema 7, this one knows 1" ` +
		`hint="update this coffer, or name another file with --db; nothing was changed"`
	logUnreadable = `WRN preferences cannot be read: each server's auto_enable_new_capabilities decides error="preferences PATH: cannot be read: not a directory" ` +
		`hint="make the file and its folder FOLDER readable for you, or name another file with --db"`
	logLocked = `WRN preferences cannot be read: each server's auto_enable_new_capabilities decides error="preferences PATH: locked by another program" ` +
		`hint="close the program that has the file open, or try again"`
	logUnwritten = `WRN preferences cannot be written: what servers list is not recorded error="preferences PATH: locked by another program" ` +
		`hint="close the program that has the file open, or try again"`
	newerError = `coffer: error: preferences PATH: written by a newer coffer: schema 7, this one knows 1
coffer: hint: update this coffer, or name another file with --db; nothing was changed
`
	folderError = `coffer: error: preferences PATH: damaged, or not a preference file: not a regular file
coffer: hint: nothing was changed; put a sound copy in its place, or move it and its -wal file away to start afresh
`
)

// says returns text with the names of the world's files in it.
func (w *liveWorld) says(text string) string {
	return strings.NewReplacer("PATH", w.db, "FOLDER", filepath.Dir(w.db)).Replace(text)
}

// warnings returns the lines of c's log that are no mere information.
func (c *liveCoffer) warnings(t *testing.T) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(c.logged(t)) {
		if !strings.HasPrefix(line, "INF ") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// warned fails the test unless c's log has exactly these warnings.
func (w *liveWorld) warned(t *testing.T, c *liveCoffer, want ...string) {
	t.Helper()
	got := strings.Join(c.warnings(t), "\n")
	if want := w.says(strings.Join(want, "\n")); got != want {
		t.Errorf("log:\n got %s\nwant %s", got, want)
	}
}

// keepAsking asks c all the time for a while, and until its log has n warnings.
// No request may be slow: none waits for the file.
func keepAsking(t *testing.T, c *liveCoffer, n int, ask func()) {
	t.Helper()
	const while, patience = 1500 * time.Millisecond, 3 * time.Second // ten polls and more; a busy machine
	began, last := time.Now(), time.Now()
	for time.Since(began) < while || len(c.warnings(t)) < n {
		ask()
		if took := time.Since(last); took > patience {
			t.Errorf("answered after %v", took)
		}
		last = time.Now()
		if t.Failed() {
			return
		}
		if time.Since(began) > liveLimit {
			t.Fatalf("log: %q, want %d warnings", c.warnings(t), n)
		}
	}
}

// shows fails the test unless c lists exactly these tools, and calls those.
func shows(t *testing.T, c *liveCoffer, on, off []string) {
	t.Helper()
	a, err := c.ask("tools/list", `{}`)
	if err != nil || a.Error != nil || strings.Contains(string(a.Result), "coffer/unavailable") {
		t.Fatalf("tools/list: %v %v", a, err)
	}
	for want, names := range map[bool][]string{true: on, false: off} {
		for _, name := range names {
			if got := strings.Contains(string(a.Result), `"`+name+`"`); got != want {
				t.Errorf("%s is listed: %t, want %t: %s", name, got, want, a.Result)
			}
			a, err := c.callTool(name)
			expect(t, "tool "+name, want, a, err)
		}
	}
}

// hold is a foreign program that has the database locked; release lets go.
func (w *liveWorld) hold(t *testing.T, how string) (release func()) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+w.db+"?_busy_timeout=10000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(how); err != nil {
		t.Fatal(err)
	}
	return func() { db.Close() }
}

// TestLivePrefsClosed: where new capabilities are off, what was never listed is
// refused, too; with a file that cannot be read nothing of that server is there.
func TestLivePrefsClosed(t *testing.T) {
	on := []string{"a__x", "a__y"}
	off := []string{"closed__x", "closed__y", "closed__never"}
	refuses := func(t *testing.T, c *liveCoffer) {
		t.Helper()
		for _, p := range []probe{
			{method: "tools/call", params: `{"name":"closed__never"}`},
			{method: "prompts/get", params: `{"name":"closed__never"}`},
			{method: "prompts/get", params: `{"name":"closed__p"}`},
			{method: "resources/read", params: `{"uri":"coffer://closed/mem://never"}`},
			{method: "resources/read", params: `{"uri":"coffer://closed/mem://r"}`},
			{method: "resources/subscribe", params: `{"uri":"coffer://closed/mem://r"}`},
			{method: "completion/complete", params: `{"ref":{"type":"ref/prompt","name":"closed__p"},"argument":{"name":"n","value":""}}`},
		} {
			p.obeyed(t, c, false)
		}
		for method := range listMethods {
			a, err := c.ask(method, `{}`)
			if err != nil || a.Error != nil || strings.Contains(string(a.Result), "closed") {
				t.Errorf("%s: %v %v", method, a, err)
			}
		}
	}
	refusedCommand := func(t *testing.T, w *liveWorld, tool, want string) {
		t.Helper()
		if code, stdout, stderr := w.command(t, "mcp", "call", "closed", tool); code != exitError || stdout != "" || !strings.HasPrefix(stderr, w.says(want)) {
			t.Errorf("mcp call closed %s: exit %d, %s%s, want %s", tool, code, stdout, stderr, want)
		}
	}

	t.Run("never listed", func(t *testing.T) {
		w := newLiveWorld(t, everyKind(), "a", "closed")
		refusedCommand(t, w, "never", `coffer: error: tool "never" of closed is switched off: it was never listed`)
		c := w.start(t, 1)[0]
		refuses(t, c)
		shows(t, c, on, off)
		refusedCommand(t, w, "x", `coffer: error: tool "x" of closed is switched off`)
		store := w.open(t)
		choose(t, store, true, prefs.Key{Server: "closed", Type: prefs.Tool, Key: "x"})
		shows(t, c, append(on, "closed__x"), off[1:])
		w.warned(t, c)
	})
	t.Run("cannot be recorded", func(t *testing.T) {
		w := newLiveWorld(t, everyKind(), "a", "closed")
		w.open(t)
		release := w.hold(t, "BEGIN IMMEDIATE")
		c := w.start(t, 1)[0]
		refuses(t, c)
		shows(t, c, on, off)
		began := time.Now()
		if err := c.leave(); err != nil || time.Since(began) > 3500*time.Millisecond {
			t.Errorf("left after %v with %v", time.Since(began), err)
		}
		release()
	})
	t.Run("cannot be read", func(t *testing.T) {
		w := newLiveWorld(t, everyKind(), "a", "closed")
		w.db = filepath.Join(w.config, "coffer.db") // in a file that is no folder
		c := w.start(t, 1)[0]
		keepAsking(t, c, 1, func() {
			refuses(t, c)
			shows(t, c, on, off)
		})
		w.warned(t, c, logUnreadable)
		refusedCommand(t, w, "x", "coffer: error: preferences PATH: cannot be read: not a directory\ncoffer: hint: ")
	})
	t.Run("locked against readers", func(t *testing.T) {
		w := newLiveWorld(t, everyKind(), "a", "closed")
		store := w.open(t)
		choose(t, store, true, prefs.Key{Server: "closed", Type: prefs.Tool, Key: "x"})
		choose(t, store, false, prefs.Key{Server: "a", Type: prefs.Tool, Key: "ghost"})
		store.Close()
		release := w.hold(t, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; UPDATE mcp_refresh_generations SET refresh = 0")
		c := w.start(t, 1)[0]
		keepAsking(t, c, 1, func() { shows(t, c, on, off) })
		w.warned(t, c, logLocked)
		began := time.Now()
		release()
		await(t, []*liveCoffer{c}, began, toolsChanged)
		shows(t, c, append(on, "closed__x"), off[1:])
		w.warned(t, c, logLocked)
	})
	t.Run("a folder in its place", func(t *testing.T) {
		w := newLiveWorld(t, everyKind(), "a", "closed")
		if err := os.Mkdir(w.db, 0o700); err != nil {
			t.Fatal(err)
		}
		if code, stdout, stderr := w.command(t, "serve"); code != exitError || stdout != "" || stderr != w.says(folderError) {
			t.Errorf("exit %d, %q, %q", code, stdout, stderr)
		}
		refusedCommand(t, w, "x", folderError)
	})
}

// TestLivePrefsForeignLock: a foreign program holds the write lock for seconds.
func TestLivePrefsForeignLock(t *testing.T) {
	for _, how := range []string{"BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"} {
		t.Run(how, func(t *testing.T) {
			w := newLiveWorld(t, everyKind(), "a")
			c, store := w.start(t, 1)[0], w.open(t)
			choose(t, store, false, prefs.Key{Server: "a", Type: prefs.Tool, Key: "x"})
			release := w.hold(t, how)
			// One that starts now has lists to record, and says that it cannot.
			late := w.start(t, 1)[0]
			keepAsking(t, late, 1, func() {
				shows(t, c, []string{"a__y"}, []string{"a__x"})
				shows(t, late, []string{"a__y"}, []string{"a__x"})
			})
			w.warned(t, late, logUnwritten)
			w.warned(t, c)
			release()
			choose(t, store, true, prefs.Key{Server: "a", Type: prefs.Tool, Key: "x"})
			shows(t, c, []string{"a__x", "a__y"}, nil)
		})
	}
}

// TestLivePrefsFileReplaced: the file is deleted, damaged, replaced, while
// coffers run.
func TestLivePrefsFileReplaced(t *testing.T) {
	tool := prefs.Key{Server: "a", Type: prefs.Tool, Key: "x"}
	on, off := []string{"a__y"}, []string{"a__x"} // as long as the last good ones rule
	for _, test := range []struct {
		name    string
		replace func(t *testing.T, w *liveWorld)
		log     []string
	}{
		{"deleted", func(t *testing.T, w *liveWorld) { removeFile(t, w.db) }, []string{logGone}},
		{"deleted with its side files", func(t *testing.T, w *liveWorld) {
			for _, side := range []string{"-wal", "-shm", ""} {
				removeFile(t, w.db+side)
			}
		}, []string{logGone}},
		{"damaged", func(t *testing.T, w *liveWorld) {
			writeFile(t, w.db+".new", strings.Repeat("a letter to my aunt\n", 500))
			renameFile(t, w.db+".new", w.db)
		}, []string{logDamaged}},
		{"newer", func(t *testing.T, w *liveWorld) {
			w.newFile(t, w.db+".new", "PRAGMA user_version = 7")
			renameFile(t, w.db+".new", w.db)
		}, []string{logNewer}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newLiveWorld(t, everyKind(), "a")
			all, store := w.start(t, 2), w.open(t)
			choose(t, store, false, tool)
			await(t, all, time.Now(), toolsChanged) // else it is not what they know last
			store.Close()
			test.replace(t, w)
			for _, c := range all {
				keepAsking(t, c, len(test.log), func() { shows(t, c, on, off) })
				w.warned(t, c, test.log...)
			}
			// A sound file in its place rules from the next request on.
			w.newFile(t, w.db+".sound", "INSERT INTO mcp_capability_preferences VALUES ('a', 'tool', 'y', 0, NULL, NULL)")
			renameFile(t, w.db+".sound", w.db)
			for _, c := range all {
				shows(t, c, off, on)
				w.warned(t, c, test.log...)
			}
		})
	}
	t.Run("a command begins a new one", func(t *testing.T) {
		w := newLiveWorld(t, everyKind(), "a")
		all := w.start(t, 2)
		removeFile(t, w.db)
		if code, _, stderr := w.command(t, "prefs", "set", "a", "tool", "x", "off"); code != exitDone {
			t.Fatalf("prefs set: exit %d: %s", code, stderr)
		}
		for _, c := range all {
			shows(t, c, on, off)
		}
	})
	t.Run("newer at start", func(t *testing.T) {
		w := newLiveWorld(t, everyKind(), "a")
		w.newFile(t, w.db, "PRAGMA user_version = 7")
		before, _ := os.ReadFile(w.db)
		for _, command := range [][]string{{"serve"}, {"prefs", "set", "a", "tool", "x", "off"}} {
			if code, stdout, stderr := w.command(t, command...); code != exitError || stdout != "" || stderr != w.says(newerError) {
				t.Errorf("%v: exit %d, %q, %q", command, code, stdout, stderr)
			}
		}
		if after, _ := os.ReadFile(w.db); string(after) != string(before) {
			t.Error("the file was changed")
		}
	})
}

// newFile makes a preference file at path, with one more statement done.
func (w *liveWorld) newFile(t *testing.T, path, statement string) {
	t.Helper()
	store, err := prefs.Open(t.Context(), path, schema, prefs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store.Close()
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", statement, err))
	}
}

func removeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

func renameFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
