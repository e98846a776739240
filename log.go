package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"coffer/logfile"
)

// logLevels are the values of --log-level.
var logLevels = []string{"debug", "info", "warn", "error", "off"}

// serveBusyTimeout is how long serve waits for a locked preference file at a
// time. It does so beside its answers and tries again.
const serveBusyTimeout = 250 * time.Millisecond

// logTime is how a log line says when: with milliseconds, to be laid beside the
// client's own log.
const logTime = "2006-01-02T15:04:05.000Z07:00"

// logger returns the log that the flags ask for: lines that a person reads, on
// stderr and in the log file. Without --log-level, quiet is the least level.
func (p *program) logger(c *cli.Context, quiet zerolog.Level) (zerolog.Logger, error) {
	level := quiet
	if name := c.String("log-level"); name != "" {
		if name == "off" {
			name = "disabled"
		}
		level, _ = zerolog.ParseLevel(name) // checkLogLevel has seen it
	}
	var to io.Writer = lines(p.stderr, colourful(p.stderr), nil)
	if path := c.String("log-file"); path != "" {
		file, err := logfile.Open(path)
		if err != nil {
			return zerolog.Nop(), failf(exitError, "check --log-file", "log file %q: %w", path, err)
		}
		p.logFile = file
		// Several coffers may write to one file.
		inFile := lines(file, false, map[string]any{"pid": os.Getpid()})
		p.fileLog = zerolog.New(inFile).Level(level).Hook(stampHook{})
		to = zerolog.MultiLevelWriter(to, inFile)
	}
	return zerolog.New(to).Level(level).Hook(stampHook{}), nil
}

// checkLogLevel checks --log-level, for commands that do not log, too: a slip is
// a slip.
func checkLogLevel(c *cli.Context) error {
	if name := c.String("log-level"); name != "" && !slices.Contains(logLevels, name) {
		return usagef("one of "+strings.Join(logLevels, ", "), "--log-level: unknown level %q", name)
	}
	return nil
}

// lines returns a writer of log lines for people; more is added to each.
func lines(to io.Writer, colours bool, more map[string]any) io.Writer {
	return zerolog.ConsoleWriter{
		Out:             to,
		NoColor:         !colours,
		FormatTimestamp: func(at any) string { return fmt.Sprint(at) },
		FormatPrepare: func(event map[string]any) error {
			for key, value := range more {
				event[key] = value
			}
			return nil
		},
	}
}

// stampHook gives events their time. The library's own way to do so has one
// format for the whole process.
type stampHook struct{}

// Run implements zerolog.Hook.
func (stampHook) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().Format(logTime))
}

// colourful reports whether w is a terminal whose user wants colours
// (no-color.org).
func colourful(w io.Writer) bool { return os.Getenv("NO_COLOR") == "" && isTerminal(w) }

// isTerminal reports whether a person reads w.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
