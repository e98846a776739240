package jsonrpc

import (
	"bytes"
	"errors"
	"regexp"
)

// ErrTooLong says that a line was longer than the reader's limit. The line has
// been skipped and the next one can be read.
var ErrTooLong = errors.New("message too long")

// excerptSize is how much of an overlong line's two ends is kept, in bytes.
const excerptSize = 1 << 10

// Overlong is the error of a line that was skipped. It is an ErrTooLong.
type Overlong struct {
	Head, Tail []byte // how the line begins and ends
}

// Error implements error.
func (e *Overlong) Error() string { return ErrTooLong.Error() }

// Unwrap returns ErrTooLong.
func (e *Overlong) Unwrap() error { return ErrTooLong }

// idAtEnd finds the id of a message whose id comes last, as the TypeScript SDK
// writes a response.
var idAtEnd = regexp.MustCompile(`,\s*"id"\s*:\s*("[^"\\]*"|-?[0-9]+)\s*\}\s*$`)

// ID returns the message's id if it can be told from the line's ends, and
// whether the message is a request or notification, as far as can be seen.
func (e *Overlong) ID() (id []byte, method bool) {
	Members(bytes.TrimPrefix(e.Head, byteOrderMark), func(key string, value []byte) {
		switch key {
		case "id":
			if validID(value) {
				id = value
			}
		case "method":
			method = true
		}
	})
	if match := idAtEnd.FindSubmatch(e.Tail); id == nil && match != nil {
		id = match[1]
	}
	return id, method
}
