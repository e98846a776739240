package jsonrpc_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"coffer/jsonrpc"
)

// values are texts that are JSON values, and texts that are not.
var values = []struct {
	name string
	text string
}{
	{"null", `null`}, {"true", `true`}, {"false", `false`},
	{"cut word", `nul`}, {"cut word at f", `fals`}, {"wrong word", `nulL`}, {"word and more", `truex`}, {"capital", `True`},
	{"zero", `0`}, {"minus zero", `-0`}, {"digits", `9007199254740993`}, {"fraction", `1.10`}, {"exponent", `1e+400`}, {"capital exponent", `2E-3`},
	{"leading zero", `01`}, {"minus alone", `-`}, {"point alone", `1.`}, {"point first", `.5`}, {"plus", `+1`}, {"exponent alone", `1e`},
	{"exponent sign alone", `1e+`}, {"hex", `0x1`}, {"NaN", `NaN`}, {"minus point", `-.1`}, {"two points", `1.2.3`}, {"minus leading zero", `-01`},
	{"empty string", `""`}, {"one byte", `"a"`}, {"seven bytes", `"1234567"`}, {"eight bytes", `"12345678"`}, {"nine bytes", `"123456789"`},
	{"escapes", `"\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00"`}, {"lone surrogate", `"\ud800"`}, {"non-ASCII", `"é€😀 plain"`}, {"DEL", "\"\x7f\""},
	{"invalid UTF-8", "\"\xff\xc0\x80\""}, {"invalid UTF-8 and a quote", "\"\xff\"x"}, {"0xA2 is no quote", "\"\xa2\xa2\xa2\xa2\xa2\xa2\xa2\xa2\xa2\""},
	{"unclosed", `"abc`}, {"unclosed word", `"12345678`}, {"unclosed at an escape", `"abc\`}, {"escaped end", `"abc\"`}, {"bad escape", `"\x41"`},
	{"short unicode escape", `"\u12"`}, {"cut unicode escape", `"\u12`}, {"bad unicode escape", `"\u12g4"`}, {"escape at a word's end", `"1234567\u0041"`},
	{"newline in string", "\"a\nb\""}, {"tab in string", "\"a\tb\""}, {"NUL in string", "\"12345678\x00\""}, {"0x1f in string", "\"\x1f\""},
	{"empty object", `{}`}, {"empty array", `[]`}, {"spaces", " {  } "}, {"all spaces", "\t\r\n [ \t\r\n ] "}, {"form feed", "\f{}"}, {"no-break space", "\u00a0{}"},
	{"object", `{"a":1,"b":[{"c":null}]}`}, {"spaced object", ` { "a" : 1 , "b" : [ 1 , 2 ] } `},
	{"comma at the end of an object", `{"a":1,}`}, {"comma at the end of an array", `[1,]`}, {"comma first", `[,1]`}, {"two commas", `[1,,2]`},
	{"no colon", `{"a" 1}`}, {"no value", `{"a":}`}, {"no key", `{:1}`}, {"number as a key", `{1:2}`}, {"colon in array", `[1:2]`}, {"missing comma", `[1 2]`},
	{"object closed as array", `{"a":1]`}, {"array closed as object", `[1}`}, {"unclosed object", `{"a":1`}, {"unclosed array", `[1`}, {"only open", `[`}, {"only open brace", `{`},
	{"key only", `{"a"`}, {"key and colon", `{"a":`}, {"closed too much", `[]]`}, {"comment", `[1/**/]`}, {"single quotes", `{'a':1}`}, {"nothing", ``}, {"blank", ` `},
	{"deep", deep(63)}, {"deeper than the scanner's own room", deep(65)}, {"as deep as a decoder goes", deep(9998)}, {"deeper than a decoder goes", deep(9999)},
	{"deep and unclosed", strings.Repeat(`[`, 20000)}, {"deep objects", strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200)},
}

// shortValues are the texts of values that a fuzzer can work with.
func shortValues() (texts []string) {
	for _, c := range values {
		if len(c.text) < 200 {
			texts = append(texts, c.text)
		}
	}
	return texts
}

// deep returns n arrays in each other, and an empty one inside.
func deep(n int) string { return strings.Repeat("[", n) + "[]" + strings.Repeat("]", n) }

func TestScannerAgreesWithEncodingJSON(t *testing.T) {
	for _, c := range values {
		t.Run(c.name, func(t *testing.T) {
			line := []byte(`{"jsonrpc":"2.0","id":1,"result":` + c.text + `}`)
			_, err := jsonrpc.Parse(line)
			if got, want := err == nil, json.Valid(line); got != want {
				t.Errorf("as a member: accepted %t, want %t", got, want)
			}
			_, ok := jsonrpc.Elements([]byte(`[` + c.text + `]`))
			if want := json.Valid([]byte(`[` + c.text + `]`)); ok != want {
				t.Errorf("as an element: accepted %t, want %t", ok, want)
			}
		})
	}
}

// A string's special bytes must be seen at each place in the eight bytes that
// are looked at together, with each neighbour.
func TestStringsAtEachOffset(t *testing.T) {
	for _, odd := range []string{`"`, `\"`, `\\`, `\u00e9`, "\x00", "\x1f", " ", "\x7f", "\x80", "\xff", "é", `\`} {
		for before := range 20 {
			for after := range 10 {
				text := `"` + strings.Repeat("a", before) + odd + strings.Repeat("é", after) + `"`
				_, got := jsonrpc.Text([]byte(text))
				if want := json.Valid([]byte(text)); got != want {
					t.Fatalf("%q: a string: %t, want %t", text, got, want)
				}
			}
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		name, raw, want string
		ok              bool
	}{
		{"plain", `"tools/call"`, "tools/call", true},
		{"empty", `""`, "", true},
		{"escapes", `"a\u0062\n\/\\"`, "ab\n/\\", true},
		{"surrogate pair", `"\ud83d\ude00"`, "😀", true},
		{"lone surrogate", `"x\ud800y"`, "x\uFFFDy", true},
		{"invalid UTF-8", "\"x\xff\xfey\"", "x\uFFFD\uFFFDy", true},
		{"invalid UTF-8 beside an escape", "\"\\n\xff\"", "\n\uFFFD", true},
		{"number", `1`, "", false},
		{"null", `null`, "", false},
		{"nothing", ``, "", false},
		{"a quote alone", `"`, "", false},
		{"unclosed", `"abc`, "", false},
		{"quote inside", `"a"b"`, "", false},
		{"more behind it", `"a" `, "", false},
		{"bad escape", `"\q"`, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, ok := jsonrpc.Text([]byte(c.raw)); got != c.want || ok != c.ok {
				t.Errorf("Text(%s) = %q, %t; want %q, %t", c.raw, got, ok, c.want, c.ok)
			}
		})
	}
}

func TestQuote(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"plain", "read_file", `"read_file"`},
		{"empty", "", `""`},
		{"quote and backslash", `a"b\c`, `"a\"b\\c"`},
		{"controls", "\n\t\r\x00\x1f", `"\n\t\r\u0000\u001f"`},
		{"HTML is left alone", "<a href='x'>&", `"<a href='x'>&"`},
		{"non-ASCII", "é€😀\u2028", "\"é€😀\u2028\""},
		{"invalid UTF-8", "a\xff\xc3b", "\"a\uFFFD\uFFFDb\""},
		{"escape behind plain text", "0123456789\"", `"0123456789\""`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(jsonrpc.Quote(c.text)); got != c.want {
				t.Errorf("Quote(%q) = %s, want %s", c.text, got, c.want)
			}
			if got := string(jsonrpc.AppendQuote([]byte("x"), c.text)); got != "x"+c.want {
				t.Errorf("AppendQuote = %s, want x%s", got, c.want)
			}
		})
	}
}

func TestOneLine(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"one line", `{"a": 1}`, `{"a": 1}`},
		{"LF", "{\n\"a\":1\n}", `{ "a":1 }`},
		{"CRLF", "{\r\n\"a\":1}\r\n", `{  "a":1}  `},
		{"CR", "[\r1]", `[ 1]`},
		{"escaped newline stays", `["\n"]`, `["\n"]`},
		{"invalid UTF-8", "[\"\xff\",\n1]", "[\"\uFFFD\", 1]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := []byte(c.text)
			if got := string(jsonrpc.OneLine(text)); got != c.want {
				t.Errorf("OneLine(%q) = %q, want %q", c.text, got, c.want)
			}
			if string(text) != c.text {
				t.Errorf("the argument became %q", text)
			}
		})
	}
}

// FuzzText: Text decodes what encoding/json decodes.
func FuzzText(f *testing.F) {
	for _, text := range shortValues() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want string
		isString := len(raw) > 1 && raw[0] == '"' && raw[len(raw)-1] == '"' && json.Unmarshal(raw, &want) == nil
		if got, ok := jsonrpc.Text(raw); ok != isString || got != want {
			t.Errorf("Text(%q) = %q, %t; want %q, %t", raw, got, ok, want, isString)
		}
	})
}

// FuzzQuote: what Quote writes is one line of JSON that decodes to the text.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "tools/call", "a\"b\\c\n", "\x00\x7f\u2028é😀", "\xff\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw := jsonrpc.Quote(s)
		if !json.Valid(raw) || !utf8.Valid(raw) || bytes.ContainsAny(raw, "\r\n") {
			t.Fatalf("Quote(%q) = %q", s, raw)
		}
		want := string([]rune(s)) // invalid bytes as U+FFFD, one each
		if got, ok := jsonrpc.Text(raw); !ok || got != want {
			t.Errorf("Text(Quote(%q)) = %q, %t", s, got, ok)
		}
		var std string
		if err := json.Unmarshal(raw, &std); err != nil || std != want {
			t.Errorf("encoding/json reads %q as %q, %v", raw, std, err)
		}
	})
}
