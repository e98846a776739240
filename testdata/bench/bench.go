package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"coffer/testdata/bench/toy"
)

// effort is how much is done of what.
type effort struct {
	rounds    int           // of each measure
	starts    int           // rounds of starts
	lists     int           // lists in a round
	calls     int           // calls one at a time in a round
	flights   int           // calls of a round with several in flight
	slow      int           // milliseconds that the slow call takes
	idle      time.Duration // of a round without anything to do
	growth    int           // calls after which memory must not have grown
	sizeBytes int           // about how many bytes of big results in a round
}

var (
	thorough = effort{rounds: 15, starts: 25, lists: 200, calls: 1000, flights: 6000, slow: 200, idle: time.Second, growth: 100_000, sizeBytes: 30 << 20}
	hasty    = effort{rounds: 3, starts: 3, lists: 20, calls: 100, flights: 500, slow: 50, idle: 100 * time.Millisecond, growth: 2000, sizeBytes: 1}
)

// bench is one run.
type bench struct {
	ctx    context.Context // ends the run between two rounds
	folder string          // everything that is written is in here
	coffer string          // programs
	peer   string
	self   string
	effort effort

	figures []*figure
	open    map[subject]*process // what is measured while it runs
}

// process is a running subject.
type process struct {
	caller
	client  client
	session *session // the client, if it is one
	warm    bool     // has had a round that did not count
}

// measures are what can be measured, in the order in which that is done.
var measures = []struct {
	name string
	run  func(*bench) error
}{
	{"start", (*bench).measureStart},
	{"list", (*bench).measureList},
	{"call", (*bench).measureCalls},
	{"check", (*bench).measureCheck},
	{"flight", (*bench).measureFlights},
	{"slow", (*bench).measureSlow},
	{"size", (*bench).measureSizes},
	{"http", (*bench).measureHTTP},
	{"idle", (*bench).measureIdle},
	{"growth", (*bench).measureGrowth},
}

func measureNames() (names []string) {
	for _, m := range measures {
		names = append(names, m.name)
	}
	return names
}

// run does the measures whose names are in the list only; all if it is empty.
func (b *bench) run(only string, progress io.Writer) error {
	wanted := strings.Split(only, ",")
	for _, name := range wanted {
		if only != "" && !slices.Contains(measureNames(), name) {
			return fmt.Errorf("no measure %q", name)
		}
	}
	if err := b.configure(); err != nil {
		return err
	}
	for _, m := range measures {
		if only != "" && !slices.Contains(wanted, m.name) {
			continue
		}
		fmt.Fprintf(progress, "bench: %s\n", m.name)
		err := m.run(b)
		err = errors.Join(err, b.closeAll())
		if errors.Is(err, errors.ErrUnsupported) {
			fmt.Fprintf(progress, "bench: %s: not on %s\n", m.name, runtime.GOOS)
			err = nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// configure writes coffer's config files.
func (b *bench) configure() error {
	var servers []string
	for i := range toy.Servers {
		servers = append(servers, fmt.Sprintf(`%q:{"command":%q,"args":["server","%d"]}`, toy.Name(i), b.peer, i))
	}
	all := `"mcpServers":{` + strings.Join(servers, ",") + `}}`
	return errors.Join(
		os.WriteFile(b.config(coffer), []byte(`{`+all), 0o600),
		os.WriteFile(b.config(impatient), []byte(`{"instructions_wait":0,`+all), 0o600),
	)
}

func (b *bench) config(s subject) string {
	return filepath.Join(b.folder, strings.ReplaceAll(string(s), " ", "-")+".json")
}

// arguments are the command line of coffer with the config of that subject.
func (b *bench) arguments(s subject, args ...string) []string {
	return append([]string{b.coffer, "--log-level", "warn", "--config", b.config(s), "--db", filepath.Join(b.folder, "coffer.db")}, args...)
}

// command starts a subject that is a process.
func (b *bench) command(s subject) []string {
	all := []string{b.peer, "server", "-1"}
	switch s {
	case direct:
		return all
	case relay:
		return append([]string{b.peer, "relay"}, all...)
	default:
		return b.arguments(s, "serve")
	}
}

// prepare has subjects started, their tools listed and some calls made.
func (b *bench) prepare(subjects ...subject) error {
	list := newLister(toy.List())
	for _, s := range subjects {
		session, err := startSession(b.command(s))
		if err != nil {
			return err
		}
		p := b.keep(s, session)
		p.session = session
		if err := errors.Join(hello(p.client), ready(p.client)); err != nil {
			return err
		}
		if err := list.list(p.client); err != nil {
			return err
		}
		for i := range 2 * toy.Servers * toy.ToolsEach {
			if err := p.call(p.client, inTurn(i), 0, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepareFan has as many relays started as coffer has servers. What calls that go
// round several processes take more than calls of one is no doing of coffer's.
func (b *bench) prepareFan() error {
	f := &fan{}
	b.keep(fiveRelays, f)
	for range toy.Servers {
		session, err := startSession(b.command(relay))
		if err != nil {
			return err
		}
		f.clients = append(f.clients, session)
		if err := errors.Join(hello(session), ready(session)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) keep(s subject, c client) *process {
	if b.open == nil {
		b.open = map[subject]*process{}
	}
	b.open[s] = &process{client: c}
	return b.open[s]
}

func (b *bench) closeAll() error {
	var errs []error
	for _, p := range b.open {
		errs = append(errs, p.client.close())
	}
	b.open = nil
	return errors.Join(errs...)
}

// rounds has each open subject take its turn count times. Who comes first
// changes, so that nobody always comes behind the same one.
func (b *bench) rounds(count int, turn func(s subject, p *process) error) error {
	subjects := slices.Sorted(maps.Keys(b.open))
	for round := range count {
		if err := context.Cause(b.ctx); err != nil {
			return err
		}
		for i := range subjects {
			s := subjects[(i+round)%len(subjects)]
			if err := turn(s, b.open[s]); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
	}
	return nil
}

// figure adds a row whose number is of the subject, as a ratio to base.
func (b *bench) figure(name, unit string, of, base subject, l limit) *figure {
	f := &figure{Name: name, Unit: unit, Of: of, Base: base, Limit: l}
	b.figures = append(b.figures, f)
	return f
}

// inTurn is the tool of the i-th call where all servers take turns.
func inTurn(i int) string { return names[i%len(names)] }

// ofOne is the same with one server.
func ofOne(i int) string { return names[i/toy.Servers%toy.ToolsEach*toy.Servers] }

// names are all tools, the servers in turn.
var names = func() (all []string) {
	for tool := range toy.ToolsEach {
		for server := range toy.Servers {
			all = append(all, toy.Merged(server, tool))
		}
	}
	return all
}()

// timed returns how long each of count runs of f took, in microseconds.
func timed(count int, f func(i int) error) ([]float64, error) {
	took := make([]float64, count)
	for i := range took {
		began := time.Now()
		if err := f(i); err != nil {
			return nil, err
		}
		took[i] = micros(time.Since(began))
	}
	return took, nil
}

// size writes a number of bytes for people.
func size(n int) string {
	switch {
	case n >= 1<<20:
		return strconv.Itoa(n>>20) + " MB"
	default:
		return strconv.Itoa(n>>10) + " KB"
	}
}
