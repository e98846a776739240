package upstream

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"strconv"
	"time"
)

// event is one event of a stream (WHATWG HTML, 9.2 Server-sent events).
type event struct {
	name string // "" stands for "message"
	data []byte
	// cut says that the data was longer than the reader's limit: data is its
	// beginning and tail its end.
	cut  bool
	tail []byte
}

// isMessage reports whether ev carries a JSON-RPC message. One without data
// only sets the id (MCP 2025-11-25, transports, "Sending Messages").
func (ev *event) isMessage() bool {
	return (ev.name == "" || ev.name == "message") && len(ev.data) > 0
}

const (
	// eventBuffer is what is asked of the network at once.
	eventBuffer = 16 << 10
	// keptOfCut is how much is kept of either end of an event that is too long,
	// in bytes: enough to find the id of the message.
	keptOfCut = 512
	// lineSlack is what a line may hold beside its data: the name of the field.
	lineSlack = 16
)

// eventReader reads the events of one stream. Not safe for concurrent use.
type eventReader struct {
	// id is the last event id and retry the reconnection time that the stream
	// has given so far; retry is negative until then.
	id    string
	retry time.Duration

	src    *bufio.Reader
	max    int
	begun  bool   // the place of a byte-order mark has been passed
	skipLF bool   // the last line ended with a CR, which a LF may follow
	line   []byte // the line being read
}

// newEventReader reads from src and cuts events with more than max bytes of data.
func newEventReader(src io.Reader, max int) *eventReader {
	return &eventReader{src: bufio.NewReaderSize(src, eventBuffer), max: max, retry: -1}
}

// next returns the next event. Its data is the caller's. An event that the
// stream's end cuts off is not given out, as the standard demands.
func (r *eventReader) next() (event, error) {
	var ev event
	id := r.id
	some := false // there was a data field, be it empty
	for {
		line, tail, err := r.readLine()
		if err != nil {
			return event{}, err
		}
		if len(line) == 0 {
			if r.id = id; some {
				return ev, nil
			}
			ev = event{} // a name without data is no event
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "data":
			r.addData(&ev, some, value, tail)
			some = true
		case "event":
			ev.name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				id = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil {
				r.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// addData takes one data line; later ones are joined with a line feed. tail is
// not nil if the line was too long.
func (r *eventReader) addData(ev *event, more bool, value, tail []byte) {
	switch {
	case ev.cut:
		ev.tail = end(append(ev.tail, value...), tail)
		return
	case !more:
		// The line's memory becomes the event's: a big message is not copied.
		ev.data, r.line = value, nil
	default:
		ev.data = append(append(ev.data, '\n'), value...)
	}
	if tail != nil || len(ev.data) > r.max {
		ev.cut = true
		ev.tail = end(bytes.Clone(ev.data), tail)
		ev.data = bytes.Clone(ev.data[:min(len(ev.data), keptOfCut)])
	}
}

// end returns the last bytes of a and b together.
func end(a, b []byte) []byte {
	a = append(a, b...)
	return a[max(0, len(a)-keptOfCut):]
}

// readLine returns the next line without its end (LF, CR or CRLF), as a slice
// that is good until the next call. Of a line that is too long it returns the
// beginning and, not nil, the end. A last line without an end is no line.
func (r *eventReader) readLine() (line, tail []byte, err error) {
	if !r.begun {
		r.begun = true
		if bom, _ := r.src.Peek(3); string(bom) == "\xEF\xBB\xBF" {
			r.src.Discard(3)
		}
	}
	r.line = r.line[:0]
	for {
		if _, err := r.src.Peek(1); err != nil {
			return nil, nil, err
		}
		part, _ := r.src.Peek(r.src.Buffered())
		if r.skipLF {
			r.skipLF = false
			if part[0] == '\n' {
				r.src.Discard(1)
				continue
			}
		}
		at := lineEnd(part)
		used := len(part)
		if at >= 0 {
			r.skipLF = part[at] == '\r'
			part, used = part[:at], at+1
		}
		limit := r.max + lineSlack
		if begins(':', r.line, part) {
			limit = 1 // a comment: it may go on for ever, and nobody wants it
		}
		room := min(len(part), limit-len(r.line))
		if need := len(r.line) + room; need > cap(r.line) && need > eventBuffer {
			r.line = slices.Grow(r.line, need) // twice as much: append alone copies a big line too often
		}
		r.line = append(r.line, part[:room]...)
		if room < len(part) {
			tail = end(tail, part[room:])
		}
		r.src.Discard(used)
		if at >= 0 {
			return r.line, tail, nil
		}
	}
}

// begins reports whether c is the first byte of a line that is read in two parts.
func begins(c byte, line, more []byte) bool {
	if len(line) == 0 {
		line = more
	}
	return len(line) > 0 && line[0] == c
}

// lineEnd returns the offset of the first CR or LF, or -1.
func lineEnd(text []byte) int {
	lf := bytes.IndexByte(text, '\n')
	if lf >= 0 {
		text = text[:lf]
	}
	if cr := bytes.IndexByte(text, '\r'); cr >= 0 {
		return cr
	}
	return lf
}
