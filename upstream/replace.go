package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

const (
	// lockWait is how long an edit waits for others: each takes milliseconds.
	lockWait = 10 * time.Second
	// lockRetry is how often it looks again.
	lockRetry = 5 * time.Millisecond
	// maxLinks is how many symbolic links are followed, as Linux does.
	maxLinks = 40
)

// ErrChanged says that somebody else wrote a file between our reading and our
// writing of it.
var ErrChanged = errors.New("changed by another program just now")

// Locked runs work while no other process is in Locked with the same path. The
// lock is a file beside it that stays: to remove it would race with a sibling.
func Locked(ctx context.Context, path string, work func() error) error {
	path, err := resolve(path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("creating the folder of %q: %w", path, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait, errors.New("another coffer holds it"))
	defer cancel()
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, lockRetry); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("locking %q: %w", path+".lock", err)
	}
	defer lock.Close()
	return work()
}

// ReadFile reads a file that a person can edit; nil without an error is one that
// is not there. Errors name the file.
func ReadFile(path string) ([]byte, error) {
	text, err := readBounded(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %q: %w", path, err)
	case text == nil:
		text = []byte{}
	}
	return text, nil
}

// ReplaceFile makes text the content of the file at path, in which old was read,
// nil if it was not there. Whoever reads it meanwhile, and whoever looks after a
// crash, finds the old text or the new; what a writer that was killed left beside
// the file is removed. A symbolic link stays one, the file behind it keeps its
// mode; a new file is for its owner alone, and so are the folders that it needs.
// ErrChanged if the file does not hold old any more.
func ReplaceFile(path string, old, text []byte) (err error) {
	defer func() {
		if err != nil && !errors.Is(err, ErrChanged) {
			err = fmt.Errorf("writing %q: %w", path, bare(err))
		}
	}()
	target, err := resolve(path)
	if err != nil {
		return err
	}
	mode, err := writableMode(target)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	removeLeftovers(target)
	temporary, err := writeBeside(target, text, mode)
	if err != nil {
		return err
	}
	defer os.Remove(temporary) // fails when all went well: it has its new name
	now, err := ReadFile(target)
	if err != nil {
		return err
	}
	if (now == nil) != (old == nil) || !bytes.Equal(now, old) {
		return fmt.Errorf("writing %q: %w", path, ErrChanged)
	}
	if err := os.Rename(temporary, target); errors.Is(err, fs.ErrNotExist) { // see removeLeftovers
		return fmt.Errorf("writing %q: %w", path, ErrChanged)
	} else if err != nil {
		return err
	}
	return syncFolder(filepath.Dir(target))
}

// writableMode returns the mode that the file at target is to have. A file that
// may not be written is an error, though a rename would get around that.
func writableMode(target string) (fs.FileMode, error) {
	info, err := os.Stat(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0o600, nil
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular():
		return 0, errors.New("not a regular file")
	}
	f, err := os.OpenFile(target, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	return info.Mode().Perm(), f.Close()
}

// ownMark and temporarySuffix are in the name of every file that becomes another.
const (
	ownMark         = ".coffer-"
	temporarySuffix = ".tmp"
)

// removeLeftovers removes the temporary files of target, and of the backups that
// are called like it. Who writes them holds a lock, so they are of writers that
// were killed; if one is not (two coffers with different configs write one client's
// file and do not share a lock), its rename fails, and it begins anew.
func removeLeftovers(target string) {
	entries, _ := os.ReadDir(filepath.Dir(target)) // it may be for writing only
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), "."+filepath.Base(target)+".")
		if ours && strings.Contains("."+rest, ownMark) && strings.HasSuffix(rest, temporarySuffix) {
			os.Remove(filepath.Join(filepath.Dir(target), e.Name())) // else the next writer does
		}
	}
}

// writeBeside writes text into a new file in the folder of target.
func writeBeside(target string, text []byte, mode fs.FileMode) (path string, err error) {
	f, err := os.CreateTemp(filepath.Dir(target), "."+filepath.Base(target)+ownMark+"*"+temporarySuffix)
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		os.Remove(f.Name())
	}
	return f.Name(), err
}

// resolve follows symbolic links from path to what is to be written, which need
// not be there.
func resolve(path string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		next, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(next) {
			next = filepath.Join(filepath.Dir(path), next)
		}
		path = next
	}
	return "", fmt.Errorf("too many symbolic links at %q", path)
}

// bare takes the path off an error of package os, for a message that has it.
func bare(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return l.Err
	}
	return err
}
