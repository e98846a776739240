//go:build unix

package upstream

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// guardScript reads which process groups there are, and when its stdin ends
// kills those that are left.
const guardScript = `trap '' HUP INT QUIT TERM
all=
while read -r sign id; do
	case $sign in
	+) all="$all $id" ;;
	-)
		rest=
		for group in $all; do [ "$group" = "$id" ] || rest="$rest $group"; done
		all=$rest
		;;
	esac
done
for group in $all; do kill -KILL "-$group"; done 2>/dev/null`

// guardLeaves is how long the guard may take to end when it is told to. It
// takes a millisecond.
const guardLeaves = 200 * time.Millisecond

// guard is a process that kills the groups of our children if we are gone
// without having done so, as after kill -9: what children started is not
// reached by a parent-death signal, where there is one at all. It is a shell,
// which is everywhere and small; it hears of each group by a pipe that only we
// hold, and its end is ours.
type guard struct {
	log zerolog.Logger

	mu    sync.Mutex
	stdin *os.File  // guarded by mu: nil until there is something to guard, and when there is no guard any more
	first *os.File  // guarded by mu: the other end of stdin until the guard has it
	cmd   *exec.Cmd // guarded by mu: nil until the guard is started
}

// watch has g killed if we do not live to call unwatch. It takes no time: the
// guard hears of it when it is started.
func (w *guard) watch(g group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stdin == nil && w.cmd == nil {
		var err error
		if w.first, w.stdin, err = os.Pipe(); err != nil {
			w.log.Debug().Err(err).Msg(noGuard)
		}
	}
	w.tell('+', g)
}

const noGuard = "no guard: if coffer is killed, what upstreams started may stay"

// unwatch says that g is empty.
func (w *guard) unwatch(g group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell('-', g)
}

// start starts the guard, unless it has been started. Without one we do as well
// as we can.
func (w *guard) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stdin == nil || w.cmd != nil {
		return
	}
	w.cmd = exec.Command("/bin/sh", "-c", guardScript)
	w.cmd.Env = []string{}
	w.cmd.Dir = "/"
	w.cmd.Stdin = w.first
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // who ends our group shall not end it
	err := ownStart(w.cmd)
	w.first.Close()
	if err != nil {
		w.log.Debug().Err(err).Msg(noGuard)
		w.stdin.Close()
		w.stdin = nil
	}
}

// tell writes one line. A guard that somebody has killed is not missed. mu is
// held.
func (w *guard) tell(sign byte, g group) {
	if w.stdin == nil {
		return
	}
	w.stdin.SetWriteDeadline(time.Now().Add(guardLeaves)) // it may have been halted
	if _, err := fmt.Fprintf(w.stdin, "%c %d\n", sign, int(g)); err != nil {
		w.log.Debug().Err(err).Msg("the guard is gone")
		w.end()
	}
}

// close ends the guard. All groups must be gone.
func (w *guard) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stdin != nil {
		w.end()
	}
}

// end ends the guard and reaps it. mu is held.
func (w *guard) end() {
	w.stdin.Close()
	w.stdin = nil
	if w.cmd == nil {
		w.first.Close()
		return
	}
	defer time.AfterFunc(guardLeaves, func() { w.cmd.Process.Kill() }).Stop()
	ownWait(w.cmd)
}
