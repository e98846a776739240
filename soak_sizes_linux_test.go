package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// soakSize is how much of the system one coffer has.
type soakSize struct {
	at          time.Duration
	kilobytes   int // of resident memory
	threads     int
	descriptors int
	processes   int // that it started, and those that they did
	zombies     int // of its children
}

func (z soakSize) String() string {
	return fmt.Sprintf("%6.1f MiB, %d threads, %d descriptors, %d processes, %d zombies",
		float64(z.kilobytes)/1024, z.threads, z.descriptors, z.processes, z.zombies)
}

// size measures a coffer, which must be there.
func (s *soak) size(c *soakClient) soakSize {
	pid := c.cmd.Process.Pid
	z := soakSize{at: time.Since(s.began)}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		s.problem("%v", err)
	}
	for line := range strings.Lines(string(status)) {
		if name, value, _ := strings.Cut(line, ":"); name == "VmRSS" || name == "Threads" {
			n, _ := strconv.Atoi(strings.Fields(value)[0])
			if name == "VmRSS" {
				z.kilobytes = n
			} else {
				z.threads = n
			}
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		s.problem("%v", err)
	}
	z.descriptors = len(files)
	z.processes = len(markedProcesses(s.t, markVar+"="+c.mark)) - 1 // coffer itself is marked, too
	z.zombies = len(zombiesOf(pid))
	return z
}

// zombiesOf returns the children of a process that have ended and have not been
// waited for.
func zombiesOf(parent int) (pids []string) {
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(text), ") ") // behind the command, which may hold anything
		if f := strings.Fields(rest); len(f) > 1 && f[0] == "Z" && f[1] == strconv.Itoa(parent) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// watch measures all the time, checks what has run so far, and sees to it that
// no child stays a zombie.
func (s *soak) watch() {
	every := int(max(*soakFor/60, time.Second) / time.Millisecond)
	for !s.done() {
		s.pause(every)
		s.checkCalls(false)
		for i, c := range s.coffers {
			z := s.size(c)
			c.sizes = append(c.sizes, z)
			if *soakFor >= time.Minute {
				s.t.Logf("%v coffer %d: %v", z.at.Round(time.Second), i, z)
			}
			for _, pid := range zombiesOf(c.cmd.Process.Pid) {
				s.until("zombie "+pid+" is waited for", func() bool { return !slices.Contains(zombiesOf(c.cmd.Process.Pid), pid) })
			}
		}
	}
}

// checkSizes compares the end, when all is quiet and every server connected,
// with the start, when it was so too.
func (s *soak) checkSizes() {
	for i, c := range s.coffers {
		var now soakSize
		fits := func() bool {
			now = s.size(c)
			// Idle HTTP connections are kept for a while, as many as there were calls at once.
			return now.zombies == 0 && now.processes <= c.first.processes && now.descriptors <= c.first.descriptors+8
		}
		for end := time.Now().Add(2 * liveLimit); !fits() && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
		}
		s.t.Logf("coffer %d: at first %v", i, c.first)
		s.t.Logf("coffer %d: at last  %v", i, now)
		if !fits() {
			s.problem("coffer %d has more than at first: %v, %v", i, now, c.first)
		}
		// Memory is told from the second quarter on, when everything has
		// happened once; in a short run it says nothing.
		if n := len(c.sizes); *soakFor >= 10*time.Minute {
			early, late := meanKilobytes(c.sizes[n/4:n/2]), meanKilobytes(c.sizes[n*3/4:])
			s.t.Logf("coffer %d: %d KiB in the second quarter, %d KiB in the last", i, early, late)
			if late > early*5/4+8<<10 {
				s.problem("coffer %d: memory grows", i)
			}
		}
	}
}

func meanKilobytes(sizes []soakSize) int {
	sum := 0
	for _, z := range sizes {
		sum += z.kilobytes
	}
	return sum / max(1, len(sizes))
}

// checkGoroutines compares a coffer that has been through it all with a fresh
// one. The Go runtime shows the goroutines of a process that gets SIGQUIT.
func (s *soak) checkGoroutines() {
	fresh := &soakClient{liveCoffer: s.launch(s.t, s.config, markVar+"=fresh")}
	if err := fresh.greet(); err != nil {
		s.problem("%v", err)
	}
	old := s.coffers[1]
	s.settle(fresh) // which is now in the state that the old one is in
	was, is := s.goroutines(fresh), s.goroutines(old)
	s.t.Logf("goroutines: %d, of a fresh coffer %d", is, was)
	// What is under way at a given moment may differ by a timer or a socket.
	if was < 10 || is > was+8 {
		s.problem("%d goroutines, of a fresh coffer %d", is, was)
	}
}

// goroutines ends a coffer and returns how many goroutines it had, save those of
// HTTP connections, which are kept for a while.
func (s *soak) goroutines(c *soakClient) int {
	c.cmd.Process.Signal(syscall.SIGQUIT)
	<-c.ended
	c.cmd.Wait()
	n := 0
	for _, stack := range strings.Split(c.logged(s.t), "\ngoroutine ")[1:] {
		if !strings.Contains(stack, "net/http.(*persistConn)") {
			n++
		}
	}
	return n
}

// report tells what has happened. Too little would prove nothing.
func (s *soak) report() {
	s.did.Range(func(what, n any) bool {
		s.t.Logf("%8d %s", n.(*atomic.Int64).Load(), what)
		return true
	})
	s.t.Logf("slowest ping: %v", time.Duration(s.slowest.Load()))
	for _, what := range []string{"calls answered", "calls refused", "lists", "pings", "toggles", "refreshes",
		"processes killed or halted", "HTTP servers failed", "coffers that came and went"} {
		if n, ok := s.did.Load(what); !ok || n.(*atomic.Int64).Load() == 0 {
			s.problem("no %s: too little has happened to prove anything", what)
		}
	}
}
