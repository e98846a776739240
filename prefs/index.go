package prefs

import "bytes"

// indexHeaderSize is the length in bytes of the two copies of the header with
// which a WAL index, the -shm file, begins (SQLite, "WAL-mode File Format", 2.1).
const indexHeaderSize = 96

// indexHeader is what a look at the index saw. Each commit and each checkpoint
// that begins a new log writes other ones before it returns, and PRAGMA
// data_version itself does no more than compare them: as long as they are the
// same nobody has committed.
type indexHeader [indexHeaderSize]byte

// settled reports whether h was seen whole: the copies are written one after the
// other, and differ while that is going on.
func (h *indexHeader) settled() bool {
	return bytes.Equal(h[:indexHeaderSize/2], h[indexHeaderSize/2:])
}

// lookAtIndex returns the header as it is now; ok is false if it cannot be seen,
// and then SQLite has to be asked. It is a read of memory.
func (f *file) lookAtIndex() (h indexHeader, ok bool) {
	if f.index == nil {
		return h, false
	}
	copy(h[:], f.index)
	return h, h.settled()
}

// untouched reports whether certainly nobody has committed since the last load.
func (f *file) untouched() bool {
	h, ok := f.lookAtIndex()
	return ok && f.loaded && h == f.seenIndex
}
