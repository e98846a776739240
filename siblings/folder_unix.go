//go:build unix

package siblings

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// canRename says that a socket can be renamed while it is listened on.
const canRename = true

// private returns nil if folder is ours and closed to everybody else.
func private(folder string) error {
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", folder)
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s is another user's", folder)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to others (mode %#o, want 0700)", folder, info.Mode().Perm())
	}
	return nil
}

// refused reports whether err says that nobody listens on a socket.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
