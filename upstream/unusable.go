package upstream

import (
	"errors"
	"fmt"

	"coffer/jsonrpc"
)

// oversized ends the call that an overlong response belongs to: the one that
// its id says, as far as that can be seen, or call, on whose stream it came.
// Another message of that size is only skipped.
func (c *Conn) oversized(e *jsonrpc.Overlong, call *jsonrpc.Call) {
	c.log.Warn().Int("max", c.maxMessage()).Msg("message skipped: longer than max_message_size")
	id, isRequest := e.ID()
	if isRequest {
		return
	}
	if number, ok := callNumber(id); ok {
		call = c.rpc.Waiting(number)
	}
	if call != nil {
		c.rpc.Finish(call, jsonrpc.Answer{Err: c.tooLong()})
		c.handler.Flush()
	}
}

// misanswered ends the call that a line which was not used, for that reason, means
// to answer, in a form that no response has: nothing else will. It reports false if
// there is no such call.
func (c *Conn) misanswered(line []byte, reason error) bool {
	if !errors.Is(reason, jsonrpc.ErrEnvelope) {
		return false
	}
	version, _ := jsonrpc.TextAt(line, "jsonrpc")
	means := jsonrpc.Lookup(line, "result") != nil || jsonrpc.Lookup(line, "error") != nil
	number, ok := callNumber(jsonrpc.Lookup(line, "id"))
	if version != "2.0" || !means || !ok || jsonrpc.Lookup(line, "method") != nil {
		return false
	}
	call := c.rpc.Waiting(number)
	if call == nil {
		return false
	}
	err := fmt.Errorf("its answer is no JSON-RPC response: %s; the request may have run", line[:min(len(line), 200)])
	c.rpc.Finish(call, jsonrpc.Answer{Err: unavailable(c.Name(), err)})
	c.handler.Flush()
	return true
}

// tooLong is what a call ends with whose answer is over the limit.
func (c *Conn) tooLong() error {
	return unavailable(c.Name(), &HintError{
		Err:  fmt.Errorf("its answer is longer than %d bytes; the request has run", c.maxMessage()),
		Hint: "raise max_message_size in the config",
	})
}

func (c *Conn) maxMessage() int {
	if n := c.server.set.opts.MaxMessageSize; n > 0 {
		return n
	}
	return jsonrpc.DefaultMaxMessage
}
