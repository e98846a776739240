//go:build unix

package jsonrpc

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// nonBlocking returns a function that writes to dst as much as fits without
// waiting, or nil if dst has no such way. One goroutine at a time may call it.
func nonBlocking(dst io.Writer) func([][]byte) (int, error) {
	f, ok := dst.(*os.File)
	if !ok || f.SetWriteDeadline(time.Time{}) != nil {
		return nil // not a file, or not one that the runtime's poller serves
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	// Declared out here, or each write would allocate them.
	var (
		all [][]byte
		n   int
	)
	write := func(fd uintptr) bool {
		n, err = writeFD(int(fd), all)
		return true // never wait
	}
	return func(texts [][]byte) (int, error) {
		all, n, err = texts, 0, nil
		if cerr := raw.Write(write); cerr != nil {
			return 0, cerr
		}
		all = nil
		return n, err
	}
}

// writeFD writes what fits of texts without waiting to a descriptor in
// non-blocking mode.
func writeFD(fd int, texts [][]byte) (int, error) {
	for {
		n, err := writeVector(fd, texts)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return 0, nil
		}
		return max(n, 0), err
	}
}
