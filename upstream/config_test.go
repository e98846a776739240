package upstream

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// envOf returns a getenv over NAME=value pairs and nothing else.
func envOf(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) { return lookupEnv(pairs, name) }
}

// readText is ReadConfig of a file c.json with the given text. Messages name
// the file without its folder.
func readText(t testing.TB, text string, getenv func(string) (string, bool)) (*Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("c.json", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return ReadConfig("c.json", true, getenv)
}

// hintOf returns the hint of err, or "".
func hintOf(err error) string {
	if h, ok := errors.AsType[*HintError](err); ok {
		return h.Hint
	}
	return ""
}

// warningTexts writes warnings with the file's base name alone.
func warningTexts(c *Config) []string {
	var texts []string
	for _, w := range c.Warnings {
		texts = append(texts, strings.TrimPrefix(w.String(), filepath.Dir(c.Path)+"/"))
	}
	return texts
}

func TestReadConfigOfClients(t *testing.T) {
	text := func(s string) *string { return &s }
	stdio := func(name, command string, args ...string) Spec {
		return Spec{
			Name: name, Command: command, Args: args, AutoEnable: true,
			ConnectTimeout: 30 * time.Second, ListTimeout: 10 * time.Second,
		}
	}
	remote := func(name string, transport Transport, url string) Spec {
		s := stdio(name, "")
		s.Transport, s.URL = transport, url
		return s
	}
	with := func(s Spec, change func(*Spec)) Spec { change(&s); return s }
	getenv := envOf("HOME=/home/ada", "SENTRY_TOKEN=s3", "API_KEY=k", "PGDATABASE=shop", "FIGMA_KEY=f", "EMPTY=")

	tests := []struct {
		file     string
		servers  []Spec // Err left out
		errs     map[string]string
		warnings []string
	}{
		{
			file: "claude_desktop.json",
			servers: []Spec{
				stdio("filesystem", "npx", "-y", "@modelcontextprotocol/server-filesystem", "/Users/ada/Desktop", "/Users/ada/Downloads"),
				with(stdio("github", "docker", "run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"),
					func(s *Spec) { s.Env = map[string]string{"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_0123456789abcdef"} }),
				stdio("sqlite", "uvx", "mcp-server-sqlite", "--db-path", "/Users/ada/test.db"),
			},
		},
		{
			file: "claude_code.json",
			servers: []Spec{
				with(stdio("context7", "npx", "-y", "@upstash/context7-mcp"), func(s *Spec) { s.Env = map[string]string{} }),
				with(remote("sentry", TransportStreamable, "https://mcp.sentry.dev/mcp"),
					func(s *Spec) { s.Headers = map[string]string{"Authorization": "Bearer s3"} }),
				remote("asana", TransportSSE, "https://mcp.asana.com/sse"),
				with(stdio("api", "/home/ada/bin/api-mcp", "--cache", "/tmp/cache"),
					func(s *Spec) { s.Env = map[string]string{"API_KEY": "k"} }),
			},
			warnings: []string{
				`claude_code.json:24:7: server "api": key "timeout" has no effect in coffer: set connect_timeout, list_timeout or call_timeout`,
			},
		},
		{
			file: "cursor.json",
			servers: []Spec{
				stdio("postgres", "npx", "-y", "@modelcontextprotocol/server-postgres", "postgresql://localhost/shop"),
				with(remote("figma", TransportHTTP, "http://127.0.0.1:3845/mcp"),
					func(s *Spec) { s.Headers = map[string]string{"X-Key": "f"} }),
				with(stdio("notes", "python3", "${workspaceFolder}/tools/notes.py", "--home", "${userHome}"),
					func(s *Spec) { s.Disabled = true }),
			},
			errs: map[string]string{
				"notes": `cursor.json:14:16: server "notes": args[0] has ${workspaceFolder}, which only an editor can fill in`,
			},
			warnings: []string{
				`cursor.json:6:7: server "postgres": key "envFile" has no effect in coffer: set its variables in env, or name them in inherit_env`,
			},
		},
		{
			file: "vscode.json",
			servers: []Spec{
				remote("github", TransportStreamable, "https://api.githubcopilot.com/mcp/"),
				with(stdio("perplexity", "npx", "-y", "server-perplexity-ask"), func(s *Spec) {
					s.Env = map[string]string{"PERPLEXITY_API_KEY": "${input:perplexity-key}", "LOG_LEVEL": "3"}
				}),
				with(stdio("playwright", "npx", "@playwright/mcp@latest"), func(s *Spec) { s.Cwd = "/home/ada/work" }),
			},
			errs: map[string]string{
				"perplexity": `vscode.json:23:27: server "perplexity": env.PERPLEXITY_API_KEY has ${input:perplexity-key}, which only an editor can fill in`,
			},
		},
		{
			file: "coffer.json",
			servers: []Spec{
				with(stdio("Dateien: Büro", "~/bin/files", "--root", "${HOME}", ""), func(s *Spec) {
					s.Cwd, s.Prefix, s.AutoEnable = "/home/ada/src", text("files"), false
					s.InheritEnv = []string{"SSH_AUTH_SOCK"}
					s.ConnectTimeout, s.ListTimeout, s.CallTimeout = 5*time.Second, 1500*time.Millisecond, 10*time.Minute
				}),
				with(remote("plain", TransportHTTP, "https://example.com/mcp"), func(s *Spec) {
					s.Prefix, s.Env = text(""), map[string]string{"HAS": "no effect"}
				}),
				with(stdio("open", "srv"), func(s *Spec) { s.InheritAll = true }),
			},
			warnings: []string{
				`coffer.json:23:7: server "plain": unknown key "colour"`,
				`coffer.json:24:7: server "plain": key "env" has no effect beside a url`,
				`coffer.json:28:3: unknown key "theme"`,
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			c, err := ReadConfig(filepath.Join("..", "testdata", "config", tt.file), true, getenv)
			if err != nil {
				t.Fatal(err)
			}
			errs := map[string]string{}
			for i, s := range c.Servers {
				if s.Err != nil {
					errs[s.Name] = strings.TrimPrefix(s.Err.Error(), filepath.Dir(c.Path)+"/")
					if hintOf(s.Err) == "" {
						t.Errorf("server %q: no hint with %v", s.Name, s.Err)
					}
					c.Servers[i].Err = nil
				}
			}
			if len(c.Servers) != len(tt.servers) {
				t.Fatalf("got %d servers, want %d", len(c.Servers), len(tt.servers))
			}
			for i, want := range tt.servers {
				if got := c.Servers[i]; !reflect.DeepEqual(got, want) {
					t.Errorf("server %d:\n got %+v\nwant %+v", i, got, want)
				}
			}
			if !maps.Equal(errs, tt.errs) {
				t.Errorf("errors of servers:\n got %q\nwant %q", errs, tt.errs)
			}
			if got := warningTexts(c); !slices.Equal(got, tt.warnings) {
				t.Errorf("warnings:\n got %q\nwant %q", got, tt.warnings)
			}
		})
	}
}

func TestReadConfigTopLevel(t *testing.T) {
	c, err := ReadConfig(filepath.Join("..", "testdata", "config", "coffer.json"), true, envOf())
	if err != nil {
		t.Fatal(err)
	}
	if c.CacheTTL != 2*time.Minute || c.MaxNameLength != 60 || c.MaxMessageSize != 16<<20 ||
		c.InstructionsWait != 250*time.Millisecond || c.Instructions == nil || *c.Instructions != "Use the file tools first." {
		t.Errorf("got %+v", c)
	}
	c, err = readText(t, `{"mcpServers": {}, "cache_ttl": null}`, envOf())
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Path: "c.json", CacheTTL: time.Minute, MaxNameLength: 64, MaxMessageSize: 64 << 20,
		InstructionsWait: 500 * time.Millisecond,
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("defaults: got %+v, want %+v", c, want)
	}
}

func TestReadConfigMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.json")
	c, err := ReadConfig(path, false, envOf())
	if err != nil || !c.Missing || len(c.Servers) != 0 || c.CacheTTL != time.Minute {
		t.Errorf("default place: got %+v, %v", c, err)
	}
	if _, err = ReadConfig(path, true, envOf()); !errors.Is(err, os.ErrNotExist) || hintOf(err) == "" {
		t.Errorf("named file: got %v, hint %q", err, hintOf(err))
	}
	if _, err = ReadConfig(t.TempDir(), false, envOf()); err == nil {
		t.Error("a folder was read")
	}
}

// Accepted, with what is left to say in the warnings.
func TestReadConfigTolerates(t *testing.T) {
	tests := []struct{ name, text, warning string }{
		{"byte order mark", "\xef\xbb\xbf" + `{"mcpServers":{"a":{"command":"x"}}}`, ""},
		{"CRLF and a comment at the end", "{\"mcpServers\":{\"a\":{\"command\":\"x\"}}}\r\n// end", ""},
		{"no servers object", `{}`, "c.json:1:1: config has neither mcpServers nor servers: no servers"},
		{"null in place of an object", `{"mcpServers": null}`, ""},
		{"keys of clients", `{"$schema":"x","inputs":[],"servers":{"a":{"command":"x","alwaysAllow":["t"],"autoApprove":[],"gallery":true,"version":"1"}}}`, ""},
		{"empty keys of the other kind", `{"servers":{"a":{"command":"x","url":"","headers":{},"type":""}}}`, ""},
		{"null keys", `{"servers":{"a":{"command":"x","url":null,"args":null,"env":null,"disabled":null}}}`, ""},
		{"headers of a command", `{"servers":{"a":{"command":"x","headers":{"A":"b"}}}}`, `c.json:1:32: server "a": key "headers" has no effect beside a command`},
		{"settings of VS Code", `{"mcp":{"servers":{}},"servers":{}}`, `c.json:1:2: key "mcp" has no effect in coffer: move its servers object to the top level`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := readText(t, tt.text, envOf())
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(warningTexts(c), "\n"); got != tt.warning {
				t.Errorf("warnings: got %q, want %q", got, tt.warning)
			}
			for _, s := range c.Servers {
				if s.Err != nil {
					t.Errorf("server %q: %v", s.Name, s.Err)
				}
			}
		})
	}
}

func TestReadConfigErrors(t *testing.T) {
	const fs = `{"mcpServers": {` + "\n  " + `"fs": {"command": "x", ` // 18 columns before what follows
	tests := []struct{ name, text, want string }{
		{"empty file", "", "c.json:1:1: not valid JSON: parsing value: unexpected EOF"},
		{"cut short", "{\n  \"mcpServers\": {\n\n", "c.json:2:18: not valid JSON: parsing value: unexpected EOF"},
		{"missing comma", "{\"mcpServers\": {\"a\": {\"command\": \"x\"}\n\"b\": 1}}", "c.json:2:1: not valid JSON: invalid character '\"' after object value (expecting ',' or '}')"},
		{"single quotes", "{'mcpServers': {}}", "c.json:1:2: not valid JSON: invalid character '\\'' at start of value"},
		{"backslash", "{\"servers\": {\"ü\": {\"command\": \"secret C:\\Users\"}}}", "c.json:1:42: not valid JSON: invalid character 'U' in string escape code"},
		{"bad word", "{\"servers\": True}", "c.json:1:13: not valid JSON: invalid character 'T' looking for beginning of value"},
		{"two values", "{} {}", "c.json:1:4: not valid JSON: invalid character '{' after top-level value"},
		{"not UTF-8", "{\n\"a\xff\": 1}", "c.json:2:3: text is not valid UTF-8"},
		{"UTF-16", "\xff\xfe{\x00}\x00", "c.json:1:1: text is UTF-16"},
		{"nested without end", strings.Repeat("[", 1<<20), "c.json:1:10001: nested deeper than 10000"},
		{"nested without end, behind decoys", `{"a\"[": /*"*/ "]]", //"` + "\n" + `"b": ` + strings.Repeat("[", 1<<20), "c.json:2:10005: nested deeper than 10000"},
		{"top level is an array", "[]", "c.json:1:1: config is an array, not an object"},
		{"both objects", "{\"servers\": {},\n\"mcpServers\": {}}", "c.json:2:1: config has both servers and mcpServers"},
		{"both objects, one null", "{\"servers\": null, \"mcpServers\": {}}", "c.json:1:19: config has both servers and mcpServers"},
		{"servers are an array", `{"mcpServers": []}`, "c.json:1:16: mcpServers is an array, not an object"},
		{"object given twice", `{"servers": {}, "servers": {}}`, "c.json:1:17: servers is given twice, first at c.json:1:2"},

		{"server given twice", "{\"servers\": {\n\"a\": {\"command\": \"x\"},\n\"\\u0061\": {}}}", `c.json:3:1: server "a" is given twice, first at c.json:2:1`},
		{"server is null", `{"servers": {"a": null}}`, `c.json:1:19: server "a" is null, not an object`},
		{"server without name", `{"servers": {"": {"command": "x"}}}`, "c.json:1:14: a server's name is empty"},
		{"neither command nor url", "{\"servers\": {\n  \"a\": {\"args\": []}}}", `c.json:2:3: server "a" has neither command nor url`},
		{"empty command", "{\"servers\": {\n  \"a\": {\"command\": \"\"}}}", `c.json:2:3: server "a" has neither command nor url`},
		{"both command and url", fs + `"url": "http://x"}}}`, `c.json:2:3: server "fs" has both command and url`},
		{"unknown type", `{"servers": {"a": {"url": "http://x", "type": "ws"}}}`, `c.json:1:47: server "a": type "ws" is unknown`},
		{"http with command", fs + `"type": "http"}}}`, `c.json:2:34: server "fs": type "http" does not go with command`},
		{"stdio with url", `{"servers": {"a": {"url": "http://x", "type": "stdio"}}}`, `c.json:1:47: server "a": type "stdio" does not go with url`},

		{"command is a number", `{"servers": {"a": {"command": 1}}}`, `c.json:1:31: server "a": command is a number, not a string`},
		{"args are a text", fs + `"args": "-y"}}}`, `c.json:2:34: server "fs": args is a string, not an array`},
		{"argument is a number", fs + `"args": ["a", 1]}}}`, `c.json:2:40: server "fs": args[1] is a number, not a string`},
		{"env is a list", fs + `"env": ["A=b"]}}}`, `c.json:2:33: server "fs": env is an array, not an object`},
		{"env value is true", fs + `"env": {"A": true}}}}`, `c.json:2:39: server "fs": env.A is true, not a string`},
		{"env name holds =", fs + `"env": {"A=": "b"}}}}`, `c.json:2:34: server "fs": env has a name that is empty or holds = or NUL`},
		{"env given twice", fs + `"env": {"A": "", "A": ""}}}}`, `c.json:2:43: server "fs": env.A is given twice, first at c.json:2:34`},
		{"disabled is a text", fs + `"disabled": "true"}}}`, `c.json:2:38: server "fs": disabled is a string, not true or false`},
		{"inherit_env is a text", fs + `"inherit_env": "HOME"}}}`, `c.json:2:41: server "fs": inherit_env is a string, not an array of names or true`},

		{"timeout without unit", fs + `"connect_timeout": "30"}}}`, `c.json:2:45: server "fs": connect_timeout is not a duration`},
		{"timeout is true", fs + `"list_timeout": true}}}`, `c.json:2:42: server "fs": list_timeout is true, not a duration`},
		{"timeout is negative", fs + `"call_timeout": -1}}}`, `c.json:2:42: server "fs": call_timeout is negative`},
		{"timeout is zero", fs + `"list_timeout": 0}}}`, `c.json:2:42: server "fs": list_timeout is less than 1ms`},
		{"timeout is endless", fs + `"call_timeout": 1e999}}}`, `c.json:2:42: server "fs": call_timeout is longer than 2562047h47m16.854775807s`},
		{"negative text", `{"cache_ttl": "-1s"}`, "c.json:1:15: cache_ttl is negative"},
		{"endlessly negative", `{"cache_ttl": -1e999}`, "c.json:1:15: cache_ttl is negative"},
		{"name length too small", `{"max_name_length": 15}`, "c.json:1:21: max_name_length is less than 16"},
		{"name length is a fraction", `{"max_name_length": 64.5}`, "c.json:1:21: max_name_length is not a whole number, or too large"},
		{"size too small", `{"max_message_size": "1023 B"}`, "c.json:1:22: max_message_size is less than 1024"},
		{"size without sense", `{"max_message_size": "64 MB"}`, "c.json:1:22: max_message_size is not a size"},
		{"size too large", `{"max_message_size": "9223372036854775807 GiB"}`, "c.json:1:22: max_message_size is not a size"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readText(t, tt.text, envOf())
			if err == nil || err.Error() != tt.want {
				t.Errorf("\n got %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestReadConfigHints(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"backslash", `{"servers": {"a": {"command": "C:\Users"}}}`, `write a backslash in a string as \\`},
		{"Windsurf's url", `{"servers": {"a": {"serverUrl": "http://x"}}}`, "rename serverUrl to url"},
		{"duration", `{"cache_ttl": "soon"}`, `write it like "30s" or "1m30s", or as a number of seconds`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readText(t, tt.text, envOf())
			if got := hintOf(err); got != tt.want {
				t.Errorf("got %q with %v, want %q", got, err, tt.want)
			}
		})
	}
}

// A server that cannot be used where coffer runs leaves the others alone, and
// its error shows nothing that may be secret.
func TestReadConfigErrorOfOneServer(t *testing.T) {
	tests := []struct{ name, server, want string }{
		{"missing variable", `"command": "x", "env": {"K": "secret ${KEY}"}`, `c.json:1:49: server "a": env.K needs the variable KEY, which is not set`},
		{"first of two", `"command": "${ONE}", "args": ["${TWO}"]`, `c.json:1:31: server "a": command needs the variable ONE, which is not set`},
		{"empty command", `"command": "${ONE:-}"`, `c.json:1:31: server "a": command is empty once its variables are filled in`},
		{"no scheme", `"url": "example.com/secret"`, `c.json:1:27: server "a": url is not the address of a server`},
		{"no host", `"url": "https://"`, `c.json:1:27: server "a": url is not the address of a server`},
		{"other scheme", `"url": "ws://example.com"`, `c.json:1:27: server "a": url is not the address of a server`},
		{"port is a word", `"url": "http://x:secret/"`, `c.json:1:27: server "a": url is not the address of a server`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := readText(t, `{"servers":{"a": { `+tt.server+`}, "b": {"command": "y"}}}`, envOf())
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Servers[0].Err; got == nil || got.Error() != tt.want || hintOf(got) == "" {
				t.Errorf("\n got %v, hint %q\nwant %s", got, hintOf(got), tt.want)
			}
			if c.Servers[1].Err != nil {
				t.Errorf("the other server: %v", c.Servers[1].Err)
			}
		})
	}
}
