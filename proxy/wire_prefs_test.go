package proxy_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"coffer/prefs"
	"coffer/proxy"
)

// noticeAfter is how long after a commit Watch tells of it, as the poll of the
// real one does.
const noticeAfter = 100 * time.Millisecond

// wirePrefs is a preference file without the file.
type wirePrefs struct {
	w         *wire
	committed chan struct{} // capacity 1: Watch has something to look at

	mu        sync.Mutex
	rows      map[prefs.Key]prefs.Row // guarded by mu, as are all below
	refresh   map[string]int64
	reconnect map[string]int64
	snap      *prefs.Snapshot // the last good one; nil: none yet
	stale     bool            // rows or counters have changed since snap was made
	trouble   error           // what Fresh and Reconcile fail with
	panics    bool            // Fresh panics when a request calls it
}

// openPrefs fills the store from the section "prefs" and returns how the
// session opens it.
func (w *wire) openPrefs() func(context.Context) (proxy.Preferences, error) {
	p := &wirePrefs{
		w: w, committed: make(chan struct{}, 1), rows: map[prefs.Key]prefs.Row{},
		refresh: map[string]int64{}, reconnect: map[string]int64{}, stale: true,
	}
	w.prefs = p
	var slow time.Duration
	var broken error
	for _, line := range w.script.lines("prefs") {
		if line.text == "none" {
			return nil
		}
		word, rest, _ := strings.Cut(line.text, " ")
		var err error
		switch word {
		case "opening":
			slow, err = time.ParseDuration(rest)
		case "broken":
			broken = errors.New("fake: cannot be opened")
		case "newer":
			broken = fmt.Errorf("fake: %w", prefs.ErrNewerSchema)
		default:
			err = p.choose(line.text)
		}
		if err != nil {
			w.t.Fatalf("%s: section prefs: %s: %v", w.script.name, line.text, err)
		}
	}
	return func(ctx context.Context) (proxy.Preferences, error) {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
		}
		if broken != nil {
			return nil, broken
		}
		_, err := p.Fresh(ctx)
		return p, err
	}
}

// choose stores a person's choice.
func (p *wirePrefs) choose(text string) error {
	key, on, err := parseChoice(text)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	row := p.rows[key]
	row.Key, row.Enabled = key, on
	p.rows[key] = row
	p.stale = true
	return nil
}

// act performs `prefs …`, which is what another process does to the file.
func (p *wirePrefs) act(text string) error {
	verb, rest, _ := strings.Cut(text, " ")
	switch verb {
	case "rows":
		p.show(rest)
		return nil
	case "busy":
		p.setTrouble(fmt.Errorf("fake: %w", prefs.ErrBusy))
	case "unreadable":
		p.setTrouble(errors.New("fake: input/output error"))
	case "works":
		p.setTrouble(nil)
	case "panics":
		p.mu.Lock()
		p.panics = true
		p.mu.Unlock()
		return nil
	case "refresh", "reconnect":
		p.mu.Lock()
		if verb == "reconnect" {
			p.reconnect[rest]++
		}
		p.refresh[rest]++
		p.stale = true
		p.mu.Unlock()
	default:
		if err := p.choose(text); err != nil {
			return err
		}
	}
	p.commit()
	return nil
}

func (p *wirePrefs) setTrouble(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble, p.panics = err, false
}

func (p *wirePrefs) commit() {
	select {
	case p.committed <- struct{}{}:
	default:
	}
}

// show records the rows of a server, or of all, with their times since the
// session began.
func (p *wirePrefs) show(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rows := slices.SortedFunc(maps.Values(p.rows), func(a, b prefs.Row) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Key.Key, b.Key.Key))
	})
	since := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Sub(p.w.began).String()
	}
	for _, r := range rows {
		if server != "" && r.Server != server {
			continue
		}
		state := map[bool]string{true: "on", false: "off"}[r.Enabled]
		p.w.record("prefs", fmt.Sprintf("%s %s %s %s first %s last %s", r.Server, r.Type, r.Key.Key, state, since(r.FirstSeen), since(r.LastSeen)))
	}
}

// Last implements proxy.Preferences.
func (p *wirePrefs) Last() *prefs.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.snap
}

// Fresh implements proxy.Preferences.
func (p *wirePrefs) Fresh(context.Context) (*prefs.Snapshot, error) {
	p.mu.Lock()
	panics := p.panics
	p.mu.Unlock()
	if panics {
		panic("fake: a fault")
	}
	return p.look()
}

func (p *wirePrefs) look() (*prefs.Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trouble != nil || !p.stale {
		return p.snap, p.trouble
	}
	enabled := map[prefs.Key]bool{}
	for key, row := range p.rows {
		enabled[key] = row.Enabled
	}
	p.snap, p.stale = prefs.NewSnapshot(enabled, p.refresh, p.reconnect), false
	return p.snap, nil
}

// Reconcile implements proxy.Preferences.
func (p *wirePrefs) Reconcile(_ context.Context, server string, lists []prefs.Listed, autoEnable bool, now time.Time) (prefs.Diff, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trouble != nil {
		return prefs.Diff{}, p.trouble
	}
	var diff prefs.Diff
	for _, l := range lists {
		for _, name := range l.Keys {
			key := prefs.Key{Server: server, Type: l.Type, Key: name}
			row, known := p.rows[key]
			if !known {
				row = prefs.Row{Key: key, Enabled: autoEnable}
			}
			if row.FirstSeen.IsZero() {
				row.FirstSeen = now
				diff.New = append(diff.New, key)
			}
			row.LastSeen = now
			p.rows[key] = row
			p.stale = p.stale || !known
		}
	}
	if len(diff.New) > 0 {
		p.commit()
	}
	return diff, nil
}

// Watch implements proxy.Preferences.
func (p *wirePrefs) Watch(ctx context.Context, changed func(old, new *prefs.Snapshot), failed func(error)) {
	reported := p.Last()
	for {
		select {
		case <-p.committed:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(noticeAfter):
		case <-ctx.Done():
			return
		}
		snap, err := p.look()
		if err != nil {
			failed(err)
		}
		if snap != reported {
			old := reported
			reported = snap
			changed(old, snap)
		}
	}
}

// parseChoice reads `SERVER TYPE KEY on|off`, or the JSON array of the four.
func parseChoice(text string) (prefs.Key, bool, error) {
	words := strings.Fields(text)
	if strings.HasPrefix(text, "[") {
		if err := json.Unmarshal([]byte(text), &words); err != nil {
			return prefs.Key{}, false, err
		}
	}
	if len(words) < 4 {
		return prefs.Key{}, false, errors.New("want SERVER TYPE KEY on|off")
	}
	kind, err := prefs.ParseType(words[1])
	state := words[len(words)-1]
	if err == nil && state != "on" && state != "off" {
		err = fmt.Errorf("%q is neither on nor off", state)
	}
	key := strings.Join(words[2:len(words)-1], " ")
	return prefs.Key{Server: words[0], Type: kind, Key: key}, state == "on", err
}
