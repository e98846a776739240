//go:build unix

package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// writeFile writes a file of the given mode, and its folders, below dir.
func writeFile(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// noLogin is the login shell of a system without one.
func noLogin(context.Context) (string, error) { return "", errNoLoginShell }

func TestLookup(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"bin/tool", "bin2/tool", "bin2/other", "work/run.sh"} {
		writeFile(t, dir, name, "", 0o700)
	}
	writeFile(t, dir, "bin/other", "", 0o600)
	writeFile(t, dir, "work/data", "", 0o600)
	for _, name := range []string{"npx", "npx.cmd", "npx.ps1", "node.exe"} {
		writeFile(t, dir, "win/"+name, "", 0o600)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	path := "PATH=" + in("bin") + "::work:" + in("bin2")
	winPath := "PATH=" + in("win")
	t.Chdir(dir)

	tests := []struct {
		name, command, cwd string
		windows            bool
		env                []string
		want, err          string
	}{
		{name: "first of two", command: "tool", env: []string{path}, want: in("bin/tool")},
		{name: "not executable is passed over", command: "other", env: []string{path}, want: in("bin2/other")},
		{name: "relative folders of PATH are not searched", command: "run.sh", env: []string{path},
			err: `command "run.sh" not found on PATH (folders: 2)`},
		{name: "no PATH", command: "tool", err: `command "tool" not found on PATH (folders: 0)`},
		{name: "absolute", command: in("work/run.sh"), want: in("work/run.sh")},
		{name: "relative to cwd", command: "./run.sh", cwd: in("work"), want: in("work/run.sh")},
		{name: "relative to coffer's folder", command: "work/run.sh", want: in("work/run.sh")},
		{name: "home", command: "~/run.sh", cwd: "/", env: []string{"HOME=" + in("work")}, want: in("work/run.sh")},
		{name: "missing file", command: "./none", cwd: in("work"),
			err: `command "./none": ` + in("work/none") + ": no such file or directory"},
		{name: "folder", command: "./work", err: `command "./work": ` + in("work") + ": is a folder"},
		{name: "file that is not executable", command: "work/data", err: `command "work/data": ` + in("work/data") + ": permission denied"},

		{name: "Windows: npx is npx.cmd", windows: true, command: "npx", env: []string{winPath}, want: in("win/npx.cmd")},
		{name: "Windows: extension given", windows: true, command: "npx.cmd", env: []string{winPath}, want: in("win/npx.cmd")},
		{name: "Windows: PATHEXT", windows: true, command: "npx", env: []string{winPath, "PATHEXT=.EXE;;.PS1"}, want: in("win/npx.ps1")},
		{name: "Windows: with its folder", windows: true, command: in("win/node"), want: in("win/node.exe")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := lookup{windows: tt.windows, env: tt.env, login: noLogin}
			got, env, err := l.find(t.Context(), tt.command, tt.cwd)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err || hintOf(err) == "" {
					t.Errorf("\n got %q, %v, hint %q\nwant %s", got, err, hintOf(err), tt.err)
				}
				return
			}
			if err != nil || got != tt.want || !slices.Equal(env, tt.env) {
				t.Errorf("\n got %q, %q, %v\nwant %q, %q", got, env, err, tt.want, tt.env)
			}
		})
	}
}

func TestLookupAsksLoginShell(t *testing.T) {
	dir := t.TempDir()
	npx := writeFile(t, dir, "nvm/npx", "", 0o700)
	writeFile(t, dir, "bin/sh", "", 0o700)
	own, theirs := filepath.Join(dir, "bin"), filepath.Join(dir, "nvm")+":/nowhere"
	env := []string{"PATH=" + own, "HOME=/h"}
	answer := func(path string, err error) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return path, err }
	}

	l := lookup{env: env, login: answer(theirs+":"+own, nil)}
	got, childEnv, err := l.find(t.Context(), "npx", "")
	want := []string{"HOME=/h", "PATH=" + theirs + ":" + own}
	if err != nil || got != npx || !slices.Equal(childEnv, want) {
		t.Errorf("got %q, %q, %v; want %q, %q", got, childEnv, err, npx, want)
	}
	l.login = answer("/nowhere", nil)
	if _, _, err = l.find(t.Context(), "npx", ""); err == nil ||
		err.Error() != `command "npx" not found on PATH (folders: 1), nor on the login shell's PATH (folders: 1)` {
		t.Errorf("not there either: %v", err)
	}
	l.login = answer("", errors.New("rc is broken"))
	if _, _, err = l.find(t.Context(), "npx", ""); err == nil || !strings.HasSuffix(err.Error(), "its own: rc is broken") {
		t.Errorf("shell fails: %v", err)
	}
	l.login = func(context.Context) (string, error) { t.Error("asked without need"); return "", nil }
	if _, childEnv, err = l.find(t.Context(), "sh", ""); err != nil || !slices.Equal(childEnv, env) {
		t.Errorf("on its own PATH: %q, %v", childEnv, err)
	}
}

// TestLocate: it is told on which PATH a program was found.
func TestLocate(t *testing.T) {
	dir := t.TempDir()
	npx := writeFile(t, dir, "nvm/npx", "", 0o700)
	sh := writeFile(t, dir, "bin/sh", "", 0o700)
	l := lookup{
		env:   []string{"PATH=" + filepath.Join(dir, "bin")},
		login: func(context.Context) (string, error) { return filepath.Join(dir, "nvm"), nil },
	}
	for _, test := range []struct {
		command string
		ownPATH bool
		path    string
		how     Found
	}{
		{"sh", false, sh, FoundOnPATH},
		{"sh", true, sh, FoundOnOwnPATH},
		{"npx", false, npx, FoundOnLogin},
		{"npx", true, npx, FoundOnLogin},
		{npx, true, npx, FoundByPath},
		{"none", false, "", ""},
	} {
		path, how, err := l.locate(t.Context(), test.command, "", test.ownPATH)
		if path != test.path || how != test.how || (err != nil) != (test.path == "") {
			t.Errorf("%s: %q, %q, %v; want %q, %q", test.command, path, how, err, test.path, test.how)
		}
	}
	s := Spec{Command: "sh", Env: map[string]string{"PATH": filepath.Join(dir, "bin")}}
	if path, how, err := s.Locate(t.Context(), nil); path != sh || how != FoundOnOwnPATH || err != nil {
		t.Errorf("with a PATH in env: %q, %q, %v", path, how, err)
	}
}

func TestLoginShellIsAskedOnce(t *testing.T) {
	asked := 0
	left, leave := context.WithCancel(t.Context())
	s := newLoginShell(func(ctx context.Context) (string, error) {
		if asked++; asked == 1 {
			leave()
			return "", ctx.Err()
		}
		return "/p", errors.New("also remembered")
	})
	if _, err := s.path(left); !errors.Is(err, context.Canceled) {
		t.Errorf("caller that left: %v", err)
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if path, err := s.path(t.Context()); path != "/p" || err == nil {
				t.Errorf("got %q, %v", path, err)
			}
		})
	}
	wg.Wait()
	if asked != 2 {
		t.Errorf("asked %d times, want 2: the caller that left, and once for all others", asked)
	}
}

// fakeShell writes a shell that runs start-up files of the given text, then
// what it was asked.
func fakeShell(t *testing.T, startup string) string {
	script := "#!/bin/sh\n" + `[ "$1 $2 $3" = "-l -i -c" ] || exit 9` + "\n" + startup + "\n" + `eval "$4"` + "\n"
	return writeFile(t, t.TempDir(), "shell", script, 0o700)
}

func TestShellPath(t *testing.T) {
	const slow = 10 * time.Second
	tests := []struct {
		name, startup string
		timeout       time.Duration
		want, err     string // err: a part of it
	}{
		{name: "PATH", startup: "export PATH=/login:$PATH", timeout: slow, want: "/login:" + os.Getenv("PATH")},
		{name: "noise", startup: "export PATH=/login:$PATH; echo hello; printf 'no newline'; echo oops >&2", timeout: slow,
			want: "/login:" + os.Getenv("PATH")},
		{name: "stdin is empty", startup: "cat; [ ! -t 0 ]", timeout: slow, want: os.Getenv("PATH")},
		{name: "a child keeps stdout open", startup: "sleep 60 &", timeout: slow, want: os.Getenv("PATH")},
		{name: "exits", startup: "echo bye; exit 3", timeout: slow, err: "exit status 3"},
		{name: "says nothing", startup: "exit 0", timeout: slow, err: "printed no PATH"},
		{name: "has no PATH", startup: "printenv() { :; }", timeout: slow, err: "printed no PATH"},
		{name: "prints for ever", startup: "yes", timeout: slow, err: "printed no PATH"},
		{name: "hangs", startup: "sleep 60", timeout: 200 * time.Millisecond, err: "took more than 200ms"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			got, err := shellPath(t.Context(), fakeShell(t, tt.startup), tt.timeout)
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %q, %v, want an error with %q", got, err, tt.err)
			}
			if tt.err == "" && (err != nil || got != tt.want) {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
	if _, err := shellPath(t.Context(), "/no/such/shell", slow); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such shell: %v", err)
	}
}

// What start-up files leave behind is gone when the call returns.
func TestShellPathKillsGroup(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	for _, end := range []string{"", "exit 1", "wait"} { // answers, fails, hangs
		shell := fakeShell(t, fmt.Sprintf("sleep 60 & echo $! >%s; %s", pidFile, end))
		shellPath(t.Context(), shell, 500*time.Millisecond)
		text, err := os.ReadFile(pidFile)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if !eventuallyGone(pid) {
			t.Errorf("%q: process %d is still there", end, pid)
		}
	}
}

// eventuallyGone waits for a killed orphan to end; who reaps it is not ours.
func eventuallyGone(pid int) bool {
	for range 200 {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(stat), ") ")
		if strings.HasPrefix(rest, "Z") || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// Real shells answer, from the files that people write: those that the tests need
// anyway, and others where they are installed.
func TestShellPathOfRealShells(t *testing.T) {
	files := map[string]string{"bash": ".bash_profile", "sh": ".profile", "zsh": ".zshrc", "dash": ".profile"}
	needed := []string{"bash", "sh"}
	for name, file := range files {
		shell, err := exec.LookPath(name)
		if err != nil && !slices.Contains(needed, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if err != nil {
				t.Fatal(err)
			}
			home := t.TempDir()
			writeFile(t, home, file, "export PATH=/from/login:$PATH\n", 0o600)
			t.Setenv("HOME", home)
			t.Setenv("SHELL", shell)
			got, err := askLoginShell(t.Context())
			if err != nil || !strings.HasPrefix(got, "/from/login:") {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// LookPath as a whole: a bare command that only the login shell knows.
func TestLookPath(t *testing.T) {
	npx := writeFile(t, t.TempDir(), "npx-of-test", "", 0o700)
	t.Setenv("SHELL", fakeShell(t, "export PATH="+filepath.Dir(npx)+":$PATH"))
	saved := login
	t.Cleanup(func() { login = saved })
	login = newLoginShell(askLoginShell)

	got, env, err := LookPath(t.Context(), "npx-of-test", "", []string{"PATH=/nowhere"})
	if err != nil || got != npx {
		t.Fatalf("got %q, %v, want %q", got, err, npx)
	}
	path, _ := lookupEnv(env, "PATH")
	if !strings.HasPrefix(path, filepath.Dir(npx)+":") || !strings.HasSuffix(path, ":/nowhere") {
		t.Errorf("PATH of the child: %q", path)
	}
}
