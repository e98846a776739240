package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/urfave/cli/v2"

	"coffer/prefs"
	"coffer/upstream"
)

// config reads the config file that the flags, the environment or the platform
// name.
func (p *program) config(c *cli.Context) (*upstream.Config, error) {
	path, explicit, err := p.configPath(c)
	if err != nil {
		return nil, err
	}
	return upstream.ReadConfig(path, explicit, os.LookupEnv)
}

// configPath returns where the config file is, and whether a person named it.
func (p *program) configPath(c *cli.Context) (path string, explicit bool, err error) {
	path, explicit, err = named(c, "config", "COFFER_CONFIG")
	if err == nil && !explicit {
		path, err = p.defaultPath(configPlace)
	}
	return path, explicit, err
}

// missingConfigHint says how to get a config file.
const missingConfigHint = "create it; the mcpServers object of another client, pasted whole, works as it is"

// databasePath returns where the preferences are.
func (p *program) databasePath(c *cli.Context) (string, error) {
	path, explicit, err := named(c, "db", "COFFER_DB")
	if err == nil && !explicit {
		path, err = p.defaultPath(statePlace)
	}
	return path, err
}

// stderrLogPath returns where the upstreams' stderr is kept: beside the
// preferences, so that coffers that share them share it.
func stderrLogPath(db string) string {
	return strings.TrimSuffix(db, filepath.Ext(db)) + ".upstreams.log"
}

// absolute returns path from the root on, for those who are elsewhere.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// store opens the preferences for a command, creating them if need be. The
// caller closes the store.
func (p *program) store(c *cli.Context) (*prefs.Store, error) {
	path, err := p.databasePath(c)
	if err != nil {
		return nil, err
	}
	return prefs.Open(c.Context, path, schema, prefs.Options{})
}

// named returns the file that a person named by flag or variable. An empty
// variable is as good as none; an empty flag is a slip in a script, which must
// not end in the file of the default place.
func named(c *cli.Context, flag, variable string) (path string, explicit bool, err error) {
	path = c.String(flag)
	if path == "" && c.IsSet(flag) {
		if value, set := os.LookupEnv(variable); !set || value != "" {
			return "", false, usagef("leave it out for the default place", "--%s is empty", flag)
		}
	}
	return path, path != "", nil
}

// place is a file's default place: the folder that the platform keeps for it,
// and the name in there.
type place struct {
	flag     string   // what names another place
	variable string   // unix: the XDG variable of the folder
	home     []string // unix: the folder under the home folder without it
	windows  string   // the variable of the folder
	name     string
}

// XDG Base Directory Specification 0.8 on unix; the platforms' own conventions
// on macOS and Windows, where a shell's XDG variables count for nothing: the
// client that launches us with a bare environment must find the same files.
var (
	configPlace = place{"config", "XDG_CONFIG_HOME", []string{".config"}, "APPDATA", "config.json"}
	statePlace  = place{"db", "XDG_STATE_HOME", []string{".local", "state"}, "LOCALAPPDATA", "coffer.db"}
)

// defaultPath returns where the file is if nobody names another.
func (p *program) defaultPath(at place) (string, error) {
	return at.on(p.system, os.Getenv)
}

// on is defaultPath for any system and environment.
func (at place) on(system string, getenv func(string) string) (string, error) {
	var folder []string
	switch system {
	case "windows":
		folder = []string{getenv(at.windows)}
	case "darwin", "ios":
		folder = []string{getenv("HOME"), "Library", "Application Support"}
	default:
		folder = []string{getenv(at.variable)}
		if !filepath.IsAbs(folder[0]) { // the specification: then it is to be ignored
			folder = append([]string{getenv("HOME")}, at.home...)
		}
	}
	if folder[0] == "" {
		variable := "HOME"
		if system == "windows" {
			variable = at.windows
		}
		return "", failf(exitError, fmt.Sprintf("name the file with --%s", at.flag), "no default place for %s: %s is not set", at.name, variable)
	}
	return filepath.Join(append(folder, "coffer", at.name)...), nil
}

// runtimeFolders returns the folders in which running coffers have their
// sockets, best first. A client launches us with few variables, a shell has
// more: so whoever asks looks into all of them.
func runtimeFolders() []string {
	return runtimeFoldersOn(runtime.GOOS, os.Getenv, os.Getuid(), func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.IsDir()
	})
}

// runtimeFoldersOn is runtimeFolders for any system and environment.
func runtimeFoldersOn(system string, getenv func(string) string, uid int, isFolder func(string) bool) []string {
	if own := getenv("COFFER_RUNTIME_DIR"); own != "" {
		return []string{own}
	}
	var folders []string
	switch system {
	case "windows":
		if local := getenv("LOCALAPPDATA"); local != "" {
			folders = append(folders, filepath.Join(local, "coffer", "run"))
		}
	case "darwin", "ios": // not TMPDIR, which has no room for a socket's name
		if home := getenv("HOME"); home != "" {
			folders = append(folders, filepath.Join(home, "Library", "Application Support", "coffer", "run"))
		}
	default:
		if own := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(own) {
			folders = append(folders, filepath.Join(own, "coffer"))
		}
		// Where a login puts XDG_RUNTIME_DIR, and where there is no login.
		if user := fmt.Sprintf("/run/user/%d", uid); isFolder(user) {
			folders = append(folders, user+"/coffer")
		}
		folders = append(folders, fmt.Sprintf("/tmp/coffer-%d", uid))
	}
	return folders
}

// readInput reads all of what a command is given on stdin, but leaves when ctx
// ends.
func (p *program) readInput(ctx context.Context) ([]byte, error) {
	type input struct {
		text []byte
		err  error
	}
	read := make(chan input, 1)
	go func() { // may outlive us: nothing frees a read of a terminal
		text, err := io.ReadAll(p.stdin)
		read <- input{text, err}
	}()
	select {
	case in := <-read:
		if in.err != nil {
			return nil, fmt.Errorf("reading stdin: %w", in.err)
		}
		return in.text, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
