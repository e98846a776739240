package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"coffer/prefs"
	"coffer/upstream"
)

// Exit codes (design §2).
const (
	exitDone        = 0
	exitError       = 1
	exitUsage       = 2
	exitUnavailable = 3
	exitNotFound    = 4
)

// failure is an error with the exit code it asks for.
type failure struct {
	code int
	err  error
	hint string // one line, lower case, no full stop; "": none
}

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

// failf returns an error that ends the run with code; hint may be empty.
func failf(code int, hint, format string, args ...any) error {
	return &failure{code: code, err: fmt.Errorf(format, args...), hint: hint}
}

// usagef returns an error in the words on the command line.
func usagef(hint, format string, args ...any) error { return failf(exitUsage, hint, format, args...) }

// several are errors that one command met side by side, the first of which
// gives the exit code.
type several []error

func (s several) Error() string { return errors.Join(s...).Error() }

// together returns the errors that are not nil as one.
func together(errs ...error) error {
	var all several
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	default:
		return all
	}
}

// report prints err for a person and returns the exit code.
func (p *program) report(err error) int {
	if err == nil {
		return exitDone
	}
	if all, ok := err.(several); ok {
		code := p.report(all[0])
		for _, other := range all[1:] {
			p.report(other)
		}
		return code
	}
	fmt.Fprintf(p.stderr, "coffer: error: %s\n", printable(err.Error()))
	hint := hintOf(err)
	if hint != "" {
		fmt.Fprintf(p.stderr, "coffer: hint: %s\n", printable(hint))
	}
	event := p.fileLog.Error()
	if hint != "" {
		event = event.Str("hint", hint)
	}
	event.Msg(printable(err.Error()))
	return codeOf(err)
}

// warn prints a warning for a person.
func (p *program) warn(format string, args ...any) {
	fmt.Fprintf(p.stderr, "coffer: warning: %s\n", printable(fmt.Sprintf(format, args...)))
}

// hintOf returns the fix that err knows, or "".
func hintOf(err error) string {
	if f, ok := errors.AsType[*failure](err); ok && f.hint != "" {
		return f.hint
	}
	if e, ok := errors.AsType[*upstream.Error](err); ok && e.Hint != "" {
		return e.Hint
	}
	if e, ok := errors.AsType[*upstream.HintError](err); ok {
		return e.Hint
	}
	if e, ok := errors.AsType[*prefs.Error](err); ok {
		return e.Hint()
	}
	return ""
}

// codeOf returns the exit code for err.
func codeOf(err error) int {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	if _, ok := errors.AsType[*upstream.Error](err); ok {
		return exitUnavailable
	}
	if _, ok := errors.AsType[cli.ExitCoder](err); ok { // `coffer help nonsense`
		return exitUsage
	}
	return exitError
}
