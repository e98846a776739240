// Package tick wakes a goroutine at regular times at the least cost, so that an
// idle coffer may look around ten times a second.
package tick

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ticker ticks like a time.Ticker, without the runtime's timers: one of those
// that fires while all else sleeps wakes three threads, and takes some 0.5 ms of
// processor time. A timer of the kernel's wakes the one that waits for it.
type Ticker struct {
	ctx    context.Context
	kernel *os.File        // a timerfd; nil: there was none to be had
	raw    syscall.RawConn // of kernel
	unhook func() bool
	plain  *time.Ticker // instead
}

// New returns a Ticker that ticks until ctx ends. The caller stops it.
func New(ctx context.Context, every time.Duration) *Ticker {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &Ticker{ctx: ctx, plain: time.NewTicker(every)}
	}
	file := os.NewFile(uintptr(fd), fmt.Sprintf("timer of %v", every))
	raw, err := file.SyscallConn()
	spec := unix.NsecToTimespec(every.Nanoseconds())
	if err != nil || unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: spec, Value: spec}, nil) != nil {
		file.Close()
		return &Ticker{ctx: ctx, plain: time.NewTicker(every)}
	}
	unhook := context.AfterFunc(ctx, func() { file.SetReadDeadline(time.Unix(1, 0)) })
	return &Ticker{ctx: ctx, kernel: file, raw: raw, unhook: unhook}
}

// Wait waits for the next tick; it reports false once ctx has ended. Ticks that
// nobody waited for are lost.
func (t *Ticker) Wait() bool {
	if t.kernel == nil {
		select {
		case <-t.plain.C:
		case <-t.ctx.Done():
		}
		return t.ctx.Err() == nil
	}
	// Not kernel.Read: the runtime's monitor would be woken for a system call
	// that it has to watch. This one cannot block.
	err := t.raw.Read(func(fd uintptr) bool {
		var ticks [8]byte
		_, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&ticks)), unsafe.Sizeof(ticks))
		return errno != syscall.EAGAIN
	})
	return err == nil && t.ctx.Err() == nil
}

// Stop ends the Ticker. No Wait may be under way.
func (t *Ticker) Stop() {
	if t.kernel == nil {
		t.plain.Stop()
		return
	}
	t.unhook()
	t.kernel.Close()
}
