package jsonrpc

import (
	"context"
	"errors"
	"io"
)

// Stream is a Conn over newline-delimited text: the stdio transport of MCP
// (2025-11-25, basic/transports), of either side.
type Stream struct {
	*Conn
	In  *Reader
	Out *Writer

	opts StreamOptions
	m    Message // the one at hand: nobody keeps it, so one serves all
}

// StreamOptions are what the two ends of coffer do differently with a Stream.
type StreamOptions struct {
	// Prefix makes our own ids strings (see NewConn).
	Prefix string
	// MaxMessage is the longest line accepted, in bytes; 0: DefaultMaxMessage.
	MaxMessage int
	// Batches reports whether arrays are messages (MCP 2025-03-26 only). nil:
	// they are not.
	Batches func() bool
	// Bad is told of a line that was not used: err is ErrSyntax, ErrEnvelope,
	// ErrUnexpected or ErrTooLong (then line is nil). Required.
	Bad func(line []byte, err error)
	// Idle is called before the reader waits for more and at its end, when
	// everything that had arrived has been handled: the time to flush what
	// handlers posted. Required.
	Idle func()
	// Gate is called before each line is read; it may wait. nil: no gate.
	Gate func()
}

// NewStream returns a Stream. Serve reads it; Out.Run must run beside.
func NewStream(r io.Reader, w io.Writer, handler Handler, opts StreamOptions) *Stream {
	s := &Stream{In: NewReader(r, opts.MaxMessage), Out: NewWriter(w, 0), opts: opts}
	s.Conn = NewConn(s, handler, opts.Prefix)
	return s
}

// Send implements Sender. The message goes out with the next Flush of Out.
func (s *Stream) Send(m *Message, _ *Call) { s.Out.Post(m) }

// Serve reads and dispatches messages until the stream ends or fails, and
// returns nil at its end. ctx ends it between two lines; a read that waits is
// freed by whoever closes the source. It leaves the Conn open: what to do with
// the calls that still wait is for the owner to say.
func (s *Stream) Serve(ctx context.Context) error {
	for ctx.Err() == nil {
		if !s.In.Buffered() {
			s.opts.Idle()
		}
		if s.opts.Gate != nil {
			s.opts.Gate()
		}
		line, err := s.In.Next()
		switch {
		case errors.Is(err, ErrTooLong):
			s.opts.Bad(nil, err)
		case err != nil:
			s.opts.Idle()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		default:
			s.receive(line)
		}
	}
	s.opts.Idle()
	return context.Cause(ctx)
}

// receive dispatches the message or batch in one line.
func (s *Stream) receive(line []byte) {
	err := s.m.parse(line)
	if errors.Is(err, ErrEnvelope) && s.opts.Batches != nil && s.opts.Batches() {
		if elements, ok := Batch(line); ok {
			s.ReceiveBatch(elements, nil)
			return
		}
	}
	if err == nil && !s.Receive(&s.m) {
		err = ErrUnexpected
	}
	if err != nil {
		s.opts.Bad(line, err)
	}
}
