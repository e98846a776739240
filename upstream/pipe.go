package upstream

import (
	"context"
	"errors"
	"io"
	"sync"

	"coffer/jsonrpc"
)

// Dial connects to an upstream over in-process pipes in place of what its spec
// says: from is what the upstream writes, to is what it reads. Closing to asks
// it to leave; it then closes from.
type Dial func(spec *Spec) (from io.ReadCloser, to io.WriteCloser, err error)

// pipe is the link to an upstream in this process. It is a child without the
// process: tests drive it in a synctest bubble, where no process can be.
type pipe struct {
	conn   *Conn
	stream *jsonrpc.Stream
	from   io.ReadCloser
	to     io.WriteCloser
	ctx    context.Context // lifetime of Out.Run and of waiting for the client
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

func (c *Conn) dialPipe(ctx context.Context) error {
	set := c.server.set
	from, to, err := set.opts.Dial(c.server.spec)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &pipe{conn: c, from: from, to: to, ctx: ctx, cancel: cancel}
	p.stream = jsonrpc.NewStream(from, to, c, jsonrpc.StreamOptions{
		MaxMessage: set.opts.MaxMessageSize,
		Batches:    c.batches,
		Bad:        func(line []byte, err error) { c.misanswered(line, err) },
		Idle:       c.idle,
		Gate:       func() { c.room(ctx) },
	})
	c.link, c.rpc = p, p.stream.Conn
	p.tasks.Go(func() {
		err := p.stream.Serve(ctx)
		if err == nil {
			err = errors.New("it closed its stdout")
		}
		c.lost(err)
	})
	p.tasks.Go(func() { p.stream.Out.Run(ctx) })
	return nil
}

// Send implements jsonrpc.Sender.
func (p *pipe) Send(m *jsonrpc.Message, call *jsonrpc.Call) { p.stream.Send(m, call) }

func (p *pipe) flush()                  { p.stream.Out.Flush() }
func (p *pipe) settled(string)          {}
func (p *pipe) abandoned(*jsonrpc.Call) {}
func (p *pipe) stderr() []string        { return nil }

// stop implements link.
func (p *pipe) stop(l ladder) {
	ctx, cancel := context.WithTimeout(p.ctx, l.eof)
	p.stream.Out.Drain(ctx)
	cancel()
	p.to.Close()
	p.from.Close()
	p.cancel()
	p.tasks.Wait()
}
