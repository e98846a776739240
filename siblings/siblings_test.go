package siblings

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shortDir is t.TempDir with a path that a socket's address can hold.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sib")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// serve serves in folders until the test ends, or stop is called, which says
// what Serve returned. It returns once somebody answers.
func serve(t *testing.T, text string, folders ...string) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, folders, func() []byte { return []byte(text) }) }()
	stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { stop() })
	for deadline := time.Now().Add(30 * time.Second); ; {
		select {
		case err := <-ended:
			t.Fatalf("Serve ended: %v", err)
		default:
		}
		answers, _ := Ask(t.Context(), folders)
		for _, a := range answers {
			if string(a.Text) == text {
				return stop
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody answers")
		}
		time.Sleep(time.Millisecond)
	}
}

// ls returns the names in a folder.
func ls(t *testing.T, folder string) string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestServe(t *testing.T) {
	folder := filepath.Join(shortDir(t), "run", "coffer")
	long := strings.Repeat("long ", 1<<16) // more than a socket holds
	stop := serve(t, "short", folder)
	serve(t, long, folder)
	answers, err := Ask(t.Context(), []string{folder})
	if err != nil || len(answers) != 2 {
		t.Fatalf("%d answers, %v", len(answers), err)
	}
	for _, a := range answers {
		if a.PID != os.Getpid() || string(a.Text) != "short" && string(a.Text) != long {
			t.Errorf("pid %d, %d bytes, %v", a.PID, len(a.Text), a.Err)
		}
		if info, err := os.Stat(a.Path); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != 0o600) {
			t.Errorf("%s: %v %v", a.Path, info.Mode(), err)
		}
	}
	if info, err := os.Stat(folder); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != 0o700) {
		t.Errorf("%s: %v %v", folder, info.Mode(), err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if answers, err := Ask(t.Context(), []string{folder}); err != nil || len(answers) != 1 || string(answers[0].Text) != long {
		t.Errorf("after the end of one: %d answers, %v", len(answers), err)
	}
	if names := ls(t, folder); strings.Count(names, ".") != 1 {
		t.Errorf("left behind: %s", names)
	}
}

// TestServeEndedBefore: a session that is over before the socket is open leaves
// none.
func TestServeEndedBefore(t *testing.T) {
	folder := shortDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Serve(ctx, []string{folder}, nil); err != nil {
		t.Error(err)
	}
	if names := ls(t, folder); names != "" {
		t.Errorf("left behind: %s", names)
	}
}

// TestAskCleans: a socket on which nobody listens is removed, at once; one that
// was never finished after a while; what is none never.
func TestAskCleans(t *testing.T) {
	folder := shortDir(t)
	leave := func(name string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		return path
	}
	leave("1-dead.sock")
	leave("2-young.new")
	if err := os.Chtimes(leave("3-old.new"), time.Time{}, time.Now().Add(-2*givenUp)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if answers, err := Ask(t.Context(), []string{folder}); err != nil || len(answers) != 0 {
		t.Errorf("%v, %v", answers, err)
	}
	if names, want := ls(t, folder), "2-young.new notes.txt"; names != want {
		t.Errorf("left are %s, want %s", names, want)
	}
}

// TestAskSilent: one that is there but says nothing, as a stopped process, is
// told of and left alone, and holds nobody up for long.
func TestAskSilent(t *testing.T) {
	folder := shortDir(t)
	path := filepath.Join(folder, "77-silent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answers, err := Ask(t.Context(), []string{folder})
	if err != nil || len(answers) != 1 || answers[0].PID != 77 || answers[0].Err == nil {
		t.Errorf("%v, %v", answers, err)
	}
	if names := ls(t, folder); names != "77-silent.sock" {
		t.Errorf("left are %q", names)
	}
}

// TestFolders: a folder that cannot be used is passed over for the next one,
// never made private by force, and each folder is looked into once.
func TestFolders(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no modes")
	}
	dir := shortDir(t)
	open, file, good, link := filepath.Join(dir, "open"), filepath.Join(dir, "file"), filepath.Join(dir, "good"), filepath.Join(dir, "link")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	tooLong := filepath.Join(dir, strings.Repeat("x", 120))
	folders := []string{open, file, tooLong, good, filepath.Join(link, "good"), filepath.Join(dir, "missing")}
	serve(t, "hello", folders...)
	answers, err := Ask(t.Context(), folders)
	if len(answers) != 1 || filepath.Dir(answers[0].Path) != good {
		t.Errorf("%v", answers)
	}
	for _, want := range []string{open + " is open to others", file + " is no folder"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if names := ls(t, open); names != "" {
		t.Errorf("in the open folder is %s", names)
	}
	if err := Serve(t.Context(), []string{open}, nil); err == nil {
		t.Error("Serve returned no error")
	}
}
