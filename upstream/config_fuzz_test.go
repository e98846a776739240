package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzReadConfig: no text makes ReadConfig panic, an error tells the position,
// and what is accepted keeps the promises of Config and Spec.
func FuzzReadConfig(f *testing.F) {
	files, err := filepath.Glob("../testdata/config/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, seed := range []string{
		"", "{}", "[", "\xef\xbb\xbf{}", "\xff\xfe", "// x", "/*", `{"servers":{"a":{"command":"${A:-$${}"}}}`,
		`{"cache_ttl":-0,"max_message_size":"1 GiB","instructions":"","mcpServers":{"":{}}}`,
		`{"servers":{"a":{"url":"http://\u0000"},"\ud800":{"command":"~"},"\udc00":{"command":"x"}}}`,
	} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "c.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadConfig(path, true, envOf("HOME=/h", "A=1"))
		if err != nil {
			if !strings.HasPrefix(err.Error(), path+":") {
				t.Fatalf("error without position: %v", err)
			}
			return
		}
		if c.MaxNameLength < minNameLength || c.MaxMessageSize < minMessageSize || c.CacheTTL < 0 || c.InstructionsWait < 0 {
			t.Fatalf("limits: %+v", c)
		}
		names := map[string]bool{}
		for _, s := range c.Servers {
			if s.Name == "" || names[s.Name] {
				t.Fatalf("name %q is empty or not unique", s.Name)
			}
			names[s.Name] = true
			if s.ConnectTimeout <= 0 || s.ListTimeout <= 0 || s.CallTimeout < 0 {
				t.Fatalf("timeouts: %+v", s)
			}
			if s.Err == nil && (s.Transport == TransportStdio) != (s.Command != "" && s.URL == "") {
				t.Fatalf("transport: %+v", s)
			}
		}
	})
}
