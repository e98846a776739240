package jsonrpc_test

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"coffer/jsonrpc"
)

// An overlong answer must end its call: the reader keeps what tells whose it
// is, wherever the id stands.
func TestOverlongID(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, tt := range []struct {
		name, line, id string
		method         bool
	}{
		{"id first", `{"jsonrpc":"2.0","id":7,"result":{"a":"` + long + `"}}`, "7", false},
		{"id last", `{"result":{"id":1,"a":"` + long + `"},"jsonrpc":"2.0","id":"x-9"}`, `"x-9"`, false},
		{"request", `{"jsonrpc":"2.0","id":3,"method":"ping","params":{"a":"` + long + `"}}`, "3", true},
		{"no id to be seen", `{"jsonrpc":"2.0","result":"` + long + `","id":5,"x":"` + long + `"}`, "", false},
		{"a little too long", `{"jsonrpc":"2.0","id":8,"result":"` + strings.Repeat("y", 1100) + `"}`, "8", false},
		{"a number that the head cuts", `{"jsonrpc":"2.0","result":"` + strings.Repeat("z", 1024-37) + `","id":12345,"x":"` + long + `"}`, "", false},
		{"byte-order mark", "\uFEFF" + `{"jsonrpc":"2.0","id":7,"result":{"a":"` + long + `"}}`, "7", false},
		{"null is no id", `{"jsonrpc":"2.0","id":null,"method":"m","params":"` + long + `"}`, "", true},
		{"an object is no id", `{"jsonrpc":"2.0","id":{"a":1},"method":"m","params":"` + long + `"}`, "", true},
		{"a fraction is no id", `{"jsonrpc":"2.0","id":1.5,"result":"` + long + `"}`, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := jsonrpc.NewReader(strings.NewReader(tt.line+"\n{}\n"), 1024)
			_, err := r.Next()
			e, ok := errors.AsType[*jsonrpc.Overlong](err)
			if !ok || !errors.Is(err, jsonrpc.ErrTooLong) {
				t.Fatalf("got %v, want an Overlong", err)
			}
			if id, method := e.ID(); string(id) != tt.id || method != tt.method {
				t.Errorf("got id %s method %v, want %s %v", id, method, tt.id, tt.method)
			}
			if line, err := r.Next(); string(line) != "{}" || err != nil {
				t.Errorf("next line: got %q, %v", line, err)
			}
		})
	}
}

// The id at the end is found wherever the border between two blocks of the
// Reader cuts it, and however little comes with the last read.
func TestOverlongIDBetweenBlocks(t *testing.T) {
	const end = `","id":"x-9"}`
	for cut := range len(end) + 1 {
		start := `{"jsonrpc":"2.0","result":"`
		line := start + strings.Repeat("x", block-len(start)-cut) + end
		for limit := range 3 {
			pieces := []string{line[:block-1], line[block-1 : block], line[block:], "\n"}
			_, err := jsonrpc.NewReader(&steps{pieces}, block-limit).Next()
			e, ok := errors.AsType[*jsonrpc.Overlong](err)
			if len(line) <= block-limit {
				continue
			}
			if !ok {
				t.Fatalf("cut %d, limit %d: %v", cut, limit, err)
			}
			if id, _ := e.ID(); string(id) != `"x-9"` {
				t.Errorf("cut %d, limit %d: id %s", cut, limit, id)
			}
		}
	}
	r := iotest.OneByteReader(strings.NewReader(`{"jsonrpc":"2.0","result":"` + strings.Repeat("x", 3000) + end))
	_, err := jsonrpc.NewReader(r, 100).Next()
	if e, ok := errors.AsType[*jsonrpc.Overlong](err); !ok {
		t.Error(err)
	} else if id, _ := e.ID(); string(id) != `"x-9"` {
		t.Errorf("byte by byte: id %s", id)
	}
}
