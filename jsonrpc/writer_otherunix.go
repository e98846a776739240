//go:build unix && !linux

package jsonrpc

import "syscall"

// writeVector writes texts one after the other: only Linux has a call for all of
// them that package syscall offers.
func writeVector(fd int, texts [][]byte) (n int, err error) {
	for _, text := range texts {
		var written int
		written, err = syscall.Write(fd, text)
		n += max(written, 0)
		if err != nil || written < len(text) {
			break
		}
	}
	if n > 0 {
		err = nil // the next write will meet it again
	}
	return n, err
}
