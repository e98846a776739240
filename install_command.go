package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"coffer/clients"
	"coffer/upstream"
)

// ownName is what coffer's entry is called in a client's config.
const ownName = "coffer"

func yesFlag() cli.Flag { return boolFlag("yes", "do not ask before a file is written") }

func installFlags() []cli.Flag {
	return []cli.Flag{
		boolFlag("replace", "move the servers that are behind coffer out of the client's config, into a backup that is kept"),
		yesFlag(), dryRunFlag(),
	}
}

func uninstallFlags() []cli.Flag { return []cli.Flag{yesFlag(), dryRunFlag()} }

// install is `coffer install`.
func (p *program) install(c *cli.Context) error {
	command, args, err := p.ownCommand(c)
	if err != nil {
		return err
	}
	config, err := p.config(c)
	if err != nil {
		return err
	}
	behind, err := behindCoffer(config)
	if err != nil {
		return err
	}
	return p.eachClient(c, func(file clients.File, text []byte) (*clientEdit, error) {
		servers, err := file.Servers(text)
		if err != nil {
			return nil, err
		}
		edit := &clientEdit{text: text, kind: backupSuffix}
		if err := edit.findStale(file, servers); err != nil {
			return nil, err
		}
		own := ownEntry(servers)
		if own == nil && hasServer(servers, ownName) {
			return nil, failf(exitError, "rename it there first", "%s has a server %q that is not this coffer", file.Path, ownName)
		}
		if err := edit.putOwn(file, own, command, args); err != nil {
			return nil, err
		}
		double := doubles(servers, behind)
		if len(double) > 0 && c.Bool("replace") {
			edit.kind = replacedSuffix
			edit.say("moves %s, which coffer has too, out into a backup", strings.Join(double, ", "))
			for _, name := range double {
				if edit.text, err = file.Remove(edit.text, name); err != nil {
					return nil, err
				}
			}
		} else if len(double) > 0 {
			edit.note = fmt.Sprintf("%s has %s beside coffer, so it shows their tools twice; --replace moves them out", file.Title(), strings.Join(double, ", "))
		} else if c.Bool("replace") {
			edit.note = fmt.Sprintf("none of the servers of %s is behind coffer; `coffer import --from %s` takes them over", file.Title(), file.Client.Name)
		}
		return edit, nil
	})
}

// uninstall is `coffer uninstall`.
func (p *program) uninstall(c *cli.Context) error {
	return p.eachClient(c, func(file clients.File, text []byte) (*clientEdit, error) {
		servers, err := file.Servers(text)
		if err != nil {
			return nil, err
		}
		edit := &clientEdit{text: text, kind: backupSuffix}
		for own := ownEntry(servers); own != nil; own = ownEntry(servers) {
			edit.say("takes %s out", own.Raw.Name)
			if edit.text, err = file.Remove(edit.text, own.Raw.Name); err == nil {
				servers, err = file.Servers(edit.text)
			}
			if err != nil {
				return nil, err
			}
		}
		if len(edit.what) == 0 { // never installed, so nothing to put back either
			return edit, edit.findStale(file, servers)
		}
		return edit, edit.restore(file, text)
	})
}

// clientEdit is what is to be done to a client's file.
type clientEdit struct {
	text     []byte   // the file's new text
	what     []string // what that does, for a person
	note     string   // what else there is to say
	kind     string   // the suffix of the backup
	restored []string // backups whose servers are back when text is written
	stale    []string // backups whose servers are back now
}

func (e *clientEdit) say(format string, args ...any) {
	e.what = append(e.what, fmt.Sprintf(format, args...))
}

// putOwn makes coffer's own entry one that starts command with args.
func (e *clientEdit) putOwn(file clients.File, own *clients.Server, command string, args []string) (err error) {
	entry := file.CofferEntry(ownName, command, args)
	if own != nil {
		entry.Name = own.Raw.Name
		if clients.Same(own.Raw, entry) {
			return nil
		}
		e.say("updates %s", entry.Name)
		if e.text, err = file.Remove(e.text, entry.Name); err != nil {
			return err
		}
	} else {
		e.say("adds %s", entry.Name)
	}
	e.text, err = file.Add(e.text, entry)
	return err
}

// ownEntry is coffer's entry among servers, or nil.
func ownEntry(servers []clients.Server) *clients.Server {
	for i := range servers {
		if clients.IsCoffer(servers[i].Entry) {
			return &servers[i]
		}
	}
	return nil
}

// behindCoffer are the servers that coffer serves, as its config has them.
func behindCoffer(config *upstream.Config) ([]upstream.Entry, error) {
	if config.Missing {
		return nil, nil
	}
	_, _, s, err := readDocument(config.Path)
	if err != nil {
		return nil, err
	}
	var all []upstream.Entry
	for _, e := range s.All() {
		if spec := specOf(config, e.Name); spec != nil && !spec.Disabled {
			all = append(all, e)
		}
	}
	return all, nil
}

// doubles are the names of those servers of a client that coffer serves too.
func doubles(servers []clients.Server, behind []upstream.Entry) []string {
	var names []string
	for _, s := range servers {
		if !clients.IsCoffer(s.Entry) && sameAs(behind, s.Entry) != "" {
			names = append(names, s.Raw.Name)
		}
	}
	return names
}

// ownCommand is how a client is to start this coffer: by its whole path, with the
// files that a person named for this run.
func (p *program) ownCommand(c *cli.Context) (command string, args []string, err error) {
	command, err = ownPath()
	if err != nil {
		return "", nil, err
	}
	args = []string{"serve"}
	for _, at := range []struct{ flag, variable string }{{"config", "COFFER_CONFIG"}, {"db", "COFFER_DB"}} {
		path, explicit, err := named(c, at.flag, at.variable)
		if err != nil {
			return "", nil, err
		}
		if explicit {
			if path, err = filepath.Abs(path); err != nil {
				return "", nil, err
			}
			args = append(args, "--"+at.flag, path)
		}
	}
	return command, args, nil
}

// ownPath is the path of this program: the one that it was started by, which stays
// through an upgrade where a package manager's link leads to it.
func ownPath() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("the path of coffer itself: %w", err)
	}
	started, err := exec.LookPath(os.Args[0])
	if err == nil {
		started, err = filepath.Abs(started)
	}
	if err == nil && sameFile(started, path) {
		return started, nil
	}
	return path, nil
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// eachClient plans the edit of the file of each client that the arguments name,
// asks, and makes it. plan gets the file's text; it may be called again.
func (p *program) eachClient(c *cli.Context, plan func(clients.File, []byte) (*clientEdit, error)) error {
	args, err := positionals(c, 1, -1)
	if err != nil {
		return err
	}
	system, err := p.clientSystem()
	if err != nil {
		return err
	}
	var files []clients.File
	for _, name := range args {
		client := clients.Find(name)
		if client == nil {
			return usagef("one of "+strings.Join(clientNames(), ", "), "no client %q", name)
		}
		files = append(files, system.Files(client)[0])
	}
	if !c.Bool("yes") && !c.Bool("dry-run") && !isTerminal(p.stdin) {
		return usagef("write --yes in a script, or --dry-run to see what would be written", "nobody is here to be asked")
	}
	var failed []error
	for _, file := range files {
		failed = append(failed, p.editClient(c, file, plan))
	}
	return together(failed...)
}

// editClient is eachClient for one file.
func (p *program) editClient(c *cli.Context, file clients.File, plan func(clients.File, []byte) (*clientEdit, error)) error {
	if !file.Here() {
		return failf(exitError, fmt.Sprintf("start %s once, or check the name", file.Client.Title),
			"found no %s: there is no folder %s", file.Client.Title, filepath.Dir(file.Path))
	}
	text, err := upstream.ReadFile(file.Path)
	if err != nil {
		return err
	}
	edit, err := plan(file, text)
	if err != nil {
		return err
	}
	if len(edit.what) == 0 {
		p.say("%s: nothing to do in %s.", file.Title(), file.Path)
		p.printNote(edit)
		if len(edit.stale) == 0 || c.Bool("dry-run") {
			return nil
		}
		return p.settleStale(c, file, plan)
	}
	p.say("%s: %s, in %s.", file.Title(), strings.Join(edit.what, "; "), file.Path)
	if c.Bool("dry-run") {
		p.printNote(edit)
		return nil
	}
	if !c.Bool("yes") {
		if err := p.confirm(c.Context); err != nil {
			return err
		}
	}
	return p.writeClient(c, file, plan)
}

// withClient plans an edit and hands it to work with the file's text of before. All
// coffers share one lock for it, beside coffer's own config: one beside the
// client's file may be the client's own.
func (p *program) withClient(c *cli.Context, file clients.File, plan func(clients.File, []byte) (*clientEdit, error), work func(text []byte, edit *clientEdit) error) error {
	lock, _, err := p.configPath(c)
	if err != nil {
		return err
	}
	return upstream.Locked(c.Context, lock, func() error {
		return retried(func() error {
			text, err := upstream.ReadFile(file.Path)
			if err != nil {
				return err
			}
			edit, err := plan(file, text)
			if err != nil {
				return err
			}
			return work(text, edit)
		})
	})
}

// settleStale does what is left of an edit that was killed, where nothing else is
// to be done.
func (p *program) settleStale(c *cli.Context, file clients.File, plan func(clients.File, []byte) (*clientEdit, error)) error {
	return p.withClient(c, file, plan, func(_ []byte, edit *clientEdit) error { return settleBackups(edit.stale) })
}

// writeClient makes an edit. Wherever it is killed, the command run again makes up
// for it (see findStale).
func (p *program) writeClient(c *cli.Context, file clients.File, plan func(clients.File, []byte) (*clientEdit, error)) error {
	return p.withClient(c, file, plan, func(text []byte, edit *clientEdit) error {
		if err := settleBackups(edit.stale); err != nil {
			return err
		}
		backup, err := backUp(file.Path, text, edit.kind)
		if err != nil {
			return err
		}
		if err := upstream.ReplaceFile(file.Path, text, edit.text); err != nil {
			return errors.Join(err, removeBackup(backup))
		}
		if err := settleBackups(edit.restored); err != nil { // its servers are back, once
			return err
		}
		if backup != "" {
			p.say("  The file as it was is kept in %s.", backup)
		}
		p.say("  Restart %s to take it up.", file.Client.Title)
		p.printNote(edit)
		return nil
	})
}

func (p *program) printNote(edit *clientEdit) {
	if edit.note != "" {
		p.say("  Note: %s.", edit.note)
	}
}

// errDeclined is the answer no.
var errDeclined = failf(exitError, "", "not written: the answer was not yes")

// confirm asks whether a file may be written.
func (p *program) confirm(ctx context.Context) error {
	p.out.WriteString("Write it? [y/N] ")
	p.out.Flush()
	answer := make(chan string, 1)
	go func() { // may outlive us: nothing frees a read of a terminal
		line, _ := p.answers().ReadString('\n') // what is there without an end counts
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
		return errDeclined
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answers reads what a person types, one line after the other.
func (p *program) answers() *bufio.Reader {
	if p.typed == nil {
		p.typed = bufio.NewReader(p.stdin)
	}
	return p.typed
}
