package jsonrpc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"coffer/jsonrpc"
)

func TestMember(t *testing.T) {
	for _, c := range []struct {
		name, obj, key string
		want           string
		n              int
	}{
		{"first", `{"a":1,"b":2}`, "a", `1`, 1},
		{"last", `{"a":1,"b": {"a":3} }`, "b", `{"a":3}`, 1},
		{"none", `{"a":1}`, "b", ``, 0},
		{"not in depth", `{"a":{"b":1}}`, "b", ``, 0},
		{"twice: the last counts", `{"a":1,"a":2}`, "a", `2`, 2},
		{"twice, once escaped", `{"na\u006de":1,"name":2}`, "name", `2`, 2},
		{"null is a value", `{"a":null}`, "a", `null`, 1},
		{"empty key", `{"":1}`, "", `1`, 1},
		{"quote in the key", `{"a\"b":1}`, `a"b`, `1`, 1},
		{"backslash in the key", `{"a\\b":1}`, `a\b`, `1`, 1},
		{"newline in the key", `{"a\u000ab":1}`, "a\nb", `1`, 1},
		{"escaped spelling is not the key", `{"a\"b":1}`, `a\"b`, ``, 0},
		{"number text stays", `{"a":1.10,"b":9007199254740993}`, "b", `9007199254740993`, 1},
		{"space around", " { \"a\" : [ 1 ] } ", "a", `[ 1 ]`, 1},
		{"empty object", `{}`, "a", ``, 0},
		{"array", `[1]`, "a", ``, 0},
		{"nothing", ``, "a", ``, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, n := jsonrpc.Member([]byte(c.obj), c.key); string(got) != c.want || n != c.n {
				t.Errorf("got %s, %d; want %s, %d", got, n, c.want, c.n)
			}
		})
	}
}

func TestLookup(t *testing.T) {
	text := []byte(`{"params":{"_meta":{"progressToken":"p\u0031"},"name":5}}`)
	for _, c := range []struct {
		name string
		path []string
		want string
		text string
		ok   bool
	}{
		{"deep", []string{"params", "_meta", "progressToken"}, `"p\u0031"`, "p1", true},
		{"number", []string{"params", "name"}, `5`, "", false},
		{"through a number", []string{"params", "name", "x"}, ``, "", false},
		{"through nothing", []string{"x", "y", "z"}, ``, "", false},
		{"no path", nil, string(text), "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := jsonrpc.Lookup(text, c.path...); string(got) != c.want {
				t.Errorf("Lookup = %s, want %s", got, c.want)
			}
			if got, ok := jsonrpc.TextAt(text, c.path...); got != c.text || ok != c.ok {
				t.Errorf("TextAt = %q, %t; want %q, %t", got, ok, c.text, c.ok)
			}
		})
	}
}

func TestMembersAndElements(t *testing.T) {
	for _, c := range []struct{ name, text, members, elements string }{
		{"object", `{"a":1,"\u0062":[2], "a":3}`, `a=1 b=[2] a=3 true`, `false`},
		{"array", `[1,{"a":2}, "3"]`, `false`, `1 {"a":2} "3" true`},
		{"empty object", `{ }`, `true`, `false`},
		{"empty array", `[ ]`, `false`, `true`},
		{"more behind", `{} {}`, `false`, `false`},
		{"null", `null`, `false`, `false`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			ok := jsonrpc.Members([]byte(c.text), func(key string, value []byte) { got += key + "=" + string(value) + " " })
			if got += fmt.Sprint(ok); got != c.members {
				t.Errorf("Members: got %s, want %s", got, c.members)
			}
			got = ""
			elements, ok := jsonrpc.Elements([]byte(c.text))
			for _, e := range elements {
				got += string(e) + " "
			}
			if got += fmt.Sprint(ok); got != c.elements {
				t.Errorf("Elements: got %s, want %s", got, c.elements)
			}
		})
	}
}

func TestSplice(t *testing.T) {
	line := []byte(`{"params":{"name":"fs__read","_meta":{"progressToken":7}}}`)
	params := jsonrpc.Lookup(line, "params")
	name := jsonrpc.Lookup(params, "name")
	token := jsonrpc.Lookup(params, "_meta", "progressToken")
	for _, c := range []struct {
		name  string
		text  []byte
		edits []jsonrpc.Edit
		want  string
	}{
		{"nothing", params, nil, `{"name":"fs__read","_meta":{"progressToken":7}}`},
		{"one", params, []jsonrpc.Edit{{Old: name, New: []byte(`"read"`)}}, `{"name":"read","_meta":{"progressToken":7}}`},
		{"two", params, []jsonrpc.Edit{{Old: name, New: []byte(`"r"`)}, {Old: token, New: []byte(`"long"`)}}, `{"name":"r","_meta":{"progressToken":"long"}}`},
		{"removed", params, []jsonrpc.Edit{{Old: token}}, `{"name":"fs__read","_meta":{"progressToken":}}`},
		{"in the whole line", line, []jsonrpc.Edit{{Old: token, New: []byte(`0`)}}, `{"params":{"name":"fs__read","_meta":{"progressToken":0}}}`},
		{"all of it", token, []jsonrpc.Edit{{Old: token, New: []byte(`0`)}}, `0`},
		{"insertion", params, []jsonrpc.Edit{{Old: params[1:1], New: []byte(`"x":1,`)}}, `{"x":1,"name":"fs__read","_meta":{"progressToken":7}}`},
		{"at the end", params, []jsonrpc.Edit{{Old: params[len(params):], New: []byte(` `)}}, `{"name":"fs__read","_meta":{"progressToken":7}} `},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := string(line)
			if got := string(jsonrpc.Splice(c.text, c.edits...)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if string(line) != before {
				t.Errorf("the text became %s", line)
			}
		})
	}
}

// An edit outside of the text is our fault. It must not corrupt a message in
// silence.
func TestSplicePanicsOnForeignEdits(t *testing.T) {
	text := []byte(`{"a":1,"b":2}`)
	for _, c := range []struct {
		name string
		text []byte
		old  []byte
	}{
		{"equal bytes from elsewhere", text, []byte(`1`)},
		{"bigger than the text", text, make([]byte, 100)},
		{"before the text", text[5:], text[1:2]},
		{"behind the text", text[:5], text[6:7]},
		{"partly behind the text", text[:5], text[4:7]},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			jsonrpc.Splice(c.text, jsonrpc.Edit{Old: c.old, New: []byte(`x`)})
		})
	}
}

func TestSet(t *testing.T) {
	for _, c := range []struct{ name, obj, key, value, want string }{
		{"replace", `{"a":1,"b" : 2 }`, "b", `{}`, `{"a":1,"b" : {} }`},
		{"replace all of one name", `{"a":1,"\u0061":2,"a":3,"b":4}`, "a", `0`, `{"a":0,"\u0061":0,"a":0,"b":4}`},
		{"add", `{"a":1}`, "b", `2`, `{"a":1,"b":2}`},
		{"add to the empty object", `{}`, "b", `2`, `{"b":2}`},
		{"add to the spaced empty object", ` { } `, "b", `2`, ` { "b":2} `},
		{"add before the space", " {\"a\":{} \n} ", "b", `2`, " {\"a\":{},\"b\":2 \n} "},
		{"a brace in a string", `{"a":"}"}`, "b", `2`, `{"a":"}","b":2}`},
		{"quoted key", `{}`, `a"`, `1`, `{"a\"":1}`},
		{"replace a quoted key", `{"a\"":0}`, `a"`, `1`, `{"a\"":1}`},
		{"not in depth", `{"a":{"b":1}}`, "b", `2`, `{"a":{"b":1},"b":2}`},
		{"no object", `null`, "b", `2`, `{"b":2}`},
		{"nothing", ``, "b", `2`, `{"b":2}`},
		{"array", `[1]`, "b", `2`, `{"b":2}`},
		{"cut object", `{"a":1`, "b", `2`, `{"b":2}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj := []byte(c.obj)
			if got := string(jsonrpc.Set(obj, c.key, []byte(c.value))); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if string(obj) != c.obj {
				t.Errorf("the argument became %s", obj)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	for _, c := range []struct{ name, obj, key, want string }{
		{"only", `{"a":1}`, "a", `{}`},
		{"first", `{"a":1,"b":2}`, "a", `{"b":2}`},
		{"middle", `{"a":1, "b":2, "c":3}`, "b", `{"a":1, "c":3}`},
		{"last", `{"a":1, "b":2 }`, "b", `{"a":1}`},
		{"all of one name", `{"a":1,"b":2,"a":3,"\u0061":4}`, "a", `{"b":2}`},
		{"none", ` {"a" : 1} `, "b", ` {"a" : 1} `},
		{"space stays", " { \"a\" : 1 ,\n\"b\":2, \"c\" : [ ] } ", "b", " { \"a\" : 1 , \"c\" : [ ] } "},
		{"not in depth", `{"b":{"a":1},"a":1}`, "a", `{"b":{"a":1}}`},
		{"quoted key", `{"a\"":1,"a":2}`, `a"`, `{"a":2}`},
		{"no object", `[1]`, "a", `[1]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj := []byte(c.obj)
			if got := string(jsonrpc.Delete(obj, c.key)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if string(obj) != c.obj {
				t.Errorf("the argument became %s", obj)
			}
		})
	}
}

// pair is a member as encoding/json finds it, and where its value stands.
type pair struct {
	key        string
	start, end int
}

// pairs is Members by means of encoding/json. ok is false if text is no object.
func pairs(text []byte) (found []pair, ok bool) {
	if !json.Valid(text) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return nil, false
		}
		end := int(d.InputOffset())
		found = append(found, pair{key.(string), end - len(value), end})
	}
	return found, true
}

func addObjects(f *testing.F, more ...any) {
	for _, obj := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a":1,"b":{"a":[2]},"a":"}"}`, "{ \"a\" : 1.10 ,\r\n\"b\\u0061\" : \"\\ud800\" }\t",
		`{"":null,"\"":0}`, `[1]`, `null`, `{"a"`, `{"a":1}{"a":2}`, "{\"\xff\":1}",
	} {
		for _, key := range []string{"a", "ba", "", `"`, "\uFFFD"} {
			f.Add(append([]any{[]byte(obj), key}, more...)...)
		}
	}
}
