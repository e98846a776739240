//go:build unix

package upstream

import (
	"errors"
	"os"
	"syscall"
)

// syncFolder makes a rename in folder outlast a power cut.
func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // some file systems have none
		return err
	}
	return nil
}
