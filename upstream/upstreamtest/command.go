package upstreamtest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// sleep is the only argument of the processes that a Server starts.
const sleep = "-sleep"

// Main is the command fakeserver: `fakeserver SCRIPT` serves one connection on
// its stdin and stdout; SCRIPT is the script's JSON text or a file that holds
// it. os.Args[0] must lead back to Main, for it starts itself where the script
// says so. A crash, by a rule, ends the process.
func Main(args []string, stdin io.Reader, stdout io.WriteCloser, stderr io.Writer) int {
	if len(args) != 2 {
		fmt.Fprintln(stderr, "usage: fakeserver SCRIPT")
		return 2
	}
	if args[1] == sleep {
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
		time.Sleep(time.Hour)
		return 0
	}
	script, err := ReadScript(args[1])
	if err != nil {
		fmt.Fprintln(stderr, "fakeserver:", err)
		return 2
	}
	if script.IgnoreTERM {
		signal.Ignore(syscall.SIGTERM)
	}
	if err := script.start(); err != nil {
		fmt.Fprintln(stderr, "fakeserver:", err)
		return 2
	}
	for _, line := range script.Stderr {
		fmt.Fprintln(stderr, line)
	}
	for _, line := range script.Banner {
		fmt.Fprintln(stdout, line)
	}
	if script.Exit != nil {
		return *script.Exit
	}
	NewServer(script).Serve(stdin, stdout, os.Exit)
	if script.IgnoreEOF {
		time.Sleep(time.Hour)
	}
	return 0
}

// start starts the script's children and writes down who is there.
func (s *Script) start() error {
	pids := []int{os.Getpid()}
	for range s.Children {
		child := exec.Command(os.Args[0], sleep)
		if err := child.Start(); err != nil {
			return err
		}
		pids = append(pids, child.Process.Pid)
	}
	if s.Pids != "" {
		for _, pid := range pids {
			appendLine(s.Pids, strconv.Itoa(pid))
		}
	}
	return nil
}
