package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"coffer/prefs"
)

// exported is a preference in the document of `coffer prefs export`.
type exported struct {
	Server      string     `json:"server"`
	Type        prefs.Type `json:"type"`
	Key         string     `json:"key"`
	Enabled     *bool      `json:"enabled"`
	FirstSeenAt moment     `json:"first_seen_at"`
	LastSeenAt  moment     `json:"last_seen_at"`
	SetAt       moment     `json:"set_at"`
}

// exportVersion is the version member of an export.
const exportVersion = 1

// export is the document of `coffer prefs export`.
type export struct {
	Version     int        `json:"version"`
	Preferences []exported `json:"preferences"`
}

// prefsExport is `coffer prefs export`.
func (p *program) prefsExport(c *cli.Context) error {
	if _, err := positionals(c, 0, 0); err != nil {
		return err
	}
	store, err := p.store(c)
	if err != nil {
		return err
	}
	defer store.Close()
	rows, err := store.Rows(c.Context, prefs.Filter{})
	if err != nil {
		return err
	}
	doc := export{Version: exportVersion, Preferences: make([]exported, len(rows))}
	for i, r := range rows {
		doc.Preferences[i] = exported{
			Server: r.Server, Type: r.Type, Key: r.Key.Key, Enabled: &rows[i].Enabled,
			FirstSeenAt: moment(r.FirstSeen), LastSeenAt: moment(r.LastSeen), SetAt: moment(r.SetAt),
		}
	}
	return p.printJSON(doc)
}

// prefsImport is `coffer prefs import`.
func (p *program) prefsImport(c *cli.Context) error {
	args, err := positionals(c, 1, 1)
	if err != nil {
		return err
	}
	text, err := p.readFile(c.Context, args[0])
	if err != nil {
		return err
	}
	rows, err := parseExport(text)
	if err != nil {
		return failf(exitError, "`coffer prefs export` writes such a file; nothing was changed", "importing %s: %w", args[0], err)
	}
	store, err := p.store(c)
	if err != nil {
		return err
	}
	defer store.Close()
	done, err := store.Import(c.Context, rows, c.Bool("replace"), time.Now())
	if _, aboutFile := errors.AsType[*prefs.Error](err); err != nil && !aboutFile {
		return failf(exitError, "nothing was changed", "importing %s: %w", args[0], err)
	}
	if err != nil {
		return err
	}
	p.printImported(rows, done)
	return nil
}

// readFile reads the file that a person named, or stdin for "-".
func (p *program) readFile(ctx context.Context, path string) ([]byte, error) {
	if path == "-" {
		return p.readInput(ctx)
	}
	return os.ReadFile(path)
}

// parseExport reads an export. A bare array of preferences will do too, and
// members that it does not know are passed over, so `prefs list --json` can be
// imported.
func parseExport(text []byte) ([]prefs.Row, error) {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\uFEFF")))
	doc := export{Version: exportVersion}
	var err error
	if bytes.HasPrefix(text, []byte("[")) {
		err = json.Unmarshal(text, &doc.Preferences)
	} else {
		err = json.Unmarshal(text, &doc)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("not an export: %w", err)
	case doc.Version != exportVersion:
		return nil, fmt.Errorf("version %d is unknown: a newer coffer wrote it", doc.Version)
	case doc.Preferences == nil:
		return nil, errors.New(`not an export: it has no "preferences"`)
	}
	rows := make([]prefs.Row, len(doc.Preferences))
	for i, e := range doc.Preferences {
		if e.Enabled == nil {
			return nil, fmt.Errorf("preference %d: enabled is missing", i+1)
		}
		if e.Key == "" {
			return nil, fmt.Errorf("preference %d: key is missing", i+1)
		}
		rows[i] = prefs.Row{
			Key:     prefs.Key{Server: e.Server, Type: e.Type, Key: e.Key},
			Enabled: *e.Enabled, FirstSeen: time.Time(e.FirstSeenAt), LastSeen: time.Time(e.LastSeenAt), SetAt: time.Time(e.SetAt),
		}
	}
	return rows, nil
}

func (p *program) printImported(rows []prefs.Row, done prefs.Imported) {
	enabled := make(map[prefs.Key]bool, len(rows))
	for _, r := range rows {
		enabled[r.Key] = r.Enabled
	}
	for _, k := range done.Added {
		p.say("New: %s %s of %s is %s.", nounOf(k.Type), k.Key, k.Server, onOff(enabled[k]))
	}
	for _, k := range done.Changed {
		p.say("The %s %s of %s is now %s.", nounOf(k.Type), k.Key, k.Server, onOff(enabled[k]))
	}
	for _, k := range done.Removed {
		p.say("Deleted: %s %s of %s.", nounOf(k.Type), k.Key, k.Server)
	}
	same := len(rows) - len(done.Added) - len(done.Changed)
	p.say("Imported %d: %d new, %d changed, %d as they were, %d deleted.", len(rows), len(done.Added), len(done.Changed), same, len(done.Removed))
}
