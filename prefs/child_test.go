package prefs

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// roleVar makes the test binary play another process: see play.
const roleVar = "COFFER_PREFS_TEST_ROLE"

// pathVar is the preference file of that process.
const pathVar = "COFFER_PREFS_TEST_PATH"

// play plays role and exits: 0 if it went well.
func play(role string) {
	ctx, path := context.Background(), os.Getenv(pathVar)
	var err error
	switch role {
	case "open": // open each file named on stdin, set a key of its own, close
		err = playOpen(ctx, schemaText())
	case "lock": // hold the write lock until stdin ends
		err = playLock(ctx, path, "BEGIN IMMEDIATE")
	case "exclude": // let nobody else read either
		err = playLock(ctx, path, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; UPDATE mcp_refresh_generations SET refresh = 0")
	case "sibling": // obey lines on stdin, each answered on stdout
		err = playSibling(ctx, path)
	default:
		err = fmt.Errorf("no role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// playOpen opens, writes and closes the file that each line on stdin names.
func playOpen(ctx context.Context, schema string) error {
	for paths := bufio.NewScanner(os.Stdin); paths.Scan(); {
		s, err := Open(ctx, paths.Text(), schema, Options{})
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		if _, err := s.Set(ctx, []Change{{tool(fmt.Sprint(os.Getpid())), true}}, noon); err != nil {
			return fmt.Errorf("set: %w", err)
		}
		if err := s.Close(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
		fmt.Println("done")
	}
	return nil
}

func playLock(ctx context.Context, path, how string) error {
	db, err := sql.Open("sqlite3", dsn(path, "", false))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, how); err != nil {
		return err
	}
	fmt.Println("locked")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// playSibling is another coffer, which watches: "on KEY" and "off KEY" each commit.
func playSibling(ctx context.Context, path string) error {
	s, err := Open(ctx, path, schemaText(), Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { s.Watch(ctx, func(_, _ *Snapshot) {}, func(error) {}) })
	defer watch.Wait()
	defer stop()
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		verb, key, _ := strings.Cut(lines.Text(), " ")
		if _, err := s.Set(ctx, []Change{{tool(key), verb == "on"}}, time.Now()); err != nil {
			return err
		}
		fmt.Println("done")
	}
	return nil
}

// child is a process that plays a role.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
	errs  strings.Builder
}

// start starts a child. It ends, at the latest, with the test.
func start(t testing.TB, role, path string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), roleVar+"="+role, pathVar+"="+path,
		"GORACE=atexit_sleep_ms=0") // else each child stays a second
	c.cmd.Stderr = &c.errs
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(stdout)
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	})
	return c
}

// line returns the next line that the child says.
func (c *child) line(t testing.TB) string {
	t.Helper()
	if !c.lines.Scan() {
		c.cmd.Wait()
		t.Fatalf("child said nothing more: %s", c.errs.String())
	}
	return c.lines.Text()
}

// ask sends one line and waits for the answer.
func (c *child) ask(t testing.TB, line string) {
	t.Helper()
	c.send(t, line)
	c.answer(t)
}

func (c *child) send(t testing.TB, line string) {
	t.Helper()
	if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (c *child) answer(t testing.TB) {
	t.Helper()
	if got := c.line(t); got != "done" {
		t.Fatalf("child said %q", got)
	}
}

// end closes the child's stdin and waits for its end.
func (c *child) end(t testing.TB) {
	t.Helper()
	c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("child: %v: %s", err, c.errs.String())
	}
}
