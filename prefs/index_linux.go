package prefs

import (
	"fmt"
	"os"
	"syscall"
)

// mapIndex maps the header of the WAL index of f, which is open, or returns nil
// where that cannot be. It maps the descriptor that SQLite has: one of our own
// would, when closed, drop SQLite's locks. The mapping needs no descriptor; f
// keeps the file from being shortened as long as it is open.
func (f *file) mapIndex() []byte {
	if f.shm == nil || f.frozen {
		return nil
	}
	const folder = "/proc/self/fd"
	descriptors, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	for _, d := range descriptors {
		var fd int
		if _, err := fmt.Sscan(d.Name(), &fd); err != nil {
			continue
		}
		info, err := os.Stat(folder + "/" + d.Name())
		if err != nil || !os.SameFile(info, f.shm) {
			continue
		}
		if header, err := syscall.Mmap(fd, 0, indexHeaderSize, syscall.PROT_READ, syscall.MAP_SHARED); err == nil {
			return header
		}
	}
	return nil
}

func unmapIndex(header []byte) {
	if header != nil {
		syscall.Munmap(header)
	}
}
