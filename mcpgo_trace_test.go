package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

// mcpgoTrace writes down what is said at an mcpgoUpstream, for upstreamFaults.
// Several may share a file. Whatever is said is written before it can be
// answered.
type mcpgoTrace struct {
	name string
	file *os.File   // each line is one write at its end
	mu   sync.Mutex // guards the order of lines
}

func newMCPGoTrace(name, path string) *mcpgoTrace {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err) // a test that cannot record proves nothing
	}
	return &mcpgoTrace{name: name, file: f}
}

// said takes whole messages: lines, or events whose data is one line each.
func (t *mcpgoTrace) said(direction byte, text []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("data:")))
		if len(line) == 0 || line[0] != '{' && line[0] != '[' {
			continue // another field of an event, or what HTTP says of an error
		}
		if _, err := fmt.Fprintf(t.file, "%s %c %s\n", t.name, direction, line); err != nil {
			panic(err)
		}
	}
}

// tracedStdin is a stdin whose lines go into the trace.
type tracedStdin struct {
	io.Reader
	trace *mcpgoTrace
	part  []byte // of a line whose end has not been read
}

func (r *tracedStdin) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.part = append(r.part, p[:n]...)
	if end := bytes.LastIndexByte(r.part, '\n') + 1; end > 0 {
		r.trace.said('<', r.part[:end])
		r.part = r.part[end:]
	}
	return n, err
}

// tracedResponse is an HTTP response whose messages go into the trace: mcp-go
// writes each in one piece.
type tracedResponse struct {
	http.ResponseWriter
	trace *mcpgoTrace
}

func (w tracedResponse) Write(text []byte) (int, error) {
	w.trace.said('>', text)
	return w.ResponseWriter.Write(text)
}

// Flush implements http.Flusher, without which mcp-go would not stream.
func (w tracedResponse) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

// Unwrap is for http.ResponseController.
func (w tracedResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }
