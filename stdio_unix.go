//go:build unix

package main

import (
	"io"
	"os"
	"syscall"
	"time"
)

// unblock puts stdin and stdout, where they are pipes or sockets, into
// non-blocking mode, and returns them as files that the runtime's poller
// serves; restore undoes it. Then a read can be interrupted, and an answer is
// written by the goroutine that has it, without a hand-over to one that may
// block: a wake-up less for each request (jsonrpc.Writer).
//
// The mode belongs to the pipe's end and not to our descriptor, so whoever
// shares that end sees it too, hence restore. Terminals, which are shared with
// a shell, and files, which know no such mode, are left alone.
//
// The files returned hold descriptors 0 and 1, as p.stdin and p.stdout do, and
// must not be closed: restore keeps them alive until the end.
func unblock(stdin io.Reader, stdout io.Writer) (in io.Reader, out io.Writer, restore func()) {
	inFile, inRestore := pollable(stdin)
	outFile, outRestore := pollable(stdout)
	in, out = stdin, stdout
	if inFile != nil {
		in = inFile
	}
	if outFile != nil {
		out = outFile
	}
	return in, out, func() {
		inRestore()
		outRestore()
	}
}

// held keeps the files of pollable: to collect one would close its descriptor.
var held []*os.File

// pollable returns stream as a file that the poller serves, or nil if it is
// none of which that can be said.
func pollable(stream any) (file *os.File, restore func()) {
	restore = func() {}
	f, ok := stream.(*os.File)
	if !ok {
		return nil, restore
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return nil, restore
	}
	if f.SetDeadline(time.Time{}) == nil {
		return f, restore // whoever made it chose this mode already
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, restore
	}
	raw.Control(func(fd uintptr) {
		if syscall.SetNonblock(int(fd), true) != nil {
			return
		}
		restore = func() { syscall.SetNonblock(int(fd), false) }
		file = os.NewFile(fd, f.Name())
		held = append(held, file)
	})
	return file, restore
}
