package upstream

import (
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// seen is an event as a test compares it.
type seen struct{ name, data, id string }

// events reads text to its end.
func events(t *testing.T, src io.Reader, max int) (all []seen, r *eventReader) {
	t.Helper()
	r = newEventReader(src, max)
	for {
		ev, err := r.next()
		if errors.Is(err, io.EOF) {
			return all, r
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, seen{ev.name, string(ev.data), r.id})
	}
}

func TestEventStream(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []seen
	}{
		{"plain", "data: a\n\n", []seen{{"", "a", ""}}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []seen{{"", "a", ""}, {"", "b", ""}}},
		{"CR", "data: a\r\rdata: b\r\r", []seen{{"", "a", ""}, {"", "b", ""}}},
		{"mixed ends", "data: a\rdata: b\n\r\ndata: c\r\n\n", []seen{{"", "a\nb", ""}, {"", "c", ""}}},
		{"byte-order mark", "\xEF\xBB\xBFdata: a\n\n", []seen{{"", "a", ""}}},
		{"mark in the middle is none", "\n\xEF\xBB\xBFdata: a\n\n", nil},
		{"comments", ": hello\n:\ndata: a\n: more\n\n:\n\n", []seen{{"", "a", ""}}},
		{"several data lines", "data: a\ndata:\ndata:  b\n\n", []seen{{"", "a\n\n b", ""}}},
		{"no space, no colon", "data:a\ndata\nfoo\n\n", []seen{{"", "a\n", ""}}},
		{"name", "event: endpoint\ndata: /x\n\ndata: b\n\n", []seen{{"endpoint", "/x", ""}, {"", "b", ""}}},
		{"a name alone is no event", "event: x\n\ndata: b\n\n", []seen{{"", "b", ""}}},
		{"id stays", "id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", []seen{{"", "a", "1"}, {"", "b", "1"}, {"", "c", ""}}},
		{"id with NUL", "id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\n", []seen{{"", "a", "1"}, {"", "b", "1"}}},
		{"priming", "id: 7\ndata:\n\n", []seen{{"", "", "7"}}},
		{"cut off by the end", "data: a\n\ndata: b\n", []seen{{"", "a", ""}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, _ := events(t, strings.NewReader(c.text), 100); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got, _ := events(t, iotest.OneByteReader(strings.NewReader(c.text)), 100); !reflect.DeepEqual(got, c.want) {
				t.Errorf("byte by byte: got %q, want %q", got, c.want)
			}
		})
	}
}

func TestEventStreamRetryAndLoneID(t *testing.T) {
	_, r := events(t, strings.NewReader("retry: 1500\nretry: x\nretry: -1\nid: 3\n\n"), 100)
	if r.retry != 1500*time.Millisecond || r.id != "3" {
		t.Errorf("got retry %v and id %q, want 1.5s and 3", r.retry, r.id)
	}
	if _, r := events(t, strings.NewReader("id: 3\n"), 100); r.id != "" || r.retry >= 0 {
		t.Errorf("got retry %v and id %q of a stream that gave neither", r.retry, r.id)
	}
}

// A CR ends a line at once: the event must not wait for a LF that may follow.
func TestEventStreamDoesNotWaitAfterCR(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	go io.WriteString(out, "data: a\r\r") // ends when it has been read
	if ev, err := newEventReader(in, 100).next(); err != nil || string(ev.data) != "a" {
		t.Errorf("got %q, %v", ev.data, err)
	}
}

func TestEventStreamBig(t *testing.T) {
	big := strings.Repeat("x", 2<<20)
	got, _ := events(t, strings.NewReader("data: "+big+"\n\ndata: "+big+"\ndata: "+big+"\n\n"), 5<<20)
	if len(got) != 2 || got[0].data != big || got[1].data != big+"\n"+big {
		t.Errorf("got %d events", len(got))
	}
}

func TestEventStreamTooLong(t *testing.T) {
	text := `{"jsonrpc":"2.0",` + strings.Repeat("x", 4000) + `,"id":5}`
	for _, c := range []struct{ name, text string }{
		{"one line", "data: " + text + "\n\n"},
		{"several lines", "data: " + text[:900] + "\ndata: " + text[900:1500] + "\ndata: " + text[1500:] + "\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newEventReader(strings.NewReader(c.text+"data: next\n\n"), 1000)
			ev, err := r.next()
			if err != nil || !ev.cut {
				t.Fatalf("got cut %v, %v", ev.cut, err)
			}
			if !strings.HasPrefix(string(ev.data), text[:100]) || len(ev.data) > 1000 {
				t.Errorf("its beginning is %.100q", ev.data)
			}
			if !strings.HasSuffix(string(ev.tail), text[3900:]) || len(ev.tail) > 1000 {
				t.Errorf("its end is %q", ev.tail)
			}
			if ev, err := r.next(); err != nil || string(ev.data) != "next" {
				t.Errorf("the next event is %q, %v", ev.data, err)
			}
		})
	}
}

// TestEventStreamComment: a comment without an end takes no memory.
func TestEventStreamComment(t *testing.T) {
	r := newEventReader(strings.NewReader("data: a\n:"+strings.Repeat("x", 8<<20)+"\ndata: b\n\n"), 64<<20)
	ev, err := r.next()
	if err != nil || string(ev.data) != "a\nb" {
		t.Errorf("the event around it is %.100q, %v", ev.data, err)
	}
	if cap(r.line) > eventBuffer {
		t.Errorf("%d bytes are kept for the next line", cap(r.line))
	}
}

// oracle reads an event stream the slow and obvious way.
func oracle(text string) (all []seen, id string, retry time.Duration) {
	text = strings.TrimPrefix(text, "\xEF\xBB\xBF")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	lines := strings.Split(text, "\n")
	retry = -1
	name, next := "", ""
	var data []string
	for _, line := range lines[:len(lines)-1] {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			id = next
			if data != nil {
				all = append(all, seen{name, strings.Join(data, "\n"), id})
			}
			name, data = "", nil
		case field == "data":
			data = append(data, value)
		case field == "event":
			name = value
		case field == "id" && !strings.Contains(value, "\x00"):
			next = value
		case field == "retry":
			if ms, err := strconv.Atoi(value); err == nil && strings.Trim(value, "0123456789") == "" && ms < 1<<32 {
				retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
	return all, id, retry
}

func FuzzEventStream(f *testing.F) {
	for _, text := range []string{
		"data: a\n\n", "\xEF\xBB\xBFid: 1\r\nevent: x\rdata:a\n\r\n\r", "retry: 10\n:c\ndata\n\n", "id: a\x00\ndata: \x80\n\n", "\r\n\r\n", "data: " + strings.Repeat("y", 3000) + "\n\n",
	} {
		f.Add(text, uint8(1))
	}
	f.Fuzz(func(t *testing.T, text string, chunk uint8) {
		want, id, retry := oracle(text)
		got, r := events(t, &chunks{text, int(chunk) + 1}, len(text)+1)
		if !reflect.DeepEqual(got, want) || r.id != id || r.retry != retry {
			t.Errorf("%q: got %q, id %q, retry %v; want %q, %q, %v", text, got, r.id, r.retry, want, id, retry)
		}
		short, _ := events(t, strings.NewReader(text), 8)
		if len(short) != len(want) {
			t.Errorf("%q: with a limit %d events, without %d", text, len(short), len(want))
		}
	})
}

// chunks gives size bytes of text at a time.
type chunks struct {
	text string
	size int
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := copy(p, c.text[:min(c.size, len(c.text))])
	c.text = c.text[n:]
	return n, nil
}
