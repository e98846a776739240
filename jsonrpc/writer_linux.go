package jsonrpc

import (
	"os"
	"syscall"
	"unsafe"
)

// writeVector is one write of all texts, of which there are at most maxVector.
func writeVector(fd int, texts [][]byte) (int, error) {
	if len(texts) == 1 {
		return syscall.Write(fd, texts[0])
	}
	var vector [maxVector]syscall.Iovec
	for i, text := range texts {
		vector[i].Base = unsafe.SliceData(text)
		vector[i].SetLen(len(text))
	}
	n, _, errno := syscall.Syscall(syscall.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&vector)), uintptr(len(texts)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// WidenPipe has a pipe hold as many bytes as a Reader asks for at once, where
// that can be done: a list of a hundred tools then passes in one piece, and its
// writer does not have to wait for its reader. Ends of either side will do. It
// is not more because all pipes of a user share a budget (pipe(7),
// pipe-user-pages-soft).
func WidenPipe(end any) {
	file, ok := end.(*os.File)
	if !ok {
		return
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		const set, get = 1031, 1032 // F_SETPIPE_SZ, F_GETPIPE_SZ: package syscall lacks them
		if size, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, get, 0); errno == 0 && size < blockSize {
			syscall.Syscall(syscall.SYS_FCNTL, fd, set, blockSize) // refused: it stays as it is
		}
	})
}
