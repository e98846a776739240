package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"coffer/testdata/bench/toy"
)

// measureStart is from before the process exists to an answer.
func (b *bench) measureStart() error {
	hi := b.figure("start to initialize answered", "ms", coffer, relay, limit{AtMost: 3.5})
	hiNow := b.figure("the same, instructions_wait 0", "ms", impatient, relay, limit{AtMost: 2})
	listed := b.figure("start to all 100 tools listed", "ms", coffer, relay, limit{AtMost: 3.8})
	list := newLister(toy.List())
	subjects := []subject{relay, direct, coffer, impatient}
	for round := range b.effort.starts + 1 { // the first is not counted: it makes the database
		for i := range subjects {
			s := subjects[(i+round)%len(subjects)]
			first, second, err := b.start(s, list)
			if err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
			if round == 0 {
				continue
			}
			hiNow.add(s, first)
			if s != impatient {
				hi.add(s, first)
				listed.add(s, second)
			}
		}
		if err := b.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// start starts a subject and returns when it had answered initialize and a
// list, in milliseconds from its start.
func (b *bench) start(s subject, list *lister) (first, second float64, err error) {
	began := time.Now()
	c, err := startSession(b.command(s))
	if err != nil {
		return 0, 0, err
	}
	err = hello(c)
	first = micros(time.Since(began)) / 1000
	if err == nil {
		err = errors.Join(ready(c), list.list(c))
	}
	second = micros(time.Since(began)) / 1000
	return first, second, errors.Join(err, c.close())
}

func (b *bench) measureList() error {
	p50 := b.figure("tools/list, warm, p50", "µs", coffer, relay, limit{AtMost: 0.5})
	if err := b.prepare(relay, direct, coffer); err != nil {
		return err
	}
	list := newLister(toy.List())
	return b.rounds(b.effort.rounds, func(s subject, p *process) error {
		took, err := timed(b.effort.lists, func(int) error { return list.list(p.client) })
		p50.add(s, quantile(took, 0.5))
		return err
	})
}

func (b *bench) measureCalls() error {
	for _, run := range []struct {
		name  string
		limit float64
		of    func(i int) string
		fan   bool // compare with five relays, too
	}{{"one upstream", 1.5, ofOne, false}, {"five in turn", 1.7, inTurn, true}} {
		p50s := []*figure{b.figure("tools/call, "+run.name+", p50", "µs", coffer, relay, limit{AtMost: run.limit})}
		p99 := b.figure("tools/call, "+run.name+", p99", "µs", coffer, relay, limit{AtMost: 1.8})
		if err := b.prepare(relay, direct, coffer); err != nil {
			return err
		}
		if run.fan {
			if err := b.prepareFan(); err != nil {
				return err
			}
			p50s = append(p50s, b.figure(p50s[0].Name+", to five relays", "µs", coffer, fiveRelays, limit{}))
		}
		err := b.rounds(b.effort.rounds, func(s subject, p *process) error {
			took, err := timed(b.effort.calls, func(i int) error { return p.call(p.client, run.of(i), 0, 0) })
			for _, p50 := range p50s {
				p50.add(s, quantile(took, 0.5))
			}
			p99.add(s, quantile(took, 0.99))
			return err
		})
		if err := errors.Join(err, b.closeAll()); err != nil {
			return err
		}
	}
	return nil
}

// measureCheck finds what the preference check costs a call: two calls that
// coffer itself refuses, one for its form and one, after the check, because its
// tool is switched off. The second also has more to say, so this is the most
// that the check can take.
func (b *bench) measureCheck() error {
	const ghost = "ghost" // in no list, so what the list shows stays as it is
	share := b.figure("preference check, share of a call", "%", coffer, "", limit{})
	if err := b.prepare(coffer); err != nil {
		return err
	}
	set := b.arguments(coffer, "prefs", "set", toy.Name(0), "tool", ghost, "off")
	if out, err := exec.CommandContext(b.ctx, set[0], set[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	refused := func(p *process, params string, code string) func(int) error {
		request := []byte(`{"jsonrpc":"2.0","id":"r","method":"tools/call","params":` + params + "}\n")
		return func(int) error {
			answer, err := p.client.ask(request)
			if err == nil && !bytes.Contains(answer, []byte(`"error":{"code":`+code+`,`)) {
				err = wrong(answer, "error "+code)
			}
			return err
		}
	}
	return b.rounds(b.effort.rounds, func(s subject, p *process) error {
		formless, err := timed(b.effort.calls, refused(p, `{"arguments":{"n":1}}`, "-32602"))
		if err != nil {
			return err
		}
		off, err := timed(b.effort.calls, refused(p, `{"name":"`+toy.Name(0)+`__`+ghost+`","arguments":{"n":1}}`, "403"))
		if err != nil {
			return err
		}
		whole, err := timed(b.effort.calls, func(i int) error { return p.call(p.client, ofOne(i), 0, 0) })
		share.add(s, 100*(quantile(off, 0.5)-quantile(formless, 0.5))/quantile(whole, 0.5))
		return err
	})
}

func (b *bench) measureFlights() error {
	for _, run := range []struct {
		name  string
		width int
		limit limit
		of    func(i int) string
	}{
		{"1 in flight", 1, limit{}, inTurn},
		{"8 in flight", 8, limit{}, inTurn},
		{"64 in flight", 64, limit{AtLeast: 0.4}, inTurn},
		{"64 in flight to one upstream", 64, limit{AtLeast: 0.4}, ofOne},
	} {
		rate := b.figure("calls per second, "+run.name, "1/s", coffer, relay, run.limit)
		cpu := &figure{Name: "CPU per call, " + run.name, Unit: "µs", Of: coffer, Base: relay}
		if run.limit != (limit{}) {
			cpu.Limit.AtMost = 5
			b.figures = append(b.figures, cpu)
		}
		if err := b.prepare(relay, direct, coffer); err != nil {
			return err
		}
		count := b.effort.flights * min(run.width, 8) / 8
		err := b.rounds(b.effort.rounds, func(s subject, p *process) error {
			pid := p.session.cmd.Process.Pid
			used, err := cpuTime(pid)
			if err != nil && !errors.Is(err, errors.ErrUnsupported) {
				return err
			}
			began := time.Now()
			if err := p.window(p.session, run.width, count, run.of); err != nil {
				return err
			}
			rate.add(s, float64(count)/time.Since(began).Seconds())
			if now, err := cpuTime(pid); err == nil {
				cpu.add(s, micros(now-used)/float64(count))
			}
			return nil
		})
		if err := errors.Join(err, b.closeAll()); err != nil {
			return err
		}
	}
	return nil
}

// measureSlow has one server take its time and calls another meanwhile.
func (b *bench) measureSlow() error {
	worst := b.figure("worst fast call beside a slow one", "ms", coffer, "", limit{AtMost: 2})
	if err := b.prepare(relay, direct, coffer); err != nil {
		return err
	}
	return b.rounds(b.effort.rounds, func(s subject, p *process) error {
		took, err := p.besideSlow(p.session, toy.Merged(0, 0), toy.Merged(1, 0), b.effort.slow)
		worst.add(s, micros(took)/1000)
		return err
	})
}

func (b *bench) measureSizes() error {
	for _, run := range []struct {
		size  int
		limit limit
	}{{1 << 10, limit{}}, {100 << 10, limit{}}, {1 << 20, limit{AtMost: 2}}, {10 << 20, limit{AtMost: 2.2}}} {
		p50 := b.figure("result of "+size(run.size)+", p50", "µs", coffer, relay, run.limit)
		if err := b.prepare(relay, direct, coffer); err != nil {
			return err
		}
		count := min(max(b.effort.sizeBytes/run.size, 3), b.effort.calls)
		err := b.rounds(b.effort.rounds, func(s subject, p *process) error {
			took, err := timed(count, func(i int) error { return p.call(p.client, ofOne(i), run.size, 0) })
			p50.add(s, quantile(took, 0.5))
			return err
		})
		if err != nil {
			return err
		}
		if run.size == toy.MaxResult {
			peak := b.figure("peak RSS, after results of 10 MB", "MiB", coffer, "", limit{})
			for s, p := range b.open {
				_, most, err := memory(p.session.cmd.Process.Pid)
				if err != nil {
					return err
				}
				peak.add(s, most/(1<<20))
			}
		}
		if err := b.closeAll(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) measureHTTP() error {
	p50 := b.figure("tools/call over HTTP, p50", "µs", httpCoffer, httpDirect, limit{AtMost: 2})
	p99 := b.figure("tools/call over HTTP, p99", "µs", httpCoffer, httpDirect, limit{})
	server, url, err := startHTTP(b.self)
	if err != nil {
		return err
	}
	defer server.close()
	config := fmt.Appendf(nil, `{"mcpServers":{%q:{"url":%q}}}`, toy.Name(0), url)
	if err := os.WriteFile(b.config(httpCoffer), config, 0o600); err != nil {
		return err
	}
	b.keep(httpDirect, newHTTPClient(url))
	session, err := startSession(b.command(httpCoffer))
	if err != nil {
		return err
	}
	b.keep(httpCoffer, session)
	for _, p := range b.open {
		if err := errors.Join(hello(p.client), ready(p.client)); err != nil {
			return err
		}
	}
	return b.rounds(b.effort.rounds+1, func(s subject, p *process) error {
		// Without coffer, the server is asked by its own name for the tool.
		took, err := timed(b.effort.calls, func(i int) error {
			if s == httpCoffer {
				return p.call(p.client, ofOne(i), 0, 0)
			}
			return p.callAs(p.client, toy.Tool(i%toy.ToolsEach), toy.Merged(0, i%toy.ToolsEach), 0, 0)
		})
		if p.warm { // the first round is not counted
			p50.add(s, quantile(took, 0.5))
			p99.add(s, quantile(took, 0.99))
		}
		p.warm = true
		return err
	})
}

func (b *bench) measureIdle() error {
	cpu := b.figure("idle CPU", "ms/s", coffer, "", limit{AtMost: 1})
	rss := b.figure("idle RSS", "MiB", coffer, "", limit{AtMost: 15})
	if err := b.prepare(relay, coffer); err != nil {
		return err
	}
	time.Sleep(b.effort.idle) // until what the calls started is done
	for range b.effort.rounds {
		before := map[subject]time.Duration{}
		for s, p := range b.open {
			var err error
			if before[s], err = cpuTime(p.session.cmd.Process.Pid); err != nil {
				return err
			}
		}
		time.Sleep(b.effort.idle)
		for s, p := range b.open {
			used, err := cpuTime(p.session.cmd.Process.Pid)
			if err != nil {
				return err
			}
			cpu.add(s, micros(used-before[s])/1000/b.effort.idle.Seconds())
			now, _, err := memory(p.session.cmd.Process.Pid)
			if err != nil {
				return err
			}
			rss.add(s, now/(1<<20))
		}
		if err := b.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// measureGrowth compares memory and open files before and after many calls.
func (b *bench) measureGrowth() error {
	if err := b.prepare(coffer); err != nil {
		return err
	}
	p := b.open[coffer]
	pid := p.session.cmd.Process.Pid
	look := func() (rss float64, files int, err error) {
		if err = p.window(p.session, 64, b.effort.growth/10, inTurn); err != nil {
			return 0, 0, err
		}
		if rss, _, err = memory(pid); err == nil {
			files, err = descriptors(pid)
		}
		return rss, files, err
	}
	rss, files, err := look()
	if err != nil {
		return err
	}
	if err := p.window(p.session, 64, b.effort.growth, inTurn); err != nil {
		return err
	}
	rssAfter, filesAfter, err := look()
	if err != nil {
		return err
	}
	calls := fmt.Sprintf(" over %d calls", b.effort.growth)
	b.figure("growth of RSS"+calls, "MiB", coffer, "", limit{}).add(coffer, (rssAfter-rss)/(1<<20))
	b.figure("growth of open files"+calls, "", coffer, "", limit{}).add(coffer, float64(filesAfter-files))
	return nil
}
