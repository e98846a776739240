package upstream

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// orphanTerm is how long an orphan has after TERM, before KILL. All that is
// left of the time of design §9 when the upstreams are gone is 0.3 s.
const orphanTerm = 100 * time.Millisecond

// Adopt makes this process the parent of every process below it that has lost
// its own: what an upstream started, and what then left its process group, so
// that no signal to the group reaches it. Orphans are reaped when they end. end
// ends those that are left, which no upstream can then be using.
//
// It is for a process that starts others by this package alone, and calls it
// once: a child that this package does not know is taken for an orphan.
func Adopt(log zerolog.Logger) (end func()) {
	_, err := os.Stat("/proc/thread-self/children") // without it they could not be found
	if err == nil {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	if err != nil {
		log.Debug().Err(err).Msg("orphans are left to the system")
		return func() {}
	}
	deaths := make(chan os.Signal, 1) // one is as good as many: reap looks at all
	signal.Notify(deaths, syscall.SIGCHLD)
	var reaper sync.WaitGroup
	reaper.Go(func() {
		for range deaths {
			reap()
		}
	})
	return func() {
		endOrphans(log)
		signal.Stop(deaths)
		close(deaths)
		reaper.Wait()
	}
}

// owned are the children that we started, and that whoever did so will wait
// for: to reap them would take their status away. To start one and to enter it
// is one step, so that none can end between the two.
var owned = struct {
	sync.Mutex
	pids map[int]bool // guarded by the mutex
}{pids: map[int]bool{}}

// ownStart is cmd.Start.
func ownStart(cmd *exec.Cmd) error {
	owned.Lock()
	defer owned.Unlock()
	err := cmd.Start()
	if err == nil {
		owned.pids[cmd.Process.Pid] = true
	}
	return err
}

// ownWait is cmd.Wait.
func ownWait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	owned.Lock()
	defer owned.Unlock()
	delete(owned.pids, cmd.Process.Pid)
	return err
}

func isOwned(pid int) bool {
	owned.Lock()
	defer owned.Unlock()
	return owned.pids[pid]
}

// process is what /proc tells of one.
type process struct {
	pid, group int
	started    string // with the pid it tells a process from every other
	zombie     bool
}

// readProcess reads /proc/PID/stat (proc_pid_stat(5)).
func readProcess(pid int) (p process, ok bool) {
	text, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return p, false // it has ended
	}
	// The command stands in parentheses, and may hold some.
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(f) < 20 {
		return p, false
	}
	p = process{pid: pid, started: f[19], zombie: f[0] == "Z"}
	p.group, _ = strconv.Atoi(f[2])
	return p, true
}

func procPath(pid int, elem string) string { return "/proc/" + strconv.Itoa(pid) + "/" + elem }

// children returns the children of a process: of each of its threads, as the
// kernel keeps them (proc_tid_children(5)). While some come and go it may miss
// one. It costs less than to look for them among all processes.
func children(parent int) (all []process) {
	paths, _ := filepath.Glob(procPath(parent, "task/*/children"))
	for _, path := range paths {
		text, _ := os.ReadFile(path) // fails when the thread has ended
		for word := range strings.FieldsSeq(string(text)) {
			pid, _ := strconv.Atoi(word)
			if p, ok := readProcess(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// orphans returns our children that we did not start.
func orphans() []process {
	return slices.DeleteFunc(children(os.Getpid()), func(p process) bool { return isOwned(p.pid) })
}

// reap waits for the orphans that have ended.
func reap() {
	for _, p := range orphans() {
		if p.zombie {
			syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// endOrphans ends what is left. To end one may bring its children to us.
func endOrphans(log zerolog.Logger) {
	began, asked := time.Now(), map[int]bool{}
	poll := time.NewTicker(groupPoll)
	defer poll.Stop()
	for all := orphans(); len(all) > 0 && time.Since(began) < killed; all = orphans() {
		for _, p := range all {
			switch {
			case p.zombie:
				syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
			case time.Since(began) > orphanTerm:
				syscall.Kill(p.pid, syscall.SIGKILL)
			case !asked[p.pid]:
				asked[p.pid] = true
				log.Debug().Int("pid", p.pid).Msg("ending what an upstream has left behind")
				syscall.Kill(p.pid, syscall.SIGTERM)
			}
		}
		<-poll.C
	}
}

// outside returns what kills those descendants of the group's leader that are
// in other groups now.
func (g group) outside() (kill func()) {
	var left []process
	for next := children(int(g)); len(next) > 0; {
		p := next[0]
		next = append(next[1:], children(p.pid)...)
		if p.group != int(g) {
			left = append(left, p)
		}
	}
	return func() {
		for _, p := range left {
			if now, ok := readProcess(p.pid); ok && now.started == p.started {
				syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
	}
}
