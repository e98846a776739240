package upstream

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"github.com/rs/zerolog"
)

// childAttr puts a child in a group of its own, and has the kernel kill it
// when we die without being able to stop it.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// forker starts all children from one operating-system thread. The kernel
// sends the parent-death signal when the thread that forked ends, not the
// process (prctl(2), PR_SET_PDEATHSIG), and the runtime ends threads as it
// likes; this one it keeps until close.
type forker struct {
	once  sync.Once
	jobs  chan forkJob
	done  chan struct{} // closed when the thread's goroutine has returned
	guard guard
}

type forkJob struct {
	cmd    *exec.Cmd
	result chan forkResult
}

type forkResult struct {
	group group
	err   error
}

func newForker(log zerolog.Logger) *forker {
	return &forker{jobs: make(chan forkJob), done: make(chan struct{}), guard: guard{log: log}}
}

// start starts cmd in a group of its own.
func (f *forker) start(cmd *exec.Cmd) (group, error) {
	f.once.Do(func() { go f.run() })
	job := forkJob{cmd, make(chan forkResult)}
	f.jobs <- job
	r := <-job.result
	return r.group, r.err
}

// run serves start. It never unlocks its thread, which ends with it.
func (f *forker) run() {
	defer close(f.done)
	runtime.LockOSThread()
	for job := range f.jobs {
		g, err := startGroup(job.cmd)
		if err == nil {
			f.guard.watch(g)
		}
		job.result <- forkResult{g, err}
		f.guard.start()
	}
}

// ended says that a group is empty, or will be by no doing of ours.
func (f *forker) ended(g group) { f.guard.unwatch(g) }

// close ends the thread. All children must be gone, and start not be called
// any more.
func (f *forker) close() {
	close(f.jobs)
	f.once.Do(func() { close(f.done) })
	<-f.done
	f.guard.close()
}
