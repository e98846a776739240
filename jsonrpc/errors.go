package jsonrpc

import (
	"errors"
	"fmt"
	"strconv"
)

// Error is a JSON-RPC error object (JSON-RPC 2.0 §5.1) that a peer sent.
type Error struct {
	Code    int
	Message string
	Raw     []byte // the whole object, as it came
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// AsError reads the parts of a raw error object that a person or a branch
// needs. A code that is no integer becomes CodeInternal.
func AsError(raw []byte) *Error {
	e := &Error{Code: CodeInternal, Raw: raw}
	if code, err := strconv.Atoi(string(Lookup(raw, "code"))); err == nil {
		e.Code = code
	}
	e.Message, _ = TextAt(raw, "message")
	return e
}

// CodeOf returns the code of the peer's error in err's chain, or 0.
func CodeOf(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return 0
}

// ErrorObject returns a raw error object. data is raw JSON, or nil for none.
func ErrorObject(code int, message string, data []byte) []byte {
	out := strconv.AppendInt([]byte(`{"code":`), int64(code), 10)
	out = AppendQuote(append(out, `,"message":`...), message)
	if data != nil {
		out = append(append(out, `,"data":`...), data...)
	}
	return append(out, '}')
}
