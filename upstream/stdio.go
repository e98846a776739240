package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"coffer/jsonrpc"
)

const (
	// lastWords is how long the output of a child that has exited, or stopped
	// talking, is waited for: what it wrote is in the pipe already, but a
	// grandchild may hold the pipe open for ever.
	lastWords = 200 * time.Millisecond
	// groupPoll is how often a process group is looked at while it is being
	// stopped: no system tells when a group has become empty.
	groupPoll = 5 * time.Millisecond
	// killed is how long a group may take to go after KILL. Only a process in
	// an uninterruptible system call takes longer, and nothing helps there.
	killed = time.Second
)

// child is the link to an upstream that we start: newline-delimited JSON-RPC on
// its stdin and stdout (MCP 2025-11-25, basic/transports, stdio).
//
// Goroutines, all waited for by stop: serve reads stdout, Out.Run writes what
// stdin does not take at once, stderr.drain reads stderr, wait reaps.
type child struct {
	conn   *Conn
	stream *jsonrpc.Stream
	cmd    *exec.Cmd
	group  group
	words  *words
	stdin  *os.File
	stdout *os.File
	errors *os.File

	ctx    context.Context // lifetime of Out.Run and of waiting for the client
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	noise  atomic.Int64 // lines on stdout that were no protocol

	exited  chan struct{} // closed by wait, when cmd.ProcessState is set
	waitErr error         // how the child ended; set before exited is closed

	stopping sync.Once
	hurry    chan struct{} // closed when a stop may not wait for EOF any more
	hurryOne sync.Once
	stopped  chan struct{} // closed when stop is through
}

// dialChild starts the server's command.
func (c *Conn) dialChild(ctx context.Context) error {
	spec, set := c.server.spec, c.server.set
	path, env, err := LookPath(ctx, spec.Command, spec.Cwd, spec.Environ(set.opts.Environ))
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{Path: path, Args: append([]string{spec.Command}, spec.Args...), Env: env, Dir: spec.Cwd}
	k := &child{
		conn: c, cmd: cmd, words: newWords(c.log, c.server.tellStderr),
		exited: make(chan struct{}), hurry: make(chan struct{}), stopped: make(chan struct{}),
	}
	theirs, err := k.pipes()
	if err == nil {
		k.group, err = set.forks.start(cmd)
	}
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		k.closePipes()
		return fmt.Errorf("starting %q: %w", spec.Command, err)
	}
	jsonrpc.WidenPipe(k.stdout)
	k.ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.stream = jsonrpc.NewStream(k.stdout, k.stdin, c, jsonrpc.StreamOptions{
		MaxMessage: set.opts.MaxMessageSize,
		Batches:    c.batches,
		Bad:        k.bad,
		Idle:       c.idle,
		Gate:       func() { c.room(k.ctx) },
	})
	c.link, c.rpc = k, k.stream.Conn
	k.tasks.Go(k.serve)
	k.tasks.Go(func() { k.stream.Out.Run(k.ctx) })
	k.tasks.Go(func() { k.words.drain(k.errors) })
	k.tasks.Go(k.wait)
	return nil
}

// pipes connects the child's three streams and returns the child's ends.
func (k *child) pipes() (theirs []*os.File, err error) {
	pair := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	var in, out, errs *os.File
	in, k.stdin = pair()
	k.stdout, out = pair()
	k.errors, errs = pair()
	k.cmd.Stdin, k.cmd.Stdout, k.cmd.Stderr = in, out, errs
	return []*os.File{in, out, errs}, err
}

func (k *child) closePipes() {
	k.stdin.Close() // a nil *os.File only returns an error
	k.stdout.Close()
	k.errors.Close()
}

// serve reads the child's stdout until it ends.
func (k *child) serve() {
	err := k.stream.Serve(k.ctx)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		err = errors.New("it closed its stdout")
	}
	select {
	case <-k.exited:
		err = k.exitReason()
	case <-time.After(lastWords):
	}
	k.conn.lost(err)
}

// bad counts a line that is no message. A response that nobody waits for is
// none either: its request was cancelled.
func (k *child) bad(line []byte, err error) {
	if errors.Is(err, jsonrpc.ErrUnexpected) {
		return
	}
	if e, ok := errors.AsType[*jsonrpc.Overlong](err); ok {
		k.conn.oversized(e, nil)
		return
	}
	if k.conn.misanswered(line, err) {
		return
	}
	if n := k.noise.Add(1); n == 1 {
		k.conn.log.Warn().Err(err).Bytes("line", line[:min(len(line), 200)]).Msg("line on stdout skipped; further ones are counted")
	}
}

// wait reaps the child and gives the streams a little time to be read to the
// end, in case a grandchild holds them open.
func (k *child) wait() {
	k.waitErr = ownWait(k.cmd)
	close(k.exited)
	k.stdout.SetReadDeadline(time.Now().Add(lastWords))
	k.errors.SetReadDeadline(time.Now().Add(lastWords))
}

// exitReason says how the child ended, for people.
func (k *child) exitReason() error {
	if k.waitErr != nil {
		return fmt.Errorf("its process ended: %w", k.waitErr)
	}
	return errors.New("its process ended: exit status 0")
}

// Send implements jsonrpc.Sender.
func (k *child) Send(m *jsonrpc.Message, call *jsonrpc.Call) {
	if out := k.stream.Out; call != nil && out.Queued() > maxBacklog {
		k.conn.rpc.Finish(call, jsonrpc.Answer{Err: fmt.Errorf("%w: it does not read its stdin, %d MiB wait", jsonrpc.ErrNotSent, maxBacklog>>20)})
		return
	}
	k.stream.Send(m, call)
}

// maxBacklog is how many bytes may wait for a child that does not read its
// stdin. More would be coffer's memory lost to somebody else's fault.
const maxBacklog = 64 << 20

func (k *child) flush()                  { k.stream.Out.Flush() }
func (k *child) settled(string)          {}
func (k *child) abandoned(*jsonrpc.Call) {}

// stderr implements link. It waits a little for what an exited child wrote.
func (k *child) stderr() []string {
	select {
	case <-k.words.drained:
	case <-time.After(lastWords):
	}
	return k.words.last()
}

// stop implements link: the ladder of design §9 on the child's process group.
func (k *child) stop(l ladder) {
	if l.eof == 0 {
		k.hurryOne.Do(func() { close(k.hurry) })
	}
	k.stopping.Do(func() {
		k.descend(l)
		k.cancel()
		k.stdout.SetReadDeadline(time.Now())
		k.errors.SetReadDeadline(time.Now().Add(lastWords))
		k.tasks.Wait()
		k.closePipes()
		if n := k.noise.Load(); n > 0 {
			k.conn.log.Info().Int64("lines", n).Msg("lines on stdout that were no protocol")
		}
		close(k.stopped)
	})
	<-k.stopped
}

// descend ends the group step by step and returns when it is gone.
func (k *child) descend(l ladder) {
	defer k.conn.server.set.forks.ended(k.group)
	defer k.outside()()
	if l.eof > 0 {
		ctx, cancel := context.WithTimeout(k.ctx, l.eof)
		k.stream.Out.Drain(ctx) // what we told it last shall reach it
		cancel()
		k.stdin.Close()
		if k.gone(l.eof, k.hurry) {
			return
		}
	}
	k.group.terminate()
	k.stdin.Close()
	if k.gone(l.term, nil) {
		return
	}
	k.group.kill()
	k.gone(killed, nil)
}

// outside looks for what the child has started and what has left its group, and
// returns what kills that. It has to look while the child is there: then it
// can tell whose they are.
func (k *child) outside() (kill func()) {
	select {
	case <-k.exited:
		return func() {}
	default:
		return k.group.outside()
	}
}

// gone waits until the child is reaped and its group is empty, but no longer
// than the limit, or until cut is closed.
func (k *child) gone(limit time.Duration, cut <-chan struct{}) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	select {
	case <-k.exited:
	case <-deadline.C:
		return false
	case <-cut:
		return false
	}
	poll := time.NewTicker(groupPoll)
	defer poll.Stop()
	for k.group.alive() {
		select {
		case <-poll.C:
		case <-deadline.C:
			return false
		case <-cut:
			return false
		}
	}
	return true
}
