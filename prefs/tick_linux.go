package prefs

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ticker ticks like a time.Ticker, without the runtime's timers: one of those
// that fires while all else sleeps wakes three threads, and takes some 0.5 ms of
// processor time. A timer of the kernel's wakes the one that waits for it.
type ticker struct {
	kernel *os.File        // a timerfd; nil: there was none to be had
	raw    syscall.RawConn // of kernel
	plain  *time.Ticker    // instead
}

func newTicker(every time.Duration) *ticker {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &ticker{plain: time.NewTicker(every)}
	}
	spec := unix.NsecToTimespec(every.Nanoseconds())
	file := os.NewFile(uintptr(fd), fmt.Sprintf("timer of %v", every))
	raw, err := file.SyscallConn()
	if err != nil || unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: spec, Value: spec}, nil) != nil {
		file.Close()
		return &ticker{plain: time.NewTicker(every)}
	}
	return &ticker{kernel: file, raw: raw}
}

// wait waits for the next tick; it reports false once ctx has ended. Ticks that
// nobody waited for are one.
func (t *ticker) wait(ctx context.Context) bool {
	if t.kernel == nil {
		select {
		case <-t.plain.C:
		case <-ctx.Done():
		}
		return ctx.Err() == nil
	}
	// Not kernel.Read: the runtime's monitor would be woken for a system call
	// that it has to watch. This one cannot block.
	err := t.raw.Read(func(fd uintptr) bool {
		var ticks [8]byte
		_, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&ticks)), unsafe.Sizeof(ticks))
		return errno != syscall.EAGAIN
	})
	return err == nil && ctx.Err() == nil
}

// interrupt ends the waits of a ticker whose ctx has ended.
func (t *ticker) interrupt() {
	if t.kernel != nil {
		t.kernel.SetReadDeadline(time.Unix(1, 0))
	}
}

func (t *ticker) stop() {
	if t.kernel != nil {
		t.kernel.Close()
		return
	}
	t.plain.Stop()
}
