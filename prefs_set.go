package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"coffer/prefs"
	"coffer/upstream"
)

// prefsSet is `coffer prefs set`.
func (p *program) prefsSet(c *cli.Context) error {
	args, err := positionals(c, 1, 4)
	if err != nil {
		return err
	}
	batch := len(args) == 1 && args[0] == "-"
	switch {
	case batch && c.Bool("glob"):
		return usagef("write one command for the pattern", "--glob does not go with lines on stdin")
	case !batch:
		if _, err = positionals(c, 4, 4); err != nil {
			return err
		}
	}
	var change prefs.Change
	if !batch {
		if change, err = parseChange(args); err != nil {
			return err
		}
	}
	config, err := p.config(c)
	if err != nil {
		return err
	}
	changes := []prefs.Change{change}
	if batch {
		changes, err = p.readChanges(c.Context, config)
	} else {
		_, err = findServer(config, change.Server)
	}
	if err != nil {
		return err
	}
	store, err := p.store(c)
	if err != nil {
		return err
	}
	defer store.Close()
	if c.Bool("glob") {
		if changes, err = match(c.Context, store, change); err != nil {
			return err
		}
	}
	before, err := store.Set(c.Context, changes, time.Now())
	if err != nil {
		return err
	}
	n, err := p.naming(c.Context, config, store)
	if err != nil {
		return err
	}
	p.printSet(n, changes, before, batch || c.Bool("glob"))
	return nil
}

// parseChange reads SERVER TYPE KEY on|off.
func parseChange(args []string) (prefs.Change, error) {
	key, err := parseKey(args)
	if err != nil {
		return prefs.Change{}, err
	}
	enabled, err := parseOnOff(args[3])
	if err != nil {
		return prefs.Change{}, usagef("", "%w", err)
	}
	return prefs.Change{Key: key, Enabled: enabled}, nil
}

func parseOnOff(text string) (bool, error) {
	switch text {
	case "on":
		return true, nil
	case "off":
		return false, nil
	default:
		return false, fmt.Errorf("%q is neither on nor off", text)
	}
}

// match returns change for every known key that its key, as a pattern, matches.
func match(ctx context.Context, store *prefs.Store, change prefs.Change) ([]prefs.Change, error) {
	keys, err := store.Match(ctx, change.Server, change.Type, change.Key.Key)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, failf(exitNotFound, "a pattern sets only what is known; `coffer prefs list "+shellWord(change.Server)+" --type "+string(change.Type)+"` shows that",
			"no known %s of %s matches %q", nounOf(change.Type), change.Server, change.Key.Key)
	}
	changes := make([]prefs.Change, len(keys))
	for i, key := range keys {
		changes[i] = prefs.Change{Key: key, Enabled: change.Enabled}
	}
	return changes, nil
}

// readChanges reads the lines of `coffer prefs set -`. The first line that is
// wrong, or names a server that the config does not have, is the error.
func (p *program) readChanges(ctx context.Context, config *upstream.Config) ([]prefs.Change, error) {
	text, err := p.readInput(ctx)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	var changes []prefs.Change
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		change, err := parseLine(line)
		if err != nil {
			return nil, failf(exitError, `write a line like ["fs","tool","read_file","off"]; nothing was changed`, "line %d: %w", number, err)
		}
		if _, err := findServer(config, change.Server); err != nil {
			return nil, failf(exitNotFound, hintOf(err)+"; nothing was changed", "line %d: %w", number, err)
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// parseLine reads one line: ["fs","tool","read_file","off"] or
// {"server":"fs","type":"tool","key":"read_file","enabled":false}.
func parseLine(line []byte) (prefs.Change, error) {
	members := map[string]json.RawMessage{}
	names := []string{"server", "type", "key", "enabled"}
	if line[0] == '[' {
		var elements []json.RawMessage
		if err := json.Unmarshal(line, &elements); err != nil {
			return prefs.Change{}, fmt.Errorf("not JSON: %w", err)
		}
		if len(elements) != len(names) {
			return prefs.Change{}, fmt.Errorf("an array needs four elements, and has %d", len(elements))
		}
		for i, name := range names {
			members[name] = elements[i]
		}
	} else if err := json.Unmarshal(line, &members); err != nil {
		if _, mismatch := errors.AsType[*json.UnmarshalTypeError](err); mismatch {
			return prefs.Change{}, errors.New("neither an array nor an object")
		}
		return prefs.Change{}, fmt.Errorf("not JSON: %w", err)
	}
	var texts [3]string
	for i, name := range names[:3] {
		if err := json.Unmarshal(members[name], &texts[i]); err != nil || texts[i] == "" {
			return prefs.Change{}, fmt.Errorf("%s is missing, or no text", name)
		}
	}
	t, err := prefs.ParseType(texts[1])
	if err != nil {
		return prefs.Change{}, err
	}
	enabled, err := parseEnabled(members["enabled"])
	return prefs.Change{Key: prefs.Key{Server: texts[0], Type: t, Key: texts[2]}, Enabled: enabled}, err
}

// parseEnabled reads true, false, "on" or "off".
func parseEnabled(raw json.RawMessage) (bool, error) {
	switch string(raw) {
	case "":
		return false, errors.New("enabled is missing")
	case "true", `"on"`:
		return true, nil
	case "false", `"off"`:
		return false, nil
	default:
		return false, fmt.Errorf("%s is neither on nor off, true nor false", raw)
	}
}

// printSet says what a set has changed; of many it counts what it has not.
func (p *program) printSet(n *naming, changes []prefs.Change, before []*prefs.Row, many bool) {
	changed := 0
	for i, change := range changes {
		name := *n.of(change.Key) // findServer has found the server
		what := fmt.Sprintf("The %s %s (%s of %s)", nounOf(change.Type), name, change.Key.Key, change.Server)
		if name == change.Key.Key {
			what = fmt.Sprintf("The %s %s of %s", nounOf(change.Type), name, change.Server)
		}
		switch was := before[i]; {
		case was == nil:
			p.say("%s is %s from now on; %s has not listed it yet.", what, onOff(change.Enabled), change.Server)
		case was.Enabled != change.Enabled:
			p.say("%s is now %s.", what, onOff(change.Enabled))
		case many:
			continue
		default:
			p.say("%s was %s already.", what, onOff(change.Enabled))
		}
		changed++
	}
	if !many {
		return
	}
	switch same := len(changes) - changed; {
	case len(changes) == 0:
		p.say("No lines, so nothing was changed.")
	case same == 0:
		p.say("%d changed.", changed)
	default:
		p.say("%d changed, %d as they were.", changed, same)
	}
}
