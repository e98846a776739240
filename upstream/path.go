package upstream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
)

// LookPath finds the program that a server's command names, and the
// environment to start it with. env is what Spec.Environ returned, cwd the
// folder that the child starts in ("" for coffer's own).
//
// A command with a path in it is taken relative to cwd, with a leading ~/ as
// the user's home. A bare one is searched in the PATH of env; where that fails
// on Unix, in the PATH of the user's login shell, because a client started
// from a desktop hands us a bare one that lacks nvm, Homebrew and the like.
// The child then gets that PATH too, with the folders of its own behind it:
// npx is of no use without node. On Windows the extensions of PATHEXT are
// tried (npx is npx.cmd), and the current folder is not searched.
//
// The login shell is asked once per process, for 3 s at most, by the caller
// whose search comes first; ctx ends that, and the wait for it. Other errors
// are *HintError.
func LookPath(ctx context.Context, command, cwd string, env []string) (path string, childEnv []string, err error) {
	l := lookup{windows: runtime.GOOS == "windows", env: env, login: login.path}
	return l.find(ctx, command, cwd)
}

// Found says how a server's program was found.
type Found string

// How a program is found.
const (
	FoundByPath    Found = "path"        // the config says where it is
	FoundOnPATH    Found = "PATH"        // on the PATH that coffer was started with
	FoundOnOwnPATH Found = "env PATH"    // on the PATH in the server's env
	FoundOnLogin   Found = "login shell" // on no other PATH than the login shell's
)

// Locate finds the program that a server of TransportStdio starts, as connecting
// does; parent is coffer's own environment.
func (s *Spec) Locate(ctx context.Context, parent []string) (path string, how Found, err error) {
	windows := runtime.GOOS == "windows"
	ownPATH := false
	for name := range s.Env {
		ownPATH = ownPATH || name == "PATH" || windows && strings.EqualFold(name, "PATH")
	}
	l := lookup{windows: windows, env: s.Environ(parent), login: login.path}
	return l.locate(ctx, s.Command, s.Cwd, ownPATH)
}

// locate is Locate; ownPATH says that the PATH of l.env is the server's own.
func (l lookup) locate(ctx context.Context, command, cwd string, ownPATH bool) (path string, how Found, err error) {
	path, childEnv, err := l.find(ctx, command, cwd)
	if err != nil {
		return "", "", err
	}
	before, _ := lookupEnv(l.env, "PATH")
	after, _ := lookupEnv(childEnv, "PATH")
	switch {
	case l.hasFolder(command):
		how = FoundByPath
	case after != before:
		how = FoundOnLogin
	case ownPATH:
		how = FoundOnOwnPATH
	default:
		how = FoundOnPATH
	}
	return path, how, nil
}

// lookup is one search for a program.
type lookup struct {
	windows bool
	env     []string
	login   func(context.Context) (string, error) // the PATH of the login shell
}

// find is LookPath.
func (l lookup) find(ctx context.Context, command, cwd string) (string, []string, error) {
	command = expandHome(command, func(name string) (string, bool) { return lookupEnv(l.env, name) })
	if l.hasFolder(command) {
		path, err := l.explicit(command, cwd)
		return path, l.env, err
	}
	own, _ := lookupEnv(l.env, "PATH")
	if path := l.search(command, own); path != "" {
		return path, l.env, nil
	}
	missing := fmt.Errorf("command %q not found on PATH (folders: %d)", command, len(folders(own)))
	theirs, err := l.login(ctx)
	switch {
	case ctx.Err() != nil:
		return "", nil, context.Cause(ctx)
	case errors.Is(err, errNoLoginShell):
	case err != nil:
		missing = fmt.Errorf("%w, and the login shell did not tell its own: %w", missing, err)
	default:
		if path := l.search(command, theirs); path != "" {
			return path, setEnv(l.env, "PATH", joinPath(theirs, own)), nil
		}
		missing = fmt.Errorf("%w, nor on the login shell's PATH (folders: %d)", missing, len(folders(theirs)))
	}
	return "", nil, &HintError{Err: missing, Hint: "install it, write its whole path as command, or set PATH in env"}
}

// hasFolder reports whether command says itself where the program is.
func (l lookup) hasFolder(command string) bool {
	return strings.Contains(command, "/") || l.windows && strings.ContainsAny(command, `\:`)
}

// explicit checks a command that says where it is.
func (l lookup) explicit(command, cwd string) (string, error) {
	path := command
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("command %q: %w", command, err)
	}
	for _, candidate := range l.candidates(path) {
		if err = l.runnable(candidate); err == nil {
			return candidate, nil
		}
	}
	hint := "check the path; one that is relative starts at cwd"
	if errors.Is(err, fs.ErrPermission) {
		hint = "make the file executable: chmod +x"
	}
	return "", &HintError{Err: fmt.Errorf("command %q: %s: %w", command, path, err), Hint: hint}
}

// search returns the program that a bare command names in a list of folders,
// or "".
func (l lookup) search(command, list string) string {
	for _, dir := range folders(list) {
		for _, candidate := range l.candidates(filepath.Join(dir, command)) {
			if l.runnable(candidate) == nil {
				return candidate
			}
		}
	}
	return ""
}

// candidates returns the files that path may stand for: itself, or on Windows
// the ones with an extension that makes a program.
func (l lookup) candidates(path string) []string {
	if !l.windows {
		return []string{path}
	}
	list, ok := lookupEnv(l.env, "PATHEXT")
	if !ok || list == "" {
		list = ".com;.exe;.bat;.cmd" // as os/exec
	}
	var candidates []string
	for ext := range strings.SplitSeq(strings.ToLower(list), ";") {
		switch {
		case ext == "":
		case strings.HasSuffix(strings.ToLower(path), ext):
			return []string{path}
		default:
			candidates = append(candidates, path+ext)
		}
	}
	return candidates
}

// runnable returns nil if path is a file that can be started.
func (l lookup) runnable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		if bare, ok := errors.AsType[*fs.PathError](err); ok {
			err = bare.Err // the caller names the path
		}
		return err
	case info.IsDir():
		return errors.New("is a folder")
	case !l.windows && info.Mode()&0o111 == 0:
		return fs.ErrPermission
	}
	return nil
}

// folders splits a PATH. Relative entries, the empty one among them, are left
// out: where coffer happens to run must not decide which program is started.
func folders(list string) []string {
	return slices.DeleteFunc(filepath.SplitList(list), func(dir string) bool { return !filepath.IsAbs(dir) })
}

// joinPath returns a PATH of the folders of first, then those only in second.
func joinPath(first, second string) string {
	joined := folders(first)
	for _, dir := range folders(second) {
		if !slices.Contains(joined, dir) {
			joined = append(joined, dir)
		}
	}
	return strings.Join(joined, string(os.PathListSeparator))
}

// errNoLoginShell says that this system has no such thing.
var errNoLoginShell = errors.New("no login shell")

// login is this process's login shell: its answer holds for every server.
var login = newLoginShell(askLoginShell)

// loginShell remembers what the user's login shell has as PATH.
type loginShell struct {
	ask   func(context.Context) (string, error)
	turn  chan struct{}               // holds the right to ask; never closed
	known atomic.Pointer[loginAnswer] // nil until asked; then never changed
}

// loginAnswer is what asking gave.
type loginAnswer struct {
	path string
	err  error
}

// newLoginShell returns a loginShell that calls ask at most once to an end.
func newLoginShell(ask func(context.Context) (string, error)) *loginShell {
	return &loginShell{ask: ask, turn: make(chan struct{}, 1)}
}

// path returns the login shell's PATH. The first caller asks under its own
// ctx, the others wait for it; a caller that leaves while it asks leaves that
// to the next. A failure is remembered too: it may have cost seconds.
func (s *loginShell) path(ctx context.Context) (string, error) {
	if a := s.known.Load(); a != nil {
		return a.path, a.err
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if a := s.known.Load(); a != nil {
		return a.path, a.err
	}
	path, err := s.ask(ctx)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	s.known.Store(&loginAnswer{path, err})
	return path, err
}
