package jsonrpc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"coffer/jsonrpc"
)

// lines reads everything: each line, each ErrTooLong, and what ended it.
func lines(r *jsonrpc.Reader) (got []string, end error) {
	for {
		line, err := r.Next()
		switch {
		case errors.Is(err, jsonrpc.ErrTooLong):
			got = append(got, "TOO LONG")
		case err != nil:
			if _, again := r.Next(); again != err {
				err = fmt.Errorf("first %w, then %w", err, again)
			}
			return got, err
		default:
			got = append(got, string(line))
		}
	}
}

const block = 256 << 10 // what a Reader reads at once

func TestReader(t *testing.T) {
	long := strings.Repeat("x", block)
	for _, c := range []struct {
		name string
		max  int
		text string
		want []string
	}{
		{"nothing", 0, "", nil},
		{"two lines", 0, "a\nb\n", []string{"a", "b"}},
		{"last line without newline", 0, "a\nb", []string{"a", "b"}},
		{"CRLF", 0, "a\r\nb\r\n", []string{"a", "b"}},
		{"CR at the end", 0, "a\nb\r", []string{"a", "b"}},
		{"one CR goes, white space stays", 0, " a \r\r\n", []string{" a \r"}},
		{"CR inside", 0, "a\rb\n", []string{"a\rb"}},
		{"blank lines", 0, "\n\r\n \t\n\na\n\n\r\n", []string{"a"}},
		{"only blanks", 0, "\n \n\t", nil},
		{"byte-order mark", 0, "\uFEFFa\n", []string{"a"}},
		{"byte-order mark on each line", 0, "\uFEFFa\n\uFEFFb\n", []string{"a", "b"}},
		{"byte-order mark alone", 0, "\uFEFF\na\n\uFEFF", []string{"a"}},
		{"one mark goes", 0, "\uFEFF\uFEFFa\n", []string{"\uFEFFa"}},
		{"UTF-8 stays", 0, "é€😀\n", []string{"é€😀"}},
		{"invalid UTF-8", 0, "a\xffb\xc3\ncut \xe2\x82", []string{"a\uFFFDb\uFFFD", "cut \uFFFD"}},
		{"surrogates as UTF-8", 0, "\xed\xa0\x80\n", []string{"\uFFFD"}},
		{"NUL", 0, "a\x00b\n", []string{"a\x00b"}},

		{"exactly the limit", 3, "abc\nd\n", []string{"abc", "d"}},
		{"exactly the limit, CRLF", 3, "abc\r\nd\n", []string{"abc", "d"}},
		{"one more", 3, "abcd\nd\n", []string{"TOO LONG", "d"}},
		{"one more, CRLF", 3, "abcd\r\nd\n", []string{"TOO LONG", "d"}},
		{"one more, last", 3, "abcd", []string{"TOO LONG"}},
		{"exactly the limit, last", 3, "abc", []string{"abc"}},
		{"each is one error", 3, "abcd\nabcde\nabc\nabcdef\n", []string{"TOO LONG", "TOO LONG", "abc", "TOO LONG"}},
		{"a blank line behind", 3, "abcd\n\nabc\n", []string{"TOO LONG", "abc"}},

		{"fills a block", 0, long[1:] + "\nb\n", []string{long[1:], "b"}},
		{"fills a block without its newline", 0, long + "\nb\n", []string{long, "b"}},
		{"fills a block, last", 0, long, []string{long}},
		{"CRLF between blocks", 0, long[1:] + "\r\nb\n", []string{long[1:], "b"}},
		{"CRLF in the second block", 0, long + "\r\nb\n", []string{long, "b"}},
		{"several blocks", 0, "a\n" + long + long + long + "y\nb\n", []string{"a", long + long + long + "y", "b"}},
		{"several blocks, last", 0, long + long + "y", []string{long + long + "y"}},
		{"several, one after the other", 0, long + long + "1\n" + long + "2\n" + long + long + "3\n", []string{long + long + "1", long + "2", long + long + "3"}},
		{"a character between blocks", 0, long[1:] + "é\n", []string{long[1:] + "é"}},
		{"exactly the limit in blocks", 2 * block, long + long + "\r\nb\n", []string{long + long, "b"}},
		{"one more in blocks", 2 * block, long + long + "x\r\nb\n", []string{"TOO LONG", "b"}},
		{"one more in blocks, last", 2 * block, long + long + "x", []string{"TOO LONG"}},
		{"many blocks too long", 1000, strings.Repeat(long, 20) + "\nb\n", []string{"TOO LONG", "b"}},
		{"too long, and the end", 1000, strings.Repeat(long, 20), []string{"TOO LONG"}},
		{"too long, its newline first in a block", 1000, long + "\nb\n", []string{"TOO LONG", "b"}},
		{"too long, its newline last in a block", 1000, long[1:] + "\nb\n", []string{"TOO LONG", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, source := range []struct {
				name string
				r    io.Reader
			}{
				{"at once", strings.NewReader(c.text)},
				{"with the error", iotest.DataErrReader(strings.NewReader(c.text))},
				{"halves", iotest.HalfReader(strings.NewReader(c.text))},
				{"bytes", iotest.OneByteReader(strings.NewReader(c.text))},
			} {
				if len(c.text) > 1000 && source.name != "at once" {
					continue // FuzzReader's seeds do it
				}
				got, end := lines(jsonrpc.NewReader(source.r, c.max))
				if !slices.Equal(got, c.want) || end != io.EOF {
					t.Errorf("%s: got %s, %v; want %s", source.name, brief(got), end, brief(c.want))
				}
			}
		})
	}
}

// brief shortens lines so that a failure can be read.
func brief(lines []string) string {
	var out []string
	for _, l := range lines {
		if len(l) > 20 {
			l = fmt.Sprintf("%s… (%d)", l[:8], len(l))
		}
		out = append(out, l)
	}
	return fmt.Sprintf("%q", out)
}

// What has arrived is given out before what ended the stream.
func TestReaderEndsWithTheSourcesError(t *testing.T) {
	boom := errors.New("boom")
	got, end := lines(jsonrpc.NewReader(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(boom)), 0))
	if !slices.Equal(got, []string{"a", "b"}) || end != boom {
		t.Errorf("got %q, %v", got, end)
	}
}

// A line is the caller's: what comes later must not change it.
func TestLinesAreNotTouchedAgain(t *testing.T) {
	var text bytes.Buffer
	for i := range 2000 {
		fmt.Fprintf(&text, "line %04d %s\n", i, strings.Repeat("x", 300))
	}
	r := jsonrpc.NewReader(&text, 0)
	var got [][]byte
	for {
		line, err := r.Next()
		if err != nil {
			break
		}
		got = append(got, line)
	}
	for i, line := range got {
		if !bytes.HasPrefix(line, fmt.Appendf(nil, "line %04d ", i)) {
			t.Fatalf("line %d became %.20q", i, line)
		}
	}
	if len(got) != 2000 {
		t.Errorf("%d lines", len(got))
	}
}

// steps gives one string for each Read.
type steps struct{ left []string }

func (s *steps) Read(p []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.left[0])
	s.left = s.left[1:]
	return n, nil
}

func TestReaderBufferedAndReads(t *testing.T) {
	for _, c := range []struct {
		name     string
		steps    []string
		buffered bool // after the first line: can there be another without a read
		reads    uint64
	}{
		{"one line", []string{"a\n"}, false, 2},
		{"two at once", []string{"a\nb\n"}, true, 1},
		{"the half of a second", []string{"a\nb", "\n"}, false, 2},
		{"blank behind it", []string{"a\n\n", "b\n"}, false, 2},
		{"CRLF and blanks behind it", []string{"a\r\n\r\n \n\uFEFF\n", "b\n"}, false, 2},
		{"a second behind a blank", []string{"a\n\nb\n"}, true, 1},
		{"too long, whole", []string{"a\n12345\nb\n"}, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := jsonrpc.NewReader(&steps{c.steps}, 4)
			if r.Buffered() || r.Reads() != 0 {
				t.Errorf("before the first read: buffered %t, reads %d", r.Buffered(), r.Reads())
			}
			if line, err := r.Next(); string(line) != "a" || err != nil {
				t.Fatalf("first line %q, %v", line, err)
			}
			if got := r.Buffered(); got != c.buffered {
				t.Errorf("buffered %t, want %t", got, c.buffered)
			}
			r.Next()
			if got := r.Reads(); got != c.reads {
				t.Errorf("reads %d, want %d", got, c.reads)
			}
		})
	}
}

func TestReaderIsBufferedAtTheEnd(t *testing.T) {
	r := jsonrpc.NewReader(iotest.DataErrReader(strings.NewReader("a\nb")), 0)
	for _, want := range []string{"a", "b", ""} {
		line, err := r.Next()
		if string(line) != want || !r.Buffered() {
			t.Errorf("line %q, %v, buffered %t; want %q and buffered", line, err, r.Buffered(), want)
		}
	}
}

// endless is one line that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// A too long line costs no more memory than the limit.
func TestTooLongIsNotKept(t *testing.T) {
	const limit, size = 1 << 20, 8 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := jsonrpc.NewReader(io.LimitReader(endless{}, size), limit).Next()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, jsonrpc.ErrTooLong) || got > 3*limit {
		t.Errorf("error %v, %d bytes allocated for a line of %d", err, got, size)
	}
}
