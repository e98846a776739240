package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"coffer/upstream/upstreamtest"
)

// schemas are read once for all transcripts.
var schemas = sync.OnceValues(func() (*upstreamtest.Schemas, error) {
	return upstreamtest.ReadSchemas("../testdata/schema")
})

// saying is a line that coffer has sent to a peer, or a peer to coffer.
type saying struct {
	label string
	sent  bool // by coffer
	line  []byte
}

// say notes a line for the check at the end.
func (w *wire) say(label string, sent bool, line []byte) {
	line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff")))
	if len(line) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sayings = append(w.sayings, saying{label, sent, bytes.Clone(line)})
}

// overheard is the stdout of an upstream, and notes each line before coffer gets it.
type overheard struct {
	io.ReadCloser
	w     *wire
	label string
	rest  []byte
}

func (h *overheard) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.rest = append(h.rest, p[:n]...)
	for {
		line, rest, whole := bytes.Cut(h.rest, []byte("\n"))
		if !whole {
			return n, err
		}
		h.w.say(h.label, false, line)
		h.rest = rest
	}
}

// pardon is a line of a transcript's section "faults": what is known to be
// wrong with a message, since the transcript has a peer that is not of this
// world and coffer passes on what it says.
type pardon struct {
	label, definition, at string
	used                  bool
}

// pardons reads the section "faults".
func (s *transcript) pardons() ([]*pardon, error) {
	var all []*pardon
	for _, line := range s.lines("faults") {
		what, why, ok := strings.Cut(line.text, ": ")
		words := strings.Fields(what)
		if !ok || why == "" || len(words) != 3 {
			return nil, fmt.Errorf("%s: section faults: %q is not LABEL DEFINITION POINTER: WHY", s.name, line.text)
		}
		all = append(all, &pardon{label: words[0], definition: words[1], at: words[2]})
	}
	return all, nil
}

// checkSchemas validates all that coffer has sent in a session against the
// published schema of the revision that each peer spoke. What the transcript
// pardons must be there.
func checkSchemas(t *testing.T, s *transcript, sayings []saying) {
	t.Helper()
	published, err := schemas()
	if err != nil {
		t.Fatal(err)
	}
	pardons, err := s.pardons()
	if err != nil {
		t.Fatal(err)
	}
	peers := map[string]*upstreamtest.Traffic{}
	for _, said := range sayings {
		peer := peers[said.label]
		if peer == nil {
			peer = published.Check(said.label == "C")
			peers[said.label] = peer
		}
		if !said.sent {
			peer.Received(said.line)
			continue
		}
		for _, fault := range peer.Sent(said.line) {
			if !pardoned(pardons, said.label, fault) {
				t.Errorf("%s: %s is sent what breaks the schema: %s", s.name, said.label, fault)
			}
		}
	}
	for _, p := range pardons {
		if !p.used {
			t.Errorf("%s: section faults: nothing is wrong with %s %s %s any more", s.name, p.label, p.definition, p.at)
		}
	}
}

func pardoned(pardons []*pardon, label string, fault upstreamtest.Fault) bool {
	for _, p := range pardons {
		if p.label == label && p.definition == fault.Definition && p.at == fault.At {
			p.used = true
			return true
		}
	}
	return false
}
