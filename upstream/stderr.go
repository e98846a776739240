package upstream

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

const (
	// keptLines is how many lines of stderr are quoted when a start fails.
	keptLines = 10
	// maxStderrLine is where a line of stderr is broken, in bytes: some
	// programs draw progress bars and never end their line.
	maxStderrLine = 4 << 10
)

// words reads an upstream's stderr: every line goes to the log and to tell, the
// last ones are kept.
type words struct {
	log     zerolog.Logger
	tell    func(line string)
	drained chan struct{} // closed when stderr has ended

	mu    sync.Mutex
	lines []string // guarded by mu: the newest keptLines
}

func newWords(log zerolog.Logger, tell func(line string)) *words {
	return &words{log: log, tell: tell, drained: make(chan struct{})}
}

// tellStderr passes on a line of the server's stderr.
func (s *Server) tellStderr(line string) {
	if tell := s.set.opts.Stderr; tell != nil {
		tell(s.Name(), line)
	}
}

// drain reads r to its end. It must never stop early: a child whose stderr is
// not read stands still once the pipe is full.
func (w *words) drain(r io.Reader) {
	defer close(w.drained)
	buf := make([]byte, maxStderrLine)
	have := 0
	for {
		n, err := r.Read(buf[have:])
		have += n
		rest := buf[:have]
		for {
			line, after, found := bytes.Cut(rest, []byte{'\n'})
			if !found && (len(rest) < len(buf) && err == nil || len(rest) == 0) {
				break
			}
			w.add(line)
			rest = after
		}
		have = copy(buf, rest)
		if err != nil {
			return
		}
	}
}

// add takes one line.
func (w *words) add(line []byte) {
	text := strings.TrimRight(strings.ToValidUTF8(string(line), "\uFFFD"), "\r \t")
	if text == "" {
		return
	}
	w.log.Info().Str("stderr", text).Send()
	w.tell(text)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lines) == keptLines {
		w.lines = append(w.lines[:0], w.lines[1:]...)
	}
	w.lines = append(w.lines, text)
}

// last returns the newest lines, oldest first.
func (w *words) last() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.lines...)
}
