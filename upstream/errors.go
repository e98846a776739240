package upstream

import (
	"errors"
	"fmt"
)

// HintError is an error that a person can fix, with the fix. main prints it as
// two lines on stderr, "coffer: error: …" and "coffer: hint: …".
type HintError struct {
	// Err is what went wrong.
	Err error
	// Hint is what to do about it: one line, lower case, no full stop.
	Hint string
}

// Error returns the text of Err, without the hint.
func (e *HintError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *HintError) Unwrap() error { return e.Err }

// Kinds of Error: callers branch on them with errors.Is.
var (
	// ErrUnavailable says that an upstream cannot be reached, died, or still
	// fails after a fresh connection.
	ErrUnavailable = errors.New("unavailable")
	// ErrTimeout says that an upstream did not answer in time.
	ErrTimeout = errors.New("timed out")

	// errRefused says that a request was turned away before it could have run,
	// because the server has forgotten the session (MCP 2025-11-25, transports,
	// session management: 404). It may be sent again.
	errRefused = errors.New("session is gone")
	// errReplaced says the same of one whose protocol version the server does
	// not speak any more (2026-07-28, basic/versioning).
	errReplaced = errors.New("another server may have taken its place")
)

// Error is a failure of one upstream.
type Error struct {
	// Upstream is the server's key in the config.
	Upstream string
	// Kind is ErrUnavailable or ErrTimeout.
	Kind error
	// Err is the cause.
	Err error
	// Hint is a fix, or empty: one line, lower case, no full stop.
	Hint string
}

// Error names the upstream and the cause.
func (e *Error) Error() string {
	return fmt.Sprintf("upstream %q %v: %v", e.Upstream, e.Kind, e.Err)
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

// unavailable wraps err as a failure of the upstream. An Error stays as it is;
// the hint of a HintError is kept.
func unavailable(name string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Upstream: name, Kind: ErrUnavailable, Err: err}
	if h, ok := errors.AsType[*HintError](err); ok {
		e.Hint = h.Hint
	}
	return e
}
