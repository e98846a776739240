//go:build !unix

package main

import "io"

// unblock does nothing: only on unix can a pipe that others made be served by
// the runtime's poller.
func unblock(stdin io.Reader, stdout io.Writer) (in io.Reader, out io.Writer, restore func()) {
	return stdin, stdout, func() {}
}

// whenDeaf does nothing: a closed pipe is met by the next write.
func whenDeaf(io.Writer, func()) (stop func()) { return func() {} }
