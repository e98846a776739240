package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"coffer/jsonrpc"
)

// demoClient is an MCP client as Claude Desktop is one: it has started coffer
// and speaks with it over pipes.
type demoClient struct {
	cmd     *exec.Cmd
	stream  *jsonrpc.Stream
	hangUp  func() error   // closes coffer's stdin
	stop    func()         // ends the writer
	tasks   sync.WaitGroup // reader and writer
	changed chan time.Time // capacity 1: when the list was last said to have changed
	ended   chan struct{}  // closed when coffer closed its stdout
	log     bytes.Buffer   // coffer's stderr; whole once close has returned
}

// demoCommand prepares to run coffer. When ctx ends it is told to end, and so
// ends its own children.
func demoCommand(ctx context.Context, coffer string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, coffer, args...)
	cmd.Cancel = func() error {
		if cmd.Process.Signal(syscall.SIGTERM) != nil { // Windows has no such thing
			return cmd.Process.Kill()
		}
		return nil
	}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func startDemoClient(ctx context.Context, coffer string, args []string) (*demoClient, error) {
	d := &demoClient{changed: make(chan time.Time, 1), ended: make(chan struct{})}
	d.cmd = demoCommand(ctx, coffer, args)
	d.cmd.Stderr = &d.log
	stdin, err := d.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	d.hangUp = stdin.Close
	d.stream = jsonrpc.NewStream(stdout, stdin, d, jsonrpc.StreamOptions{
		Bad:  func([]byte, error) {},
		Idle: func() { d.stream.Out.Flush() },
	})
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	d.tasks.Go(func() { d.stream.Out.Run(writing) })
	d.tasks.Go(func() { d.read(writing) })
	return d, nil
}

// read takes what coffer sends until it closes its stdout.
func (d *demoClient) read(ctx context.Context) {
	err := d.stream.Serve(ctx)
	d.stream.Conn.Close(err)
	close(d.ended)
}

// close leaves as a client does: it closes coffer's stdin and waits for the end.
func (d *demoClient) close() error {
	d.hangUp()
	<-d.ended // Wait closes the pipe that is read
	d.stop()
	d.tasks.Wait()
	return d.cmd.Wait()
}

// HandleNotification implements jsonrpc.Handler.
func (d *demoClient) HandleNotification(method string, _ []byte) {
	if method == "notifications/tools/list_changed" {
		select {
		case d.changed <- time.Now():
		default:
		}
	}
}

// HandleRequest implements jsonrpc.Handler.
func (d *demoClient) HandleRequest(r *jsonrpc.Request) {
	if r.Method == "ping" {
		r.Reply([]byte(`{}`))
		return
	}
	r.Fail(jsonrpc.ErrorObject(jsonrpc.CodeMethodNotFound, "Method not found: "+r.Method, nil))
}

func (d *demoClient) notify(method string) {
	d.stream.Notify(method, nil)
	d.stream.Out.Flush()
}

// call sends a request and waits for its result.
func (d *demoClient) call(ctx context.Context, method, params string) ([]byte, error) {
	answers := make(chan jsonrpc.Answer, 1)
	d.stream.Start(&jsonrpc.Call{Method: method, Params: []byte(params), Done: func(a jsonrpc.Answer) { answers <- a }})
	d.stream.Out.Flush()
	select {
	case a := <-answers:
		switch {
		case a.Err != nil:
			return nil, fmt.Errorf("%s: %w", method, a.Err)
		case a.Error != nil:
			return nil, jsonrpc.AsError(a.Error)
		}
		return a.Result, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (d *demoClient) callTool(ctx context.Context, name, arguments string) ([]byte, error) {
	return d.call(ctx, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments))
}

// tools asks for the list of tools.
func (d *demoClient) tools(ctx context.Context) ([][]byte, error) {
	result, err := d.call(ctx, "tools/list", `{}`)
	if err != nil {
		return nil, err
	}
	tools, ok := jsonrpc.Elements(jsonrpc.Lookup(result, "tools"))
	if !ok {
		return nil, errors.New("tools/list: the result has no tools")
	}
	return tools, nil
}
