package jsonrpc_test

import (
	"errors"
	"fmt"
	"testing"

	"coffer/jsonrpc"
)

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name, raw string
		code      int
		message   string
	}{
		{"whole", `{"code":-32601,"message":"Unknown \"x\"","data":{"a":1.10}}`, -32601, `Unknown "x"`},
		{"code is no integer", `{"code":"E1","message":"m"}`, jsonrpc.CodeInternal, "m"},
		{"fraction", `{"code":1.5,"message":"m"}`, jsonrpc.CodeInternal, "m"},
		{"no message", `{"code":403}`, 403, ""},
		{"empty", `{}`, jsonrpc.CodeInternal, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := fmt.Errorf("calling: %w", jsonrpc.AsError([]byte(c.raw)))
			var e *jsonrpc.Error
			if !errors.As(err, &e) || e.Code != c.code || e.Message != c.message || string(e.Raw) != c.raw {
				t.Errorf("got %+v", e)
			}
			if got := jsonrpc.CodeOf(err); got != c.code {
				t.Errorf("CodeOf = %d, want %d", got, c.code)
			}
			if got, want := err.Error(), fmt.Sprintf("calling: %s (code %d)", c.message, c.code); got != want {
				t.Errorf("text %q, want %q", got, want)
			}
		})
	}
	if got := jsonrpc.CodeOf(errors.New("x")); got != 0 {
		t.Errorf("CodeOf of another error = %d", got)
	}
}

func TestErrorObject(t *testing.T) {
	for _, c := range []struct {
		name    string
		message string
		data    []byte
		want    string
	}{
		{"plain", "m", nil, `{"code":-32600,"message":"m"}`},
		{"data", "m", []byte(`{"a":1}`), `{"code":-32600,"message":"m","data":{"a":1}}`},
		{"quotes", "a \"b\"\n", nil, `{"code":-32600,"message":"a \"b\"\n"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(jsonrpc.ErrorObject(jsonrpc.CodeInvalidRequest, c.message, c.data)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
