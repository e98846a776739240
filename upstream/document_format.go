package upstream

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// maxArrayLine is how long an array of plain values may be, in bytes, to be
// written on one line.
const maxArrayLine = 100

// appendMember puts a member behind those of object, in the object's own style:
// on a line of its own if they are, with a comma behind it if the last one has
// one. base is the indentation of the line that the object starts on.
func (d *Document) appendMember(object *hujson.Object, base, key string, value []byte) {
	indent, lines := base+d.unit, true
	if len(object.Members) > 0 {
		lines = false
		for _, m := range object.Members {
			if own, ok := lineIndent(m.Name.BeforeExtra); ok {
				indent, lines = own, true
			}
		}
	}
	// What stands before the closing brace: comments stay where they are, and
	// the member goes below them.
	after := object.AfterExtra
	comments := bytes.TrimRight(after, " \t\r\n")
	lines = lines || bytes.Contains(comments, []byte("//")) // else the comment would swallow the member
	before, text := "", ""
	if lines {
		before, text = d.eol+indent, d.render(mustParse(value).Value, indent)
		if after = after[len(comments):]; !bytes.Contains(after, []byte("\n")) {
			after = []byte(d.eol + base)
		}
	} else {
		before, text = " ", flat(mustParse(value).Value)
		after = after[len(comments):]
	}
	member := hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: append(bytes.Clone(comments), before...), Value: hujson.String(key)},
		Value: mustParse([]byte(text)),
	}
	member.Value.BeforeExtra = []byte(" ")
	if n := len(object.Members); n > 0 && object.Members[n-1].Value.AfterExtra != nil {
		member.Value.AfterExtra = []byte{} // which stands for a trailing comma
	}
	object.Members = append(object.Members, member)
	object.AfterExtra = after
}

// removeMember takes member i of object out, with the comments that belong to it.
func (d *Document) removeMember(object *hujson.Object, i int) {
	last := i == len(object.Members)-1
	trailingComma := object.Members[len(object.Members)-1].Value.AfterExtra != nil
	before, after := object.Members[i].Name.BeforeExtra, object.AfterExtra
	if !last {
		after = object.Members[i+1].Name.BeforeExtra
	}
	kept := bytes.TrimRight(before[:ownComments(before)], " \t\r\n")
	rest := after[lineComments(after):]
	if i == 0 && !bytes.Contains(rest, []byte("\n")) {
		rest = before[len(before)-len(lastLine(before)):] // {"a": 1, "b": 2} without a is {"b": 2}
	}
	if bytes.Contains(kept, []byte("//")) && !bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r"), []byte("\n")) {
		kept = append(bytes.Clone(kept), d.eol...)
	}
	joined := append(bytes.Clone(kept), rest...)
	object.Members = append(object.Members[:i:i], object.Members[i+1:]...)
	switch n := len(object.Members); {
	case n == 0:
		if object.AfterExtra = joined; len(bytes.TrimSpace(joined)) == 0 {
			object.AfterExtra = nil
		}
	case !last:
		object.Members[i].Name.BeforeExtra = joined
	default:
		previous := &object.Members[n-1].Value
		if trailingComma && previous.AfterExtra == nil {
			previous.AfterExtra = []byte{}
		}
		if !trailingComma && previous.AfterExtra != nil {
			joined = append(previous.AfterExtra, joined...)
			previous.AfterExtra = nil
		}
		object.AfterExtra = joined
	}
}

// comment is one comment in an hujson.Extra; a line's end is not part of it.
type comment struct{ start, end int }

// commentsIn finds the comments of extra.
func commentsIn(extra []byte) []comment {
	var all []comment
	for i := 0; i < len(extra); i++ {
		if extra[i] != '/' {
			continue
		}
		end := len(extra)
		if bytes.HasPrefix(extra[i:], []byte("//")) {
			if n := bytes.IndexByte(extra[i:], '\n'); n >= 0 {
				end = i + n
			}
		} else if n := bytes.Index(extra[i+2:], []byte("*/")); n >= 0 {
			end = i + 2 + n + 2
		}
		all = append(all, comment{i, end})
		i = end - 1
	}
	return all
}

// ownComments returns where in the text before a member the comments start that
// stand right above it, with no empty line between. What is on the line of what
// stands before is not among them.
func ownComments(extra []byte) int {
	start := len(extra)
	all := commentsIn(extra)
	for i := len(all) - 1; i >= 0; i-- {
		gap := extra[all[i].end:start]
		if bytes.Count(gap, []byte("\n")) > 1 || !bytes.Contains(extra[:all[i].start], []byte("\n")) {
			break
		}
		start = all[i].start
	}
	return start
}

// lineComments returns where in the text behind a member what is on its own line
// ends, if a line ends there at all.
func lineComments(extra []byte) int {
	end := 0
	for _, c := range commentsIn(extra) {
		if bytes.Contains(extra[end:c.start], []byte("\n")) {
			break
		}
		end = c.end
	}
	if n := bytes.IndexByte(extra[end:], '\n'); n >= 0 {
		return len(bytes.TrimRight(extra[:end+n], "\r"))
	}
	return 0
}

// lastLine returns what stands behind the last line end of extra.
func lastLine(extra []byte) []byte { return extra[bytes.LastIndexByte(extra, '\n')+1:] }

// lineIndent returns the indentation of what extra stands before, and whether it
// begins a line.
func lineIndent(extra []byte) (indent string, own bool) {
	line := lastLine(extra)
	if len(line) == len(extra) || len(bytes.Trim(line, " \t")) > 0 {
		return "", false
	}
	return string(line), true
}

// render writes a value over several lines, the first of which is indented
// already: objects with a member a line, arrays of plain values on one line if
// they fit.
func (d *Document) render(v hujson.ValueTrimmed, indent string) string {
	var parts []string
	open, end := "{", "}"
	switch t := v.(type) {
	case *hujson.Object:
		for _, m := range t.Members {
			parts = append(parts, flat(m.Name.Value)+": "+d.render(m.Value.Value, indent+d.unit))
		}
	case *hujson.Array:
		open, end = "[", "]"
		composite := func(e hujson.Value) bool { return e.Value.Kind() == '{' || e.Value.Kind() == '[' }
		if line := flat(v); len(line) <= maxArrayLine && !slices.ContainsFunc(t.Elements, composite) {
			return line
		}
		for _, e := range t.Elements {
			parts = append(parts, d.render(e.Value, indent+d.unit))
		}
	}
	if len(parts) == 0 {
		return flat(v)
	}
	inner := d.eol + indent + d.unit
	return open + inner + strings.Join(parts, ","+inner) + d.eol + indent + end
}

// flat writes a value on one line, with a space behind each comma and colon.
func flat(v hujson.ValueTrimmed) string {
	var parts []string
	switch t := v.(type) {
	case *hujson.Object:
		for _, m := range t.Members {
			parts = append(parts, flat(m.Name.Value)+": "+flat(m.Value.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case *hujson.Array:
		for _, e := range t.Elements {
			parts = append(parts, flat(e.Value))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	default:
		return string(t.(hujson.Literal))
	}
}
