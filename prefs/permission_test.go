//go:build unix

package prefs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// unprivilegedRole makes the test binary run its tests as somebody to whom
// permissions apply.
const unprivilegedRole = "nobody"

const nobody = 65534

func dropPrivileges() {
	for _, err := range []error{syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)} {
		if err != nil {
			panic(err)
		}
	}
}

// unprivileged reports whether permissions apply to this process. If not, it has
// run the test in one to which they do, and there is nothing left to do.
func unprivileged(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	folder := t.TempDir()
	if err := errors.Join(os.Chown(folder, nobody, nobody), os.Chmod(filepath.Dir(folder), 0o711)); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	c.Env = append(os.Environ(), roleVar+"="+unprivilegedRole, "TMPDIR="+folder, "GORACE=atexit_sleep_ms=0")
	if output, err := c.CombinedOutput(); err != nil {
		t.Errorf("as user %d: %v\n%s", nobody, err, output)
	}
	return false
}

// modes sets the mode of each file, in order, and later makes all writable again.
func modes(t *testing.T, set ...any) {
	t.Helper()
	for i := 0; i < len(set); i += 2 {
		name := set[i].(string)
		if err := os.Chmod(name, os.FileMode(set[i+1].(int))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(name, 0o700) })
	}
}

const (
	readOnly     = "preferences PATH: cannot be written: attempt to write a readonly database"
	hintReadOnly = "make the file and its folder FOLDER writable for you, or name another file with --db"
)

// TestReadOnly: what is stored is honoured, what cannot be stored is said, and as
// soon as the file can be written it is.
func TestReadOnly(t *testing.T) {
	if !unprivileged(t) {
		return
	}
	for _, test := range []struct {
		name         string
		file, folder int
	}{
		{"file", 0o400, 0o700},
		{"folder", 0o600, 0o500},
		{"file and folder", 0o400, 0o500},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := newPath(t)
			soundFile(t, path)
			modes(t, path, test.file, filepath.Dir(path), test.folder)
			s := openAt(t, path, Options{BusyTimeout: short})
			last := fresh(t, s)
			if enabled, known := last.Lookup(tool("tool_0001")); !known || enabled {
				t.Error("a choice in a file that can only be read is not honoured")
			}
			for range 2 {
				_, err := s.Set(t.Context(), []Change{{tool("a"), true}}, noon)
				wantError(t, err, path, ErrReadOnly, readOnly, hintReadOnly)
				_, err = s.Reconcile(t.Context(), "fs", []Listed{{Tool, []string{"a"}}}, true, noon)
				wantError(t, err, path, ErrReadOnly, readOnly, hintReadOnly)
				if got := fresh(t, s); got != last {
					t.Error("another snapshot although nothing can have changed")
				}
			}
			modes(t, filepath.Dir(path), 0o700, path, 0o600)
			sibling := openAt(t, path, Options{})
			set(t, sibling, tool("b"), true)
			if _, known := fresh(t, s).Lookup(tool("b")); !known {
				t.Error("a sibling's choice is not seen")
			}
			set(t, s, tool("a"), true)
		})
	}
}

// TestReadOnlyWithALog: a folder that cannot be written holds a killed process's log.
func TestReadOnlyWithALog(t *testing.T) {
	if !unprivileged(t) {
		return
	}
	path := newPath(t)
	killedWriter(t, path)
	modes(t, filepath.Dir(path), 0o500)
	s := openAt(t, path, Options{BusyTimeout: short})
	if _, known := s.Last().Lookup(tool("a")); !known {
		t.Error("what the log holds is not honoured")
	}
	s.Close()

	modes(t, filepath.Dir(path), 0o700)
	unlink(t, path+"-shm")
	modes(t, filepath.Dir(path), 0o500)
	_, err := Open(t.Context(), path, schemaText(), Options{})
	wantError(t, err, path, ErrReadOnly,
		"preferences PATH: cannot be written: its -wal file cannot be read without a -shm file", hintReadOnly)
}

// TestReadOnlyCopy: a copy that is not in WAL mode, where the mode cannot be changed.
func TestReadOnlyCopy(t *testing.T) {
	if !unprivileged(t) {
		return
	}
	path, from := newPath(t), newPath(t)
	soundFile(t, from)
	run(t, raw(t, from), "VACUUM INTO '"+path+"'")
	modes(t, path, 0o400, filepath.Dir(path), 0o500)
	s := openAt(t, path, Options{})
	equal(t, "rows", s.Last().Len(), 200)
}

func TestNoFileAndNoPermission(t *testing.T) {
	if !unprivileged(t) {
		return
	}
	path := newPath(t)
	modes(t, filepath.Dir(path), 0o500)
	const message = "preferences PATH: cannot be written: permission denied"
	_, err := Open(t.Context(), path, schemaText(), Options{})
	wantError(t, err, path, ErrReadOnly, message, hintReadOnly)

	s := openAt(t, path, Options{KeepTrying: true})
	w := watchOf(t, s)
	wantError(t, w.trouble(t), path, ErrReadOnly, message, hintReadOnly)
	if s.Last() != nil {
		t.Error("a snapshot of no file")
	}
	modes(t, filepath.Dir(path), 0o700)
	if old, new := w.change(t); old != nil || new == nil {
		t.Errorf("told of %v to %v, want nil to an empty one", old, new)
	}
}

func TestUnreadable(t *testing.T) {
	if !unprivileged(t) {
		return
	}
	path := newPath(t)
	soundFile(t, path)
	modes(t, path, 0)
	_, err := Open(t.Context(), path, schemaText(), Options{})
	wantError(t, err, path, ErrUnreadable, "preferences PATH: cannot be read: unable to open database file: permission denied",
		strings.Replace(hintReadOnly, "writable", "readable", 1))
}

// TestDiskQuota: the system refuses to let the log grow.
func TestDiskQuota(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, Options{})
	set(t, s, tool("a"), false)
	last := fresh(t, s)
	log, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	small := limit
	small.Cur = uint64(log.Size())
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	_, err = s.Set(t.Context(), []Change{{tool("a"), true}}, noon)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	wantError(t, err, path, ErrFull, "preferences PATH: no space left to write it", hintFull)
	if got := fresh(t, s); got != last {
		t.Error("another snapshot although nothing was committed")
	}
	set(t, s, tool("a"), true)
	sound(t, path)
}

func TestFileSystemWithoutLocks(t *testing.T) {
	path := newPath(t)
	_, err := Open(t.Context(), path, schemaText(), Options{vfs: "unix-none"})
	wantError(t, err, path, ErrLocks,
		"preferences PATH: its file system cannot lock files as SQLite needs: it refuses WAL mode", hintLocks)
}

// killedWriter leaves at path what a process leaves that is killed after it has
// switched the tool a off: copies of the files of one that lives.
func killedWriter(t testing.TB, path string) {
	t.Helper()
	from := newPath(t)
	s := openAt(t, from, Options{})
	set(t, s, tool("a"), false)
	for name, text := range content(t, from) {
		write(t, filepath.Join(filepath.Dir(path), name), text)
	}
}
