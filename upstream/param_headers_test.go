package upstream

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"coffer/jsonrpc"
)

func TestParamHeaders(t *testing.T) {
	at := func(property string) string {
		return `{"type":"object","properties":{"p":` + property + `}}`
	}
	for name, c := range map[string]struct {
		schema string
		want   string // name:path of each, or "bad"
	}{
		"none":                  {at(`{"type":"string"}`), ""},
		"no schema":             {``, ""},
		"string":                {at(`{"type":"string","x-mcp-header":"Region"}`), "Region:[p]"},
		"integer":               {at(`{"x-mcp-header":"N","type":"integer"}`), "N:[p]"},
		"boolean":               {at(`{"type":"boolean","x-mcp-header":"a!#$%&'*+-.^_|~9"}`), "a!#$%&'*+-.^_|~9:[p]"},
		"nested":                {at(`{"type":"object","properties":{"q":{"type":"string","x-mcp-header":"Q"}}}`), "Q:[p q]"},
		"two":                   {`{"properties":{"b":{"type":"string","x-mcp-header":"B"},"a":{"type":"string","x-mcp-header":"A"}}}`, "B:[b] A:[a]"},
		"property of that name": {`{"properties":{"x-mcp-header":{"type":"string"}}}`, ""},
		"number":                {at(`{"type":"number","x-mcp-header":"N"}`), "bad"},
		"object":                {at(`{"type":"object","x-mcp-header":"N"}`), "bad"},
		"array":                 {at(`{"type":"array","x-mcp-header":"N"}`), "bad"},
		"null":                  {at(`{"type":"null","x-mcp-header":"N"}`), "bad"},
		"several types":         {at(`{"type":["string","null"],"x-mcp-header":"N"}`), "bad"},
		"no type":               {at(`{"x-mcp-header":"N"}`), "bad"},
		"empty":                 {at(`{"type":"string","x-mcp-header":""}`), "bad"},
		"no text":               {at(`{"type":"string","x-mcp-header":1}`), "bad"},
		"space":                 {at(`{"type":"string","x-mcp-header":"a b"}`), "bad"},
		"colon":                 {at(`{"type":"string","x-mcp-header":"a:b"}`), "bad"},
		"line end":              {at(`{"type":"string","x-mcp-header":"a\r\nb"}`), "bad"},
		"not ASCII":             {at(`{"type":"string","x-mcp-header":"ä"}`), "bad"},
		"twice":                 {`{"properties":{"a":{"type":"string","x-mcp-header":"H"},"b":{"type":"string","x-mcp-header":"h"}}}`, "bad"},
		"at the root":           {`{"type":"string","x-mcp-header":"H"}`, "bad"},
		"items":                 {at(`{"type":"array","items":{"type":"string","x-mcp-header":"H"}}`), "bad"},
		"below items":           {at(`{"items":{"properties":{"a":{"type":"string","x-mcp-header":"H"}}}}`), "bad"},
		"oneOf":                 {`{"oneOf":[{"properties":{"a":{"type":"string","x-mcp-header":"H"}}}]}`, "bad"},
		"allOf in a property":   {at(`{"allOf":[{"type":"string","x-mcp-header":"H"}]}`), "bad"},
		"then":                  {`{"then":{"properties":{"a":{"type":"string","x-mcp-header":"H"}}}}`, "bad"},
		"$defs":                 {`{"$defs":{"d":{"type":"string","x-mcp-header":"H"}},"properties":{"a":{"$ref":"#/$defs/d"}}}`, "bad"},
		"patternProperties":     {`{"patternProperties":{".":{"type":"string","x-mcp-header":"H"}}}`, "bad"},
		"escaped keyword":       {at(`{"type":"string","x-mcp-h\u0065ader":"Region"}`), "Region:[p]"},
		"deep, without any":     {strings.Repeat(`{"properties":{"p":`, 4_000) + `{}` + strings.Repeat(`}}`, 4_000), ""},
		"deep":                  {strings.Repeat(`{"properties":{"p":`, 64) + `{"type":"string","x-mcp-header":"D"}` + strings.Repeat(`}}`, 64), "D:" + fmt.Sprint(slices.Repeat([]string{"p"}, 64))},
		"too deep":              {strings.Repeat(`{"properties":{"p":`, 65) + `{"type":"string","x-mcp-header":"D"}` + strings.Repeat(`}}`, 65), "bad"},
		"far too deep":          {strings.Repeat(`{"anyOf":[`, 4_000) + `{"x-mcp-header":"D"}` + strings.Repeat(`]}`, 4_000), "bad"},
		// What is no schema cannot hold an annotation.
		"default":                      {at(`{"type":"object","default":{"x-mcp-header":1}}`), ""},
		"enum":                         {at(`{"enum":[{"x-mcp-header":1}]}`), ""},
		"property of that name, items": {at(`{"items":{"properties":{"x-mcp-header":{"type":"string"}}}}`), ""},
		"default below items":          {at(`{"items":{"default":{"x-mcp-header":1}}}`), ""},
		"a definition of that name":    {`{"$defs":{"x-mcp-header":{"type":"string"}}}`, ""},
	} {
		found, err := paramHeaders([]byte(c.schema))
		var got []string
		for _, h := range found {
			got = append(got, fmt.Sprintf("%s:%v", h.name, h.path))
		}
		if text := strings.Join(got, " "); err == nil && text != c.want || (err != nil) != (c.want == "bad") {
			t.Errorf("%s: got %q, %v, want %q", name, text, err, c.want)
		}
	}
}

func TestSetParamHeaders(t *testing.T) {
	headers := []paramHeader{{"A", []string{"a"}}, {"B", []string{"b", "c"}}}
	for arguments, want := range map[string]string{
		`{"a":"us-west1"}`:                  "us-west1",
		`{"a":""}`:                          "",
		`{"a":true}`:                        "true",
		`{"a":-7}`:                          "-7",
		`{"a":42.0}`:                        "42",
		`{"a":1e3}`:                         "1000",
		`{"a":9007199254740991}`:            "9007199254740991",
		`{"a":"\u4e16"}`:                    "=?base64?5LiW?=",
		`{"b":{"c":"x"}}`:                   "- x",
		`{"a":9007199254740992}`:            "-",
		`{"a":1e999}`:                       "-",
		`{"a":null,"b":null}`:               "-",
		`{"a":{"x":1},"b":[]}`:              "-",
		`{}`:                                "-",
		``:                                  "-",
		`{"a":"one","b":{"c":false,"d":1}}`: "one false",
	} {
		to := http.Header{}
		setParamHeaders(to, headers, []byte(arguments))
		got := "-"
		if v, ok := to["Mcp-Param-A"]; ok {
			got = v[0]
		}
		if v, ok := to["Mcp-Param-B"]; ok {
			got += " " + v[0]
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", arguments, got, want)
		}
	}
}

// TestHeaderValue holds the examples of the specification (streamable HTTP,
// "Value Encoding").
func TestHeaderValue(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "",
		"us-west1":             "us-west1",
		"a b\tc":               "a b\tc",
		"Hello, 世界":            "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":             "=?base64?IHBhZGRlZCA=?=",
		"line1\nline2":         "=?base64?bGluZTEKbGluZTI=?=",
		"=?base64?literal?=":   "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"=?base64?":            "=?base64?",
		"=?BASE64?literal?=":   "=?BASE64?literal?=",
		"\x7f":                 "=?base64?fw==?=",
		"\xff":                 "=?base64?/w==?=",
		"\t":                   "=?base64?CQ==?=",
		"file:///a/%20b?c=d#e": "file:///a/%20b?c=d#e",
	} {
		if got := headerValue(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// FuzzHeaders: whatever a server annotates and a client passes, what goes into
// the header is fit for one and says the same.
func FuzzHeaders(f *testing.F) {
	f.Add(`{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}`, `{"a":"=?base64?x?="}`, "x")
	f.Add(`{"properties":{"a":{"properties":{"b":{"type":"integer","x-mcp-header":"B"}}}}}`, `{"a":{"b":1.0}}`, "\r\n")
	f.Add(`{"items":[{"x-mcp-header":1}],"$defs":{"x":{}}}`, `[]`, " =?base64??= ")
	f.Fuzz(func(t *testing.T, schema, arguments, text string) {
		value := headerValue(text)
		if strings.ContainsFunc(value, func(r rune) bool { return r != '\t' && (r < 0x20 || r > 0x7e) }) || strings.TrimSpace(value) != value {
			t.Errorf("%q gives %q", text, value)
		}
		back := value
		if inner, ok := strings.CutPrefix(value, sentinelStart); ok && strings.HasSuffix(inner, sentinelEnd) {
			raw, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(inner, sentinelEnd))
			if err != nil {
				t.Fatalf("%q gives %q: %v", text, value, err)
			}
			back = string(raw)
		}
		if back != text {
			t.Errorf("%q came back as %q", text, back)
		}
		for _, j := range []string{schema, arguments} {
			if _, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":` + j + `}`)); err != nil {
				return // only what passed the reader comes this far
			}
		}
		found, err := paramHeaders([]byte(schema))
		if err != nil {
			return
		}
		names := map[string]bool{}
		for _, h := range found {
			if lower := strings.ToLower(h.name); names[lower] || h.name == "" || len(h.path) == 0 {
				t.Errorf("%s gives %+v", schema, found)
			} else {
				names[lower] = true
			}
		}
		to := http.Header{}
		setParamHeaders(to, found, []byte(arguments))
		if len(to) > len(found) {
			t.Errorf("%d headers of %d", len(to), len(found))
		}
	})
}
