//go:build unix

package main

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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

// whenDeaf calls tell when nobody can read out any more, which a coffer that has
// nothing to say would not notice: its stdin may be held open by others that its
// client has started. stop ends the watch. Of what is neither a pipe nor a
// socket nothing can be told.
//
// It waits on a duplicate of the descriptor, since a wait keeps others from
// using it, and for reading: to be readable is to be closed, there.
func whenDeaf(out io.Writer, tell func()) (stop func()) {
	f, ok := out.(*os.File)
	if !ok || f.SetDeadline(time.Time{}) != nil {
		return func() {}
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return func() {}
	}
	copied := -1
	raw.Control(func(fd uintptr) {
		copied, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if copied < 0 || err != nil {
		return func() {}
	}
	other := os.NewFile(uintptr(copied), f.Name())
	if raw, err = other.SyscallConn(); err != nil {
		other.Close()
		return func() {}
	}
	var watch sync.WaitGroup
	watch.Go(func() {
		if raw.Read(deaf) == nil { // else it has been closed by stop
			tell()
		}
	})
	return func() {
		other.Close()
		watch.Wait()
	}
}

// deaf reports whether the other end of a pipe or socket is closed.
func deaf(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
