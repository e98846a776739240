package jsonrpc

import (
	"bytes"
	"io"
	"slices"
	"sync"
)

const (
	// blockSize is how much a Reader asks for at once: four times the capacity
	// of a Linux pipe, so that a burst of small messages costs one system call
	// and a message of 10 MB some forty blocks. What no message has filled yet
	// costs no memory.
	blockSize = 256 << 10
	// DefaultMaxMessage is the longest line that a Reader accepts unless told
	// otherwise, in bytes.
	DefaultMaxMessage = 64 << 20
)

// blocks holds the blocks that long lines have been read into, for all Readers.
// A big message then costs one allocation, its own; a pause frees them.
var blocks = sync.Pool{New: func() any { return new([blockSize]byte) }}

// Reader splits a byte stream into lines, one message each (MCP 2025-11-25,
// basic/transports, stdio). It takes LF and CRLF, skips blank lines, drops a
// byte-order mark, replaces invalid UTF-8, and gives a last line that has no
// newline. Not safe for concurrent use.
type Reader struct {
	src     io.Reader
	max     int
	full    [][]byte // the blocks before buf, if the line is longer than one
	buf     []byte   // a block; buf[r:w] is read and not yet given out
	r, w    int
	tooLong bool   // the line has exceeded max: what comes of it is thrown away
	head    []byte // how the line that is too long begins
	reads   uint64
	err     error // what ended the stream; given out when buf is empty
}

// NewReader reads from src and refuses lines longer than max bytes, their line
// ends not counted (0: DefaultMaxMessage).
func NewReader(src io.Reader, max int) *Reader {
	if max <= 0 {
		max = DefaultMaxMessage
	}
	return &Reader{src: src, max: max, buf: make([]byte, blockSize)}
}

// Reads counts the calls of the source's Read so far. Two lines given out
// under one count had both arrived before the second was asked for.
func (r *Reader) Reads() uint64 { return r.reads }

// Buffered reports whether Next would return without reading from the source.
func (r *Reader) Buffered() bool {
	rest := r.buf[r.r:r.w]
	for {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return r.err != nil
		}
		if !blank(rest[:i]) {
			return true
		}
		rest = rest[i+1:]
	}
}

// Next returns the next line that is not blank, without its line end. The
// caller owns it. The error is an *Overlong for a line that was skipped, else
// what ended the stream.
func (r *Reader) Next() ([]byte, error) {
	for {
		line, err := r.line()
		if err != nil {
			return nil, err
		}
		if !blank(line) {
			return toUTF8(bytes.TrimPrefix(line, byteOrderMark)), nil
		}
	}
}

var byteOrderMark = []byte("\xEF\xBB\xBF")

func blank(line []byte) bool {
	return len(bytes.TrimSpace(bytes.TrimPrefix(line, byteOrderMark))) == 0
}

// line returns the next line as a slice of its own.
func (r *Reader) line() ([]byte, error) {
	seen := r.r // there is no newline in buf[r:seen]
	for {
		if i := bytes.IndexByte(r.buf[seen:r.w], '\n'); i >= 0 {
			return r.take(seen+i, 1)
		}
		if r.err != nil {
			if r.r == r.w && len(r.full) == 0 && !r.tooLong {
				return nil, r.err
			}
			return r.take(r.w, 0)
		}
		r.makeRoom()
		seen = r.w
		r.fill()
	}
}

// take returns the line that ends at end, without the CR of a CRLF, and goes on
// behind its newline, if it has one.
func (r *Reader) take(end, newline int) (line []byte, err error) {
	if part := r.buf[r.r:end]; len(r.full) == 0 {
		line = append(line, part...)
	} else {
		line = bytes.Join(append(r.full, part), nil)
	}
	r.r = end + newline
	line = bytes.TrimSuffix(line, []byte("\r"))
	switch {
	case r.tooLong:
		line, err = nil, &Overlong{Head: r.head, Tail: excerpt(line, true)}
	case len(line) > r.max:
		line, err = nil, &Overlong{Head: excerpt(line, false), Tail: excerpt(line, true)}
	}
	r.release()
	r.tooLong, r.head = false, nil
	return line, err
}

// makeRoom makes a part of buf free for the next read.
func (r *Reader) makeRoom() {
	n := r.w - r.r
	switch {
	case r.tooLong || len(r.full)*blockSize+n-1 > r.max: // 1: it may be a CR
		first, last := r.buf[r.r:r.w], r.buf[r.r:r.w]
		if count := len(r.full); count > 0 {
			first = r.full[0]
			last = slices.Concat(excerpt(r.full[count-1], true), last)
		}
		if !r.tooLong {
			r.tooLong, r.head = true, excerpt(first, false)
		}
		// The newest bytes stay: the line's id may be the last of it.
		n = copy(r.buf, excerpt(last, true))
		r.release()
	case n == len(r.buf):
		r.full = append(r.full, r.buf)
		r.buf = blocks.Get().(*[blockSize]byte)[:]
		n = 0
	case r.r > 0:
		copy(r.buf, r.buf[r.r:r.w])
	}
	r.r, r.w = 0, n
}

// excerpt returns a copy of the first or last bytes of text.
func excerpt(text []byte, last bool) []byte {
	n := min(len(text), excerptSize)
	if last {
		return bytes.Clone(text[len(text)-n:])
	}
	return bytes.Clone(text[:n])
}

// release gives the blocks of a long line back.
func (r *Reader) release() {
	for i, b := range r.full {
		blocks.Put((*[blockSize]byte)(b))
		r.full[i] = nil
	}
	r.full = r.full[:0]
}

// fill reads once into the free end of buf.
func (r *Reader) fill() {
	n, err := r.src.Read(r.buf[r.w:])
	r.reads++
	r.w += n
	r.err = err
}
