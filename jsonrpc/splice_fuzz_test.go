package jsonrpc_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"coffer/jsonrpc"
)

// FuzzMember: Members, Member and Elements find what encoding/json finds.
func FuzzMember(f *testing.F) {
	addObjects(f)
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		var want []byte
		count := 0
		found, isObject := pairs(text)
		i := 0
		ok := jsonrpc.Members(text, func(k string, v []byte) {
			if isObject && (k != found[i].key || string(v) != string(text[found[i].start:found[i].end])) {
				t.Errorf("member %d is %q: %s, want %+v", i, k, v, found[i])
			}
			i++
		})
		if ok != isObject {
			t.Fatalf("an object: %t, want %t", ok, isObject)
		}
		value, n := jsonrpc.Member(text, key) // without panic on anything
		elements, isArray := jsonrpc.Elements(text)
		var std []json.RawMessage
		if want := json.Unmarshal(text, &std) == nil && std != nil; isArray != want {
			t.Fatalf("an array: %t, want %t", isArray, want)
		}
		for i := range std {
			if !bytes.Equal(elements[i], std[i]) {
				t.Errorf("element %d is %s, want %s", i, elements[i], std[i])
			}
		}
		if !isObject {
			return
		}
		for _, p := range found {
			if p.key == key {
				want = text[p.start:p.end]
				count++
			}
		}
		if i != len(found) || n != count || string(value) != string(want) {
			t.Errorf("%d members; Member = %s, %d; want %d, %s, %d", i, value, n, len(found), want, count)
		}
	})
}

// FuzzSplice: text with two edits is what plain concatenation makes of it.
func FuzzSplice(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":2}`), uint(5), uint(6), uint(11), uint(12), []byte(`"x"`), []byte(``))
	f.Add([]byte(``), uint(0), uint(0), uint(0), uint(0), []byte(`x`), []byte(`y`))
	f.Fuzz(func(t *testing.T, text []byte, a, b, c, d uint, first, second []byte) {
		at := []int{int(a % uint(len(text)+1)), int(b % uint(len(text)+1)), int(c % uint(len(text)+1)), int(d % uint(len(text)+1))}
		slices.Sort(at)
		whole := bytes.Clone(text)
		got := jsonrpc.Splice(text, jsonrpc.Edit{Old: text[at[0]:at[1]], New: first}, jsonrpc.Edit{Old: text[at[2]:at[3]], New: second})
		want := slices.Concat(text[:at[0]], first, text[at[1]:at[2]], second, text[at[3]:])
		if !bytes.Equal(got, want) || !bytes.Equal(text, whole) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// FuzzSet: the members named key become value, and every other byte stays.
func FuzzSet(f *testing.F) {
	addObjects(f, []byte(`{"x":[1e2]}`))
	f.Fuzz(func(t *testing.T, obj []byte, key string, value []byte) {
		before, isObject := pairs(obj)
		jsonrpc.Set(obj, key, value) // without panic on anything
		if !json.Valid(value) || !isObject || !utf8.ValidString(key) {
			return
		}
		value = bytes.TrimSpace(value)
		got := jsonrpc.Set(obj, key, value)
		var want []byte
		done := 0
		for _, p := range before {
			if p.key == key {
				want = append(append(want, obj[done:p.start]...), value...)
				done = p.end
			}
		}
		if done == 0 {
			var end int
			comma := ","
			if len(before) > 0 {
				end = before[len(before)-1].end
			} else {
				end, comma = bytes.LastIndexByte(obj, '}'), ""
			}
			want = slices.Concat(obj[:end], []byte(comma), jsonrpc.Quote(key), []byte(":"), value)
			done = end
		}
		want = append(want, obj[done:]...)
		if !bytes.Equal(got, want) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
		if set, n := jsonrpc.Member(got, key); n == 0 || !bytes.Equal(set, value) || !json.Valid(got) {
			t.Errorf("Member finds %s, %d in %s", set, n, got)
		}
	})
}

// FuzzDelete: the members named key are gone, the others and their bytes are
// there in order, and so is what surrounds the object.
func FuzzDelete(f *testing.F) {
	addObjects(f)
	f.Fuzz(func(t *testing.T, obj []byte, key string) {
		got := jsonrpc.Delete(obj, key) // without panic on anything
		before, isObject := pairs(obj)
		if !isObject {
			return
		}
		after, ok := pairs(got)
		if !ok {
			t.Fatalf("%q is no object", got)
		}
		kept := slices.DeleteFunc(before, func(p pair) bool { return p.key == key })
		if len(kept) != len(after) {
			t.Fatalf("%d members in %q, want %d", len(after), got, len(kept))
		}
		for i, p := range after {
			if p.key != kept[i].key || !bytes.Equal(got[p.start:p.end], obj[kept[i].start:kept[i].end]) {
				t.Errorf("member %d is %q: %s", i, p.key, got[p.start:p.end])
			}
		}
		open, closing := bytes.IndexByte(obj, '{'), bytes.LastIndexByte(obj, '}')
		if !bytes.HasPrefix(got, obj[:open+1]) || !bytes.HasSuffix(got, obj[closing:]) {
			t.Errorf("what surrounds the object changed: %q", got)
		}
	})
}
