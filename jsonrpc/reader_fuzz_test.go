package jsonrpc_test

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"coffer/jsonrpc"
)

// expand makes long stretches of single bytes, so that a small input reaches
// what happens at the borders of a Reader's blocks.
func expand(script []byte) []byte {
	var out []byte
	for _, b := range script {
		switch b {
		case 0x01:
			out = append(out, strings.Repeat("y", block)...)
		case 0x02:
			out = append(out, strings.Repeat("z", block-1)...)
		case 0x03:
			out = append(out, strings.Repeat(" ", block/2)...)
		default:
			out = append(out, b)
		}
		if len(out) > 4*block {
			break
		}
	}
	return out
}

// simple is the Reader's job without regard to memory and speed.
func simple(text []byte, max int) (want []string) {
	mark := []byte("\uFEFF")
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) > max {
			want = append(want, "TOO LONG")
			continue
		}
		line = bytes.TrimPrefix(line, mark)
		if len(bytes.TrimSpace(line)) > 0 {
			want = append(want, strings.ToValidUTF8(string(line), "\uFFFD"))
		}
	}
	return want
}

// chopped gives text in pieces of the sizes in cuts, over and over. Size 0 is
// a Read that gives nothing.
type chopped struct {
	text []byte
	cuts []byte
	at   int
	zero bool
}

func (c *chopped) Read(p []byte) (int, error) {
	if len(c.text) == 0 {
		return 0, io.EOF
	}
	n := len(c.text)
	if len(c.cuts) > 0 {
		n = int(c.cuts[c.at%len(c.cuts)])
		c.at++
		if n > 200 {
			n *= 700 // beyond half a block
		}
		if n == 0 && c.zero {
			n = 1 // never for ever
		}
		c.zero = n == 0
	}
	n = copy(p, c.text[:min(n, len(c.text))])
	c.text = c.text[n:]
	if len(c.text) == 0 && len(c.cuts)%2 == 1 {
		return n, io.EOF // with the last bytes, which is allowed
	}
	return n, nil
}

func FuzzReader(f *testing.F) {
	for _, text := range []string{
		"a\nb\n", "a\r\n\r\n\uFEFFb", "\x01\nb\n", "\x02\r\nb", "\x01\x01\x01\r\n\x02\nx", "\x03\n\x03a\n", "\xff\n\xed\xa0\x80", "12345\n1234\n123456", "\n", "\r",
	} {
		for _, cuts := range []string{"", "\x00\x03\x07"} {
			f.Add([]byte(text), []byte(cuts), uint32(5))
			f.Add([]byte(text), []byte(cuts), uint32(block))
		}
	}
	f.Fuzz(func(t *testing.T, script, cuts []byte, size uint32) {
		text := expand(script)
		cuts = bytes.Clone(cuts)
		if len(text) > 4096 {
			for i, c := range cuts { // or it takes for ever
				cuts[i] = max(c, 201)
			}
		}
		limit := 1 + int(size%(3*block))
		got, end := lines(jsonrpc.NewReader(&chopped{text: text, cuts: cuts}, limit))
		if want := simple(text, limit); !slices.Equal(got, want) || end != io.EOF {
			t.Errorf("got %s, %v; want %s", brief(got), end, brief(want))
		}
	})
}
