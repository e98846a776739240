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

// kernelTimer is a timerfd that the runtime's poller waits for.
type kernelTimer struct {
	file   *os.File
	raw    syscall.RawConn // of file
	unhook func() bool
}

// newKernelTimer returns nil if there is none to be had.
func newKernelTimer(ctx context.Context, every time.Duration) *kernelTimer {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(fd), fmt.Sprintf("timer of %v", every))
	raw, err := file.SyscallConn()
	spec := unix.NsecToTimespec(every.Nanoseconds())
	if err != nil || unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: spec, Value: spec}, nil) != nil {
		file.Close()
		return nil
	}
	unhook := context.AfterFunc(ctx, func() { file.SetReadDeadline(time.Unix(1, 0)) })
	return &kernelTimer{file, raw, unhook}
}

// wait waits for an expiration; it reports false once ctx has ended.
func (k *kernelTimer) wait() bool {
	// Not file.Read: the runtime's monitor would be woken for a system call that
	// it has to watch. This one cannot block.
	return k.raw.Read(func(fd uintptr) bool {
		var ticks [8]byte
		_, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&ticks)), unsafe.Sizeof(ticks))
		return errno != syscall.EAGAIN
	}) == nil
}

func (k *kernelTimer) stop() {
	k.unhook()
	k.file.Close()
}
