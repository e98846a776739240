package proxy_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

const (
	defaultConfig = `{"mcpServers":{"fs":{"command":"fs"},"db":{"command":"db"}}}`
	anySchema     = `"inputSchema":{"type":"object"}`
	defaultClient = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"wire","version":"1"}}`
)

// transcript is one file of testdata/session.
type transcript struct {
	name    string
	archive *txtar.Archive
}

func readTranscript(path string) (*transcript, error) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		return nil, err
	}
	s := &transcript{name: filepath.Base(path), archive: archive}
	if s.section("session", "") == "" || len(archive.Comment) < 10 {
		return nil, fmt.Errorf("%s has no session, or no sentence on top that says what it tells", path)
	}
	return s, nil
}

// section returns the text of a section, or what stands for one that is not
// there.
func (s *transcript) section(name, missing string) string {
	for _, f := range s.archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return missing
}

// modern returns the capabilities of a client that speaks 2026-07-28.
func (s *transcript) modern() (capabilities string, ok bool) {
	return strings.CutPrefix(strings.TrimSpace(s.section("client", "")), "modern ")
}

// words are what stands for a text from the start: <<modern>> is the _meta of
// a request of 2026-07-28, <<server>> that of a result, <<schema>> what every
// tool must have, <<form>> what an elicitation must.
func (s *transcript) words() map[string]string {
	capabilities, ok := s.modern()
	if !ok {
		capabilities = "{}"
	}
	return map[string]string{
		"modern": `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"wire","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":` + capabilities + `}`,
		"server":   `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"coffer","version":"1.0"}}`,
		"complete": `"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"coffer","version":"1.0"}}`,
		"listen":   `"io.modelcontextprotocol/subscriptionId"`,
		"schema":   anySchema,
		"form":     `"requestedSchema":{"type":"object","properties":{}}`,
	}
}

// line is one line of a section, with those that continue it.
type line struct {
	at   int      // where it begins, counted from 1 in the section
	text string   // joined
	raw  []string // as it stands in the file
}

// lines returns the lines of a section that say something.
func (s *transcript) lines(section string) []line {
	var out []line
	for _, l := range split(s.section(section, "")) {
		if !l.silent() {
			out = append(out, l)
		}
	}
	return out
}

// silent reports whether a line is blank or a comment.
func (l line) silent() bool { return l.text == "" || l.text[0] == '#' }

// split splits a text into lines. One that begins with white space continues
// the one before, and the white space is not part of it.
func split(text string) []line {
	var out []line
	for i, raw := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		trimmed := strings.TrimLeft(raw, " \t")
		if trimmed != raw && trimmed != "" && len(out) > 0 && !out[len(out)-1].silent() {
			last := &out[len(out)-1]
			last.text += trimmed
			last.raw = append(last.raw, raw)
			continue
		}
		out = append(out, line{i + 1, trimmed, []string{raw}})
	}
	return out
}

// block is what is done together, and what is expected to come of it.
type block struct {
	at       int
	actions  []line
	expected []expected
	body     []line // all of it, in the order of the file
}

// expected is a line that is to arrive.
type expected struct {
	label string
	loose bool // its place among its loose neighbours does not matter
	text  string
	line  line
}

// blocks splits the session into blocks. An action that begins with "& " is
// done together with the one before it.
func (s *transcript) blocks(labels []string) ([]block, error) {
	start := s.start("session")
	out := []block{{at: start}}
	for _, l := range split(s.section("session", "")) {
		l.at += start
		b := &out[len(out)-1]
		if l.silent() {
			b.body = append(b.body, l)
			continue
		}
		if e, ok := parseExpected(l, labels); ok {
			b.expected = append(b.expected, e)
			b.body = append(b.body, l)
			continue
		}
		together := strings.HasPrefix(l.text, "& ")
		action := l
		action.text = strings.TrimPrefix(l.text, "& ")
		switch {
		case !together:
			out = append(out, block{at: l.at, actions: []line{action}, body: []line{l}})
		case len(b.expected) > 0 || len(b.actions) == 0:
			return nil, fmt.Errorf("%s:%d: & must follow the action that it is done with", s.name, l.at)
		default:
			b.actions = append(b.actions, action)
			b.body = append(b.body, l)
		}
	}
	return out, nil
}

// start returns the line of the file on which a section's heading stands.
func (s *transcript) start(section string) int {
	n := bytes.Count(s.archive.Comment, []byte("\n")) + 1
	for _, f := range s.archive.Files {
		if f.Name == section {
			break
		}
		n += bytes.Count(f.Data, []byte("\n")) + 1
	}
	return n
}

var expectedLine = regexp.MustCompile(`^(#[0-9]+)?<(~?) (.*)$`)

// parseExpected reads `label< text`, `label#2< text` or `label<~ text`.
func parseExpected(l line, labels []string) (expected, bool) {
	for _, label := range labels {
		rest, ok := strings.CutPrefix(l.text, label)
		if m := expectedLine.FindStringSubmatch(rest); ok && m != nil {
			return expected{label: label + m[1], loose: m[2] == "~", text: m[3], line: l}, true
		}
	}
	return expected{}, false
}

// title says what was done.
func (b *block) title() string {
	if len(b.actions) == 0 {
		return "after the handshake"
	}
	var actions []string
	for _, a := range b.actions {
		actions = append(actions, abridge(a.text))
	}
	return strings.Join(actions, " & ")
}

func abridge(text string) string {
	if len(text) > 300 {
		return text[:200] + " … " + text[len(text)-90:]
	}
	return text
}

// compare returns "", or a report of how what came differs from what was
// expected. Only the order at each label counts.
func (b *block) compare(got []event, vars map[string]string) string {
	report := ""
	for _, label := range b.labels(got) {
		report += compareAt(label, b.expectedAt(label), textsAt(got, label), vars)
	}
	return report
}

// labels returns the labels at which something was expected or came.
func (b *block) labels(got []event) []string {
	var labels []string
	for _, e := range b.expected {
		labels = append(labels, e.label)
	}
	for _, e := range got {
		labels = append(labels, e.label)
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

func (b *block) expectedAt(label string) []expected {
	var out []expected
	for _, e := range b.expected {
		if e.label == label {
			out = append(out, e)
		}
	}
	return out
}

func textsAt(got []event, label string) []string {
	var out []string
	for _, e := range got {
		if e.label == label {
			out = append(out, e.text)
		}
	}
	return out
}

// compareAt compares what came at one label, and binds the variables of the
// lines that agree.
func compareAt(label string, want []expected, got []string, vars map[string]string) string {
	report, agree := "", true
	say := func(mark, text string) {
		report += fmt.Sprintf("\n    %s %s< %s", mark, label, text)
	}
	for len(want) > 0 || len(got) > 0 {
		if len(want) == 0 {
			say("came, not expected: ", shorten(got[0]))
			agree, got = false, got[1:]
			continue
		}
		run := 1
		for want[0].loose && run < len(want) && want[run].loose {
			run++
		}
		i := -1
		for j := range min(run, len(got)) {
			if match(want[0].text, got[j], vars) {
				i = j
				break
			}
		}
		switch {
		case i >= 0:
			say("as expected:        ", abridge(shorten(got[i])))
			got = slices.Delete(slices.Clone(got), i, i+1)
		case len(got) == 0:
			say("expected, not there:", want[0].text)
			agree = false
		default:
			say("expected:           ", want[0].text)
			say("came:               ", shorten(got[0]))
			report += difference(want[0].text, shorten(got[0]))
			agree, got = false, got[1:]
		}
		want = want[1:]
	}
	if agree {
		return ""
	}
	return report
}

// difference points at the first byte at which got leaves a long want.
func difference(want, got string) string {
	if len(want) < 100 {
		return ""
	}
	i := 0
	for i < min(len(want), len(got)) && want[i] == got[i] {
		i++
	}
	from := max(i-30, 0)
	return fmt.Sprintf("\n      they part at byte %d: expected …%s\n                            came     …%s",
		i, want[from:min(i+60, len(want))], got[min(from, len(got)):min(i+60, len(got))])
}

// lines returns the block as it should stand in the file: as it does if what
// came was as expected; else with what came in place of all expectations.
func (b *block) lines(got []event, good bool) []string {
	end := len(b.body) // what follows is about the next step
	for end > 0 && b.body[end-1].silent() {
		end--
	}
	var out []string
	for _, l := range b.body[:end] {
		if good || !b.isExpected(l) {
			out = append(out, l.raw...)
		}
	}
	if !good {
		for _, e := range got {
			out = append(out, b.told(e)...)
		}
	}
	for _, l := range b.body[end:] {
		out = append(out, l.raw...)
	}
	return out
}

// told returns the line that tells of e: the one that stands there already, or
// a new one.
func (b *block) told(e event) []string {
	for _, old := range b.expected {
		if old.label == e.label && match(old.text, e.text, map[string]string{}) {
			return old.line.raw
		}
	}
	return []string{e.label + "< " + shorten(e.text)}
}

func (b *block) isExpected(l line) bool {
	return slices.ContainsFunc(b.expected, func(e expected) bool { return e.line.at == l.at })
}

// rewrite writes the transcript with a new session.
func (s *transcript) rewrite(path string, session []string) error {
	for i := range s.archive.Files {
		if f := &s.archive.Files[i]; f.Name == "session" {
			f.Data = []byte(strings.TrimRight(strings.Join(session, "\n"), "\n") + "\n")
		}
	}
	return os.WriteFile(path, txtar.Format(s.archive), 0o644)
}
