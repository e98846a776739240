package upstream

import (
	"encoding/json"
	"strings"
	"testing"
)

// edited returns text after change, which gets coffer's servers.
func edited(t *testing.T, text string, change func(*Servers)) string {
	t.Helper()
	d, err := ParseDocument("c.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(d.Text()); got != text && strings.TrimSpace(text) != "" {
		t.Fatalf("unchanged, it is %q, want %q", got, text)
	}
	s, err := d.ConfigServers()
	if err != nil {
		t.Fatal(err)
	}
	change(s)
	got := string(d.Text())
	if _, err := ParseDocument("c.json", []byte(got)); err != nil {
		t.Fatalf("%v in %s", err, got)
	}
	return got
}

func TestDocumentAdd(t *testing.T) {
	entry := Entry{Name: "new", Members: []Member{
		{"command", JSON("npx")}, {"args", JSON([]string{"-y", "a<b>"})}, {"env", JSON(map[string]string{"K": "${V}"})},
	}}
	const lines = "{\n      \"command\": \"npx\",\n      \"args\": [\"-y\", \"a<b>\"],\n      \"env\": {\n        \"K\": \"${V}\"\n      }\n    }"
	const flat = `{"command": "npx", "args": ["-y", "a<b>"], "env": {"K": "${V}"}}`
	for _, test := range []struct{ name, before, after string }{
		{"nothing yet", "", "{\n  \"mcpServers\": {\n    \"new\": " + lines + "\n  }\n}\n"},
		{"an empty object", "{}", "{\n  \"mcpServers\": {\n    \"new\": " + lines + "\n  }\n}"},
		{"no servers object", "{\n  \"theme\": \"dark\"\n}\n", "{\n  \"theme\": \"dark\",\n  \"mcpServers\": {\n    \"new\": " + lines + "\n  }\n}\n"},
		{"null", "{\"mcpServers\": null}", "{\"mcpServers\": {\n  \"new\": " + strings.ReplaceAll(lines, "\n    ", "\n  ") + "\n}}"},
		{"behind another", "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"} // one\n    // two\n  },\n  // three\n  \"x\": 1\n}\n",
			"{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}, // one\n    // two\n    \"new\": " + lines + "\n  },\n  // three\n  \"x\": 1\n}\n"},
		{"a trailing comma", "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}, // one\n  },\n}\n",
			"{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}, // one\n    \"new\": " + lines + ",\n  },\n}\n"},
		{"one line", `{"mcpServers": {"a": {"command": "x"}}}`, `{"mcpServers": {"a": {"command": "x"}, "new": ` + flat + `}}`},
		{"one line with a comment at its end", "{\"mcpServers\": {\"a\": {\"command\": \"x\"} // one\n}}",
			"{\"mcpServers\": {\"a\": {\"command\": \"x\"}, // one\n  \"new\": " + strings.ReplaceAll(lines, "\n    ", "\n  ") + "\n}}"},
		{"VS Code's", "{\n\t\"servers\": {\n\t\t\"a\": {}\n\t},\n\t\"inputs\": []\n}",
			"{\n\t\"servers\": {\n\t\t\"a\": {},\n\t\t\"new\": " + strings.ReplaceAll(lines, "  ", "\t") + "\n\t},\n\t\"inputs\": []\n}"},
		{"Windows", "\ufeff{\r\n  \"mcpServers\": {\r\n    // none\r\n  }\r\n}\r\n",
			"\ufeff{\r\n  \"mcpServers\": {\r\n    // none\r\n    \"new\": " + strings.ReplaceAll(lines, "\n", "\r\n") + "\r\n  }\r\n}\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := edited(t, test.before, func(s *Servers) { s.Add(entry) })
			if got != test.after {
				t.Errorf("got\n%s\nwant\n%s", got, test.after)
			}
		})
	}
}

func TestDocumentRemove(t *testing.T) {
	const three = `{
  // top
  "mcpServers": { // the servers
    // of a
    /* and
       more */
    "a": {"command": "a"}, // at a

    // a section

    // of b
    "b": {"command": "b"}, // at b
    "c": {"command": "c"} // at c
    // end
  }
}
`
	for _, test := range []struct{ name, before, remove, after string }{
		{"the first", three, "a", "{\n  // top\n  \"mcpServers\": { // the servers\n\n    // a section\n\n    // of b\n    \"b\": {\"command\": \"b\"}, // at b\n    \"c\": {\"command\": \"c\"} // at c\n    // end\n  }\n}\n"},
		{"one between", three, "b", "{\n  // top\n  \"mcpServers\": { // the servers\n    // of a\n    /* and\n       more */\n    \"a\": {\"command\": \"a\"}, // at a\n\n    // a section\n    \"c\": {\"command\": \"c\"} // at c\n    // end\n  }\n}\n"},
		{"the last", three, "c", strings.Replace(strings.Replace(three, "    \"c\": {\"command\": \"c\"} // at c\n", "", 1), "\"b\"}, //", "\"b\"} //", 1)},
		{"the only one", "{\"mcpServers\": {\"a\": {}}}", "a", "{\"mcpServers\": {}}"},
		{"the only one with a comment", "{\"mcpServers\": {\n  // x\n\n  // a\n  \"a\": {},\n}}", "a", "{\"mcpServers\": {\n  // x\n}}"},
		{"the first of a line", `{"mcpServers": {"a": {}, "b": {}}}`, "a", `{"mcpServers": {"b": {}}}`},
		{"the last of a line", `{"mcpServers": {"a": {}, "b": {}}}`, "b", `{"mcpServers": {"a": {}}}`},
		{"the last with a trailing comma", "{\"mcpServers\": {\n  \"a\": {},\n  \"b\": {},\n}}", "b", "{\"mcpServers\": {\n  \"a\": {},\n}}"},
		{"the last of many lines", "{\"mcpServers\": {\r\n  \"a\": {}, // x\r\n  \"b\": {}\r\n}}", "b", "{\"mcpServers\": {\r\n  \"a\": {} // x\r\n}}"},
		{"a comment before a brace", "{\"mcpServers\": {\n  \"a\": {}, // x\n  \"b\": {} }}", "b", "{\"mcpServers\": {\n  \"a\": {} // x\n }}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := edited(t, test.before, func(s *Servers) {
				if !s.Remove(test.remove) || s.Remove("another") {
					t.Error("Remove does not say what was there")
				}
			})
			if got != test.after {
				t.Errorf("got\n%s\nwant\n%s", got, test.after)
			}
		})
	}
}

func TestDocumentSet(t *testing.T) {
	yes := json.RawMessage("true")
	for _, test := range []struct{ name, before, after string }{
		{"new", "{\"mcpServers\": {\n  \"a\": {\n    \"command\": \"x\" // y\n  }\n}}", "{\"mcpServers\": {\n  \"a\": {\n    \"command\": \"x\", // y\n    \"disabled\": true\n  }\n}}"},
		{"on one line", `{"mcpServers": {"a": {"command": "x"}}}`, `{"mcpServers": {"a": {"command": "x", "disabled": true}}}`},
		{"there", `{"mcpServers": {"a": {"disabled": /* for now */ false, "command": "x"}}}`, `{"mcpServers": {"a": {"disabled": /* for now */ true, "command": "x"}}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := edited(t, test.before, func(s *Servers) {
				if !s.Set("a", "disabled", yes) || s.Set("b", "disabled", yes) {
					t.Error("Set does not say what was there")
				}
			})
			if got != test.after {
				t.Errorf("got\n%s\nwant\n%s", got, test.after)
			}
		})
	}
}

func TestDocumentErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                                  "c.json:1:2: not valid JSON",
		`[]`:                                 "c.json:1:1: config is an array, not an object",
		`{"a": 1, "a": 2}`:                   "c.json:1:10: a is given twice",
		`{"mcpServers": []}`:                 "c.json:1:16: mcpServers is an array, not an object",
		`{"mcpServers": {"a": 1}}`:           `c.json:1:22: server "a" is a number, not an object`,
		`{"mcpServers": {"a": {}, "a": {}}}`: `c.json:1:26: server "a" is given twice`,
	} {
		d, err := ParseDocument("c.json", []byte(text))
		if err == nil {
			_, err = d.ConfigServers()
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
}

// FuzzDocument: an edit of any file that can be parsed gives one that can be
// parsed, with the servers that it should have.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{
		`{"mcpServers": {"a": {"command": "x"}}}`, "{\n// x\n\"servers\": {\"b\": {}, // y\n},\n}", "{\"mcpServers\":{\"a\":{}/**/,/**/}}",
		"\ufeff{}", "{\"mcpServers\": null /* x */}", "{\"servers\": {\"a\":{} //\n,\"b\":{}}}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDocument("c.json", []byte(text))
		if err != nil {
			return
		}
		s, err := d.ConfigServers()
		if err != nil {
			return
		}
		before := s.All()
		const name = "a name that nobody takes"
		if _, taken := s.Find(name); taken {
			return
		}
		s.Add(Entry{Name: name, Members: []Member{{"command", JSON("x")}}})
		s.Set(name, "disabled", JSON(true))
		for i := range before {
			if i%2 == 0 {
				s.Remove(before[i].Name)
			}
		}
		again, err := ParseDocument("c.json", d.Text())
		if err != nil {
			t.Fatalf("%v in %q", err, d.Text())
		}
		s, err = again.ConfigServers()
		if err != nil {
			t.Fatal(err)
		}
		all := s.All()
		if len(all) != len(before)/2+1 {
			t.Fatalf("%d servers from %d in %q", len(all), len(before), d.Text())
		}
		for i, e := range all[:len(all)-1] {
			if string(Object(e.Members)) != string(Object(before[2*i+1].Members)) || e.Name != before[2*i+1].Name {
				t.Fatalf("%q became %q", before[2*i+1], e)
			}
		}
		if added := all[len(all)-1]; string(Object(added.Members)) != `{"command":"x","disabled":true}` {
			t.Fatalf("added %q", Object(added.Members))
		}
	})
}
