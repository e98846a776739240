// Package logfile keeps logs whose size is bounded and that many processes
// write to at the same time.
//
// The newest lines are in the file itself, older ones in FILE.1, FILE.2, …
// Whoever finds the file full renames the files, under a lock on FILE.lock. To
// append takes no lock: a line is one write of a file that is opened for it in
// append mode, which the kernel keeps whole. A process that was overtaken by a
// renaming between its open and its write adds its line to FILE.1, where
// readers still look; so no line is lost, and a process that was stopped in the
// middle of anything holds nobody up.
package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

const (
	// fullSize is how large a file may grow before it is renamed, in bytes.
	fullSize = 10 << 20
	// keptFiles is how many older ones are kept: with 40 MiB in all, days of a
	// chatty server and months of a quiet one.
	keptFiles = 3
)

// File is a log. It is safe for concurrent use, by other processes too.
type File struct {
	path  string
	full  int64    // bytes
	kept  int      // older files
	fixed *os.File // what is no regular file (a pipe, a terminal) is kept open and never renamed; else nil
}

// New returns the log at path, without looking at it: the first Write makes it
// (mode 0600, missing folders 0700).
func New(path string) *File { return &File{path: path, full: fullSize, kept: keptFiles} }

// Open returns the log at path once it is certain that it can be written.
func Open(path string) (*File, error) {
	f := New(path)
	file, err := f.open()
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		f.fixed = file
		return f, nil
	}
	// To rename a symbolic link would leave the file that it leads to as it is.
	if target, failed := filepath.EvalSymlinks(path); failed == nil {
		f.path = target
	}
	return f, errors.Join(err, file.Close())
}

// Path returns where the log is.
func (f *File) Path() string { return f.path }

// Close lets go of the log.
func (f *File) Close() error {
	if f.fixed != nil {
		return f.fixed.Close()
	}
	return nil
}

// Write appends lines, whole ones with their ends. What is given to one call
// stays together.
func (f *File) Write(lines []byte) (int, error) {
	if f.fixed != nil {
		return f.fixed.Write(lines)
	}
	file, err := f.open()
	if err != nil {
		return 0, err
	}
	if info, err := file.Stat(); err == nil && info.Size() > 0 && info.Size()+int64(len(lines)) > f.full {
		file.Close() // Windows renames no file that is open
		// If that fails, for want of a folder that can be written, a log that
		// is too long is better than one with holes.
		_ = f.rotate()
		if file, err = f.open(); err != nil {
			return 0, err
		}
	}
	n, err := file.Write(lines)
	return n, errors.Join(err, file.Close())
}

// open opens the file for appending, and makes it and its folders.
func (f *File) open() (*os.File, error) {
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
			return nil, err
		}
		file, err = os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	}
	return file, err
}

// rotate renames the files, unless another process is about it or has just
// done so.
func (f *File) rotate() error {
	lock := flock.New(f.path+".lock", flock.SetPermissions(0o600)) // never removed: that would race with others
	locked, err := lock.TryLock()
	if err != nil || !locked {
		return err
	}
	defer lock.Close()
	if info, err := os.Stat(f.path); err != nil || info.Size() < f.full/2 {
		return err // a fresh one
	}
	for n := f.kept; n > 0; n-- {
		err := os.Rename(f.older(n-1), f.older(n))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// older returns the nth older file; 0 is the newest one.
func (f *File) older(n int) string {
	if n == 0 {
		return f.path
	}
	return fmt.Sprintf("%s.%d", f.path, n)
}
