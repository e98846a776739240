package jsonrpc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"coffer/jsonrpc"
)

// show writes m's parts out, so that rows can be compared.
func show(m *jsonrpc.Message) string {
	var parts []string
	add := func(name string, value []byte) {
		if value != nil {
			parts = append(parts, name+"="+string(value))
		}
	}
	add("id", m.ID)
	if m.Method != "" {
		parts = append(parts, "method="+m.Method)
	}
	add("params", m.Params)
	add("result", m.Result)
	add("error", m.Error)
	return strings.Join(parts, " ")
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name string
		text string
		want string // show, or the error
	}{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a": 1.10 }}`, `id=1 method=tools/call params={"a": 1.10 }`},
		{"request without params", `{"jsonrpc":"2.0","id":"x","method":"ping"}`, `id="x" method=ping`},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `method=notifications/initialized`},
		{"result", `{"jsonrpc":"2.0","id":1,"result":{}}`, `id=1 result={}`},
		{"null result", `{"jsonrpc":"2.0","id":1,"result":null}`, `id=1 result=null`},
		{"error", `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}`, `id=1 error={"code":-1,"message":"m"}`},
		{"error without id", `{"jsonrpc":"2.0","error":{}}`, `error={}`},
		{"error with null id", `{"jsonrpc":"2.0","id":null,"error":{}}`, `error={}`},
		{"result beside a null error", `{"jsonrpc":"2.0","id":1,"result":{},"error":null}`, `id=1 result={}`},
		{"error beside a null result", `{"jsonrpc":"2.0","id":1,"result":null,"error":{}}`, `id=1 error={}`},
		{"null params are none", `{"jsonrpc":"2.0","id":1,"method":"ping","params":null}`, `id=1 method=ping`},
		{"unknown members", `{"x":[{}],"jsonrpc":"2.0","method":"m","y":"}"}`, `method=m`},
		{"any order, any space", " {\t\"params\" : [ ] ,\r\n\"method\" : \"m\" , \"jsonrpc\" : \"2.0\" } ", `method=m params=[ ]`},
		{"escaped names", `{"\u006asonrpc":"2.0","i\u0064":7,"method":"a\/b"}`, `id=7 method=a/b`},
		{"the last of two counts", `{"jsonrpc":"1.0","jsonrpc":"2.0","id":1,"id":2,"method":"a","method":"b"}`, `id=2 method=b`},
		{"names differ by case", `{"jsonrpc":"2.0","method":"m","ID":1,"Params":[]}`, `method=m`},

		{"id 0", `{"jsonrpc":"2.0","id":0,"method":"m"}`, `id=0 method=m`},
		{"id -1", `{"jsonrpc":"2.0","id":-1,"method":"m"}`, `id=-1 method=m`},
		{"id -0", `{"jsonrpc":"2.0","id":-0,"method":"m"}`, `id=-0 method=m`},
		{"empty id", `{"jsonrpc":"2.0","id":"","method":"m"}`, `id="" method=m`},
		{"id 10^30", `{"jsonrpc":"2.0","id":1000000000000000000000000000000,"method":"m"}`, `id=1000000000000000000000000000000 method=m`},
		{"escapes in an id stay", `{"jsonrpc":"2.0","id":"\u0031\/","method":"m"}`, `id="\u0031\/" method=m`},
		{"null id of a request", `{"jsonrpc":"2.0","id":null,"method":"m"}`, "not a JSON-RPC 2.0 message"},
		{"null id of a result", `{"jsonrpc":"2.0","id":null,"result":{}}`, "not a JSON-RPC 2.0 message"},
		{"fraction as id", `{"jsonrpc":"2.0","id":1.5,"method":"m"}`, "not a JSON-RPC 2.0 message"},
		{"exponent as id", `{"jsonrpc":"2.0","id":1e3,"method":"m"}`, "not a JSON-RPC 2.0 message"},
		{"object as id", `{"jsonrpc":"2.0","id":{},"method":"m"}`, "not a JSON-RPC 2.0 message"},
		{"true as id", `{"jsonrpc":"2.0","id":true,"method":"m"}`, "not a JSON-RPC 2.0 message"},

		{"no version", `{"id":1,"method":"m"}`, "not a JSON-RPC 2.0 message"},
		{"other version", `{"jsonrpc":"1.0","id":1,"method":"m"}`, "not a JSON-RPC 2.0 message"},
		{"version as a number", `{"jsonrpc":2.0,"id":1,"method":"m"}`, "not a JSON-RPC 2.0 message"},
		{"empty method", `{"jsonrpc":"2.0","id":1,"method":""}`, "not a JSON-RPC 2.0 message"},
		{"method is no string", `{"jsonrpc":"2.0","id":1,"method":1}`, "not a JSON-RPC 2.0 message"},
		{"method is no string beside a result", `{"jsonrpc":"2.0","id":1,"method":null,"result":{}}`, "not a JSON-RPC 2.0 message"},
		{"request and result", `{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`, "not a JSON-RPC 2.0 message"},
		{"request and error", `{"jsonrpc":"2.0","id":1,"method":"m","error":{}}`, "not a JSON-RPC 2.0 message"},
		{"result and error", `{"jsonrpc":"2.0","id":1,"result":1,"error":{}}`, "not a JSON-RPC 2.0 message"},
		{"result and params", `{"jsonrpc":"2.0","id":1,"result":1,"params":{}}`, "not a JSON-RPC 2.0 message"},
		{"error is no object", `{"jsonrpc":"2.0","id":1,"error":"boom"}`, "not a JSON-RPC 2.0 message"},
		{"result without id", `{"jsonrpc":"2.0","result":{}}`, "not a JSON-RPC 2.0 message"},
		{"nothing but a version", `{"jsonrpc":"2.0"}`, "not a JSON-RPC 2.0 message"},
		{"empty object", `{}`, "not a JSON-RPC 2.0 message"},
		{"array", `[{"jsonrpc":"2.0","method":"m"}]`, "not a JSON-RPC 2.0 message"},
		{"string", `"hello"`, "not a JSON-RPC 2.0 message"},
		{"number", ` 12 `, "not a JSON-RPC 2.0 message"},

		{"empty", ``, "not JSON"},
		{"blank", ` `, "not JSON"},
		{"banner", `Server running on stdio`, "not JSON"},
		{"cut", `{"jsonrpc":"2.0","id":1,"method":"m"`, "not JSON"},
		{"two messages", `{"jsonrpc":"2.0","method":"a"}{"jsonrpc":"2.0","method":"b"}`, "not JSON"},
		{"two words", `1 2`, "not JSON"},
		{"bad value of an unknown member", `{"jsonrpc":"2.0","method":"m","x":01}`, "not JSON"},
		{"byte-order mark", "\uFEFF{}", "not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := jsonrpc.Parse([]byte(c.text))
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = show(m)
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		text                  string
		request, notification bool
	}{
		{`{"jsonrpc":"2.0","id":0,"method":"m"}`, true, false},
		{`{"jsonrpc":"2.0","method":"m"}`, false, true},
		{`{"jsonrpc":"2.0","id":0,"result":0}`, false, false},
	} {
		m, err := jsonrpc.Parse([]byte(c.text))
		if err != nil || m.IsRequest() != c.request || m.IsNotification() != c.notification {
			t.Errorf("%s: request %t, notification %t, error %v", c.text, m.IsRequest(), m.IsNotification(), err)
		}
	}
}

func TestAppend(t *testing.T) {
	for _, c := range []struct {
		name string
		m    jsonrpc.Message
		want string
	}{
		{"request", jsonrpc.Message{ID: []byte(`"a"`), Method: "m", Params: []byte(`{"x":1}`)}, `{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":1}}`},
		{"request without params", jsonrpc.Message{ID: []byte(`0`), Method: "m"}, `{"jsonrpc":"2.0","id":0,"method":"m"}`},
		{"notification", jsonrpc.Message{Method: `a"b`}, `{"jsonrpc":"2.0","method":"a\"b"}`},
		{"result", jsonrpc.Message{ID: []byte(`1`), Result: []byte(`{}`)}, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"error", jsonrpc.Message{ID: []byte(`1`), Error: []byte(`{"code":1}`)}, `{"jsonrpc":"2.0","id":1,"error":{"code":1}}`},
		{"error without id", jsonrpc.Message{Error: []byte(`{}`)}, `{"jsonrpc":"2.0","error":{}}`},
		{"batch", jsonrpc.Message{Batch: [][]byte{[]byte(`1`), []byte(`[2]`)}}, `[1,[2]]`},
		{"batch of one", jsonrpc.Message{Batch: [][]byte{[]byte(`1`)}}, `[1]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(c.m.Append([]byte("> "))); got != "> "+c.want {
				t.Errorf("got  %s\nwant > %s", got, c.want)
			}
		})
	}
}

func TestBatch(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
	}{
		{"two", ` [ {"a":1} , 2 ] `, `["{\"a\":1}" "2"] true`},
		{"one", `[[]]`, `["[]"] true`},
		{"none", `[]`, `[] false`},
		{"no array", `{}`, `[] false`},
		{"text behind it", `[1] 2`, `["1"] false`},
		{"cut", `[1,2`, `["1" "2"] false`},
	} {
		t.Run(c.name, func(t *testing.T) {
			elements, ok := jsonrpc.Batch([]byte(c.text))
			if got := fmt.Sprintf("%q %t", elements, ok); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// FuzzParse: Parse takes what encoding/json takes and the envelope allows, and
// finds the same members.
func FuzzParse(f *testing.F) {
	for _, text := range shortValues() {
		f.Add(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":%s}`, text))
	}
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":"a","result":{"content":[]},"error":null}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`,
		`{"j\u0073onrpc":"2.0","method":"a","method":"b\ud800"}`,
		`{"jsonrpc":"2.0","id":1e3,"result":1}`, `[{"jsonrpc":"2.0","id":1,"result":null}]`, `{}`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := jsonrpc.Parse(text)
		if got, want := errors.Is(err, jsonrpc.ErrSyntax), !json.Valid(text); got != want {
			t.Fatalf("not JSON: %t, want %t", got, want)
		}
		want, ok := oracle(text)
		if got := err == nil; got != ok {
			t.Fatalf("accepted: %t, want %t", got, ok)
		}
		if !ok {
			return
		}
		if got := show(m); got != show(want) {
			t.Errorf("got  %s\nwant %s", got, show(want))
		}
		again, err := jsonrpc.Parse(m.Append(nil))
		if err != nil || show(again) != show(m) {
			t.Errorf("after a round trip %v, %v", again, err)
		}
	})
}

// oracle is Parse by means of encoding/json.
func oracle(text []byte) (*jsonrpc.Message, bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil || members == nil || string(members["jsonrpc"]) != `"2.0"` {
		return nil, false
	}
	m := &jsonrpc.Message{ID: members["id"], Params: members["params"], Result: members["result"], Error: members["error"]}
	if method, there := members["method"]; there {
		if method[0] != '"' || json.Unmarshal(method, &m.Method) != nil || m.Method == "" {
			return nil, false
		}
	}
	isNull := func(raw []byte) bool { return string(raw) == "null" }
	if isNull(m.Params) {
		m.Params = nil
	}
	if isNull(m.Error) {
		m.Error = nil
	}
	if m.Error != nil && isNull(m.Result) {
		m.Result = nil
	}
	if m.Error != nil && isNull(m.ID) {
		m.ID = nil
	}
	if m.ID != nil && m.ID[0] != '"' && strings.Trim(string(m.ID), "-0123456789") != "" {
		return nil, false
	}
	switch {
	case m.Method != "":
		return m, m.Result == nil && m.Error == nil
	case m.Params != nil:
		return nil, false
	case m.Error != nil:
		return m, m.Result == nil && m.Error[0] == '{'
	}
	return m, m.ID != nil && m.Result != nil
}
