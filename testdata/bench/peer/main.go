// Peer is what stands at the far end of the benchmark's pipes:
//
//	peer server N        the toy server of that number on stdin and stdout; -1: all in one
//	peer relay COMMAND…  the floor: bytes between two pipes and the command's
//
// It is a program of its own because the start of processes is measured too: it
// links as little as it can.
package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"coffer/testdata/bench/toy"
)

func main() {
	switch os.Args[1] {
	case "server":
		number, _ := strconv.Atoi(os.Args[2])
		serve(toy.New(number), os.Stdin, os.Stdout)
	case "relay":
		os.Exit(relay(os.Args[2:], os.Stdin, os.Stdout))
	}
}

// serve answers what has arrived in one read with one write, and a call that
// takes time when its time has come.
func serve(s *toy.Server, in io.Reader, out io.Writer) {
	var writing sync.Mutex
	write := func(text []byte) {
		writing.Lock()
		defer writing.Unlock()
		out.Write(text)
	}
	buf, filled := make([]byte, 256<<10), 0
	var answers []byte
	for {
		n, err := in.Read(buf[filled:])
		filled += n
		rest := buf[:filled]
		for {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			before := len(answers)
			var wait time.Duration
			answers, wait = s.AppendAnswer(answers, rest[:i])
			if wait > 0 {
				late := bytes.Clone(answers[before:])
				answers = answers[:before]
				time.AfterFunc(wait, func() { write(late) })
			}
			rest = rest[i+1:]
		}
		filled = copy(buf, rest)
		if len(answers) > 0 {
			write(answers)
			answers = answers[:0]
		}
		if err != nil {
			return
		}
	}
}

// relay starts the command and copies both ways, a pipe's capacity at a time,
// until its stdin and then the command's stdout end. Its descriptors block: the
// runtime's poller would only make it slower.
func relay(command []string, in io.Reader, out io.Writer) (code int) {
	theirIn, toChild, err := os.Pipe()
	if err != nil {
		return 1
	}
	fromChild, theirOut, err := os.Pipe()
	if err != nil {
		return 1
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, os.Stderr
	if err := cmd.Start(); err != nil {
		return 1
	}
	theirIn.Close()
	theirOut.Close()
	toChild.Fd() // makes it block
	fromChild.Fd()
	go func() {
		pump(toChild, in)
		toChild.Close()
	}()
	pump(out, fromChild)
	if cmd.Wait() != nil {
		return 1
	}
	return 0
}

// pump copies without io.Copy's short cuts, of which none is made for pipes.
func pump(to io.Writer, from io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
