package upstream

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
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
	once sync.Once
	jobs chan forkJob
	done chan struct{} // closed when the thread's goroutine has returned
}

type forkJob struct {
	cmd    *exec.Cmd
	result chan forkResult
}

type forkResult struct {
	group group
	err   error
}

func newForker() *forker {
	return &forker{jobs: make(chan forkJob), done: make(chan struct{})}
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
		job.result <- forkResult{g, err}
	}
}

// close ends the thread. All children must be gone, and start not be called
// any more.
func (f *forker) close() {
	close(f.jobs)
	f.once.Do(func() { close(f.done) })
	<-f.done
}
