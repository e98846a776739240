package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"coffer/logfile"
)

// followEvery is how often `coffer logs -f` looks for new lines.
const followEvery = 200 * time.Millisecond

// stderrLine is one line of the upstreams' stderr, in the file and in `coffer
// logs --json`.
type stderrLine struct {
	At     moment `json:"at"`
	Server string `json:"server"`
	PID    int    `json:"pid"` // of the coffer that started the server
	Line   string `json:"line"`
}

// stderrFile is where `coffer serve` keeps what upstreams write to stderr.
type stderrFile struct {
	file *logfile.File
	log  zerolog.Logger
	pid  int
	warn sync.Once // the log says once that the file cannot be written
}

// stderrLog returns the file that goes with the preferences in db.
func stderrLog(log zerolog.Logger, db string) *stderrFile {
	return &stderrFile{file: logfile.New(stderrLogPath(db)), log: log, pid: os.Getpid()}
}

// add keeps one line.
func (s *stderrFile) add(server, line string) {
	var text bytes.Buffer
	e := json.NewEncoder(&text) // ends it with a line feed
	e.SetEscapeHTML(false)
	err := e.Encode(stderrLine{At: moment(time.Now()), Server: server, PID: s.pid, Line: line})
	if err == nil {
		_, err = s.file.Write(text.Bytes())
	}
	if err != nil {
		s.warn.Do(func() { s.log.Warn().Err(err).Msg("what servers write to stderr cannot be kept for `coffer logs`") })
	}
}

func (p *program) logsCommand() *cli.Command {
	return &cli.Command{Name: "logs", Usage: "show what servers wrote to stderr", ArgsUsage: "[SERVER]",
		Description: "It shows what the servers of every `coffer serve` wrote, oldest first, each line with its\n" +
			"time, its server and the pid of the coffer that started that one. Of 40 MiB the oldest are dropped.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on with what is written from now on", DisableDefaultText: true},
			&cli.IntFlag{Name: "tail", Aliases: []string{"n"}, Usage: "only the last `N` lines", DefaultText: "all"},
			jsonFlag(),
		}, Action: p.logs}
}

// logs is `coffer logs`.
func (p *program) logs(c *cli.Context) error {
	args, err := positionals(c, 0, 1)
	if err != nil {
		return err
	}
	tail := c.Int("tail")
	switch {
	case c.Bool("follow") && c.Bool("json"):
		return usagef("leave one of them out", "--follow has no end, so it cannot be one JSON document")
	case c.IsSet("tail") && tail < 1:
		return usagef("", "--tail: %d is not a number of lines", tail)
	}
	db, err := p.databasePath(c)
	if err != nil {
		return err
	}
	var server string
	if len(args) == 1 {
		server = args[0]
	}
	reader := logfile.NewReader(stderrLogPath(db))
	lines, err := nextLines(reader, server, tail)
	if err != nil {
		return err
	}
	if server != "" && len(lines) == 0 { // it may be a slip
		config, err := p.config(c)
		if err != nil {
			return err
		}
		if _, err := findServer(config, server); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return p.printJSON(map[string]any{"lines": lines})
	}
	p.printLines(lines)
	if !c.Bool("follow") {
		if len(lines) == 0 {
			p.say("Nothing was written to stderr yet.")
		}
		return nil
	}
	return p.follow(c, reader, server)
}

// follow prints new lines until ctx ends, which is what it is left by.
func (p *program) follow(c *cli.Context, reader *logfile.Reader, server string) error {
	look := time.NewTicker(followEvery)
	defer look.Stop()
	for {
		if err := p.out.Flush(); err != nil {
			return nil // nobody reads any more
		}
		select {
		case <-c.Context.Done():
			return nil
		case <-look.C:
		}
		lines, err := nextLines(reader, server, 0)
		if err != nil {
			return err
		}
		p.printLines(lines)
	}
}

// nextLines returns the new lines of a server, "" for all of them; tail > 0:
// only so many, the last ones.
func nextLines(reader *logfile.Reader, server string, tail int) ([]stderrLine, error) {
	lines := []stderrLine{}
	err := reader.Next(func(text []byte) {
		var l stderrLine
		if json.Unmarshal(text, &l) != nil || server != "" && l.Server != server {
			return // what is no line of ours was cut short when a disk was full
		}
		if lines = append(lines, l); tail > 0 && len(lines) >= 2*tail {
			lines = append(lines[:0], lines[len(lines)-tail:]...)
		}
	})
	if tail > 0 && len(lines) > tail {
		lines = lines[len(lines)-tail:]
	}
	if err != nil {
		return nil, fmt.Errorf("reading the log of stderr: %w", err)
	}
	return lines, nil
}

func (p *program) printLines(lines []stderrLine) {
	for _, l := range lines {
		p.say("%s %s[%d] %s", time.Time(l.At).Local().Format("2006-01-02 15:04:05.000"), l.Server, l.PID, l.Line)
	}
}
