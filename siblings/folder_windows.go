package siblings

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// canRename is false: the file of a socket (AF_UNIX, Windows 10 1803 and later)
// is held open while it is listened on.
const canRename = false

// private returns nil if folder is one. It lies in the user's own profile, whose
// access list it inherits.
func private(folder string) error {
	info, err := os.Lstat(folder)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", folder)
	}
	return err
}

// refused reports whether err says that nobody listens on a socket.
func refused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }
