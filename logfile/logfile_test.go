package logfile

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// writerVar makes the test binary a process that writes to the log that it
// names; what it has as value, too, is in front of each line.
const writerVar = "COFFER_LOGFILE_TEST_WRITER"

const (
	testWriters = 6
	testLines   = 300 // of each writer
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerVar); path != "" {
		f := small(path)
		for i := range testLines {
			if _, err := f.Write(fmt.Appendf(nil, "%d %d %s\n", os.Getpid(), i, strings.Repeat("x", i%50))); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// small is a log that is full at once, and of which nothing is deleted.
func small(path string) *File { return &File{path: path, full: 4 << 10, kept: 100} }

// all reads what is new in a log.
func all(t *testing.T, r *Reader) []string {
	t.Helper()
	var lines []string
	if err := r.Next(func(line []byte) { lines = append(lines, string(line)) }); err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestManyWriters: lines of processes that write at the same time, while the
// files are renamed all the time, are all there, whole, and once.
func TestManyWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "log")
	var writers []*exec.Cmd
	for range testWriters {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerVar+"="+path)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		writers = append(writers, cmd)
	}
	ended := make(chan error, 1)
	go func() {
		for _, cmd := range writers {
			if err := cmd.Wait(); err != nil {
				ended <- err
				return
			}
		}
		close(ended)
	}()
	// A follower meets every renaming on its way.
	reader := &Reader{file: small(path)}
	seen := map[string]int{}
	look := func() {
		for _, line := range all(t, reader) {
			seen[line]++
		}
	}
	for open := true; open; {
		select {
		case err, failed := <-ended:
			if failed {
				t.Fatal(err)
			}
			open = false
		default:
		}
		look()
	}
	for _, cmd := range writers {
		for i := range testLines {
			line := fmt.Sprintf("%d %d %s", cmd.Process.Pid, i, strings.Repeat("x", i%50))
			if n := seen[line]; n != 1 {
				t.Errorf("line %q is there %d times", line, n)
			}
			delete(seen, line)
		}
	}
	for line := range seen {
		t.Errorf("torn line %q", line)
	}
	if _, err := os.Stat(path + ".5"); err != nil {
		t.Errorf("not renamed often enough to show anything: %v", err)
	}
}

// TestSizeIsBounded: however much is written, only so much is kept, the newest.
func TestSizeIsBounded(t *testing.T) {
	dir := t.TempDir()
	f := &File{path: filepath.Join(dir, "log"), full: 100, kept: 2}
	for i := range 1000 {
		if _, err := fmt.Fprintf(f, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	total, names := int64(0), ""
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		info, err := file.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
		names += file.Name() + " "
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", file.Name(), info.Mode())
		}
	}
	if want := "log log.1 log.2 log.lock "; names != want || total > 300 {
		t.Errorf("%s, %d bytes in all; want %s, at most 300", names, total, want)
	}
	lines := all(t, &Reader{file: f})
	for i, line := range lines {
		if want := "line " + strconv.Itoa(1000-len(lines)+i); line != want {
			t.Fatalf("line %d of %d is %q, want %q", i, len(lines), line, want)
		}
	}
}

// TestRotationElsewhere: while another process is renaming, or has stopped in
// the middle of it, lines are appended all the same.
func TestRotationElsewhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	other := flock.New(path + ".lock")
	if err := other.Lock(); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	f := &File{path: path, full: 10, kept: 1}
	for range 5 {
		if _, err := f.Write([]byte("12345678\n")); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(all(t, &Reader{file: f})); got != 5 {
		t.Errorf("%d lines, want 5", got)
	}
}

// TestReader: lines come once, when they have their end, also from a file that
// was written to after it was renamed.
func TestReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r := NewReader(path)
	expect := func(want ...string) {
		t.Helper()
		if got := all(t, r); strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	write := func(path, text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	expect()
	write(path, "a\nb\nhal")
	expect("a", "b")
	write(path, "f\n")
	expect("half")
	rename(path, path+".1")
	write(path, "new\n")
	write(path+".1", "late\n")
	expect("late", "new")
	rename(path+".1", path+".2")
	rename(path, path+".1")
	expect()
	write(path, "newer\n")
	expect("newer")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	expect()
	write(path, "0\n")
	expect("0")
}

// TestOpen: what cannot be written is found out at once; what is no regular
// file is written to and never renamed; a link's target is.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); err == nil {
		t.Error("a folder was opened as a log")
	}
	if runtime.GOOS == "windows" {
		return // has no pipes with names in folders, and links for few
	}
	pipe := filepath.Join(dir, "pipe")
	if out, err := exec.Command("mkfifo", pipe).CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v %s", err, out)
	}
	end, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	f, err := Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	f.full = 1
	for range 3 {
		if _, err := f.Write([]byte("line\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	end.SetReadDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 100)
	if n, err := end.Read(buf); !bytes.Equal(buf[:n], []byte("line\nline\nline\n")) {
		t.Errorf("the pipe got %q, %v", buf[:n], err)
	}

	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if f, err = Open(link); err != nil {
		t.Fatal(err)
	}
	f.full = 1
	if _, err := f.Write([]byte("new\n")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(link); string(text) != "new\n" {
		t.Errorf("behind the link is %q, %v", text, err)
	}
	if text, err := os.ReadFile(target + ".1"); string(text) != "old\n" {
		t.Errorf("beside the target is %q, %v", text, err)
	}
}
