package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coffer/upstream"
)

// systemIn is a system whose home, and all else, is in root.
func systemIn(root, name string, env map[string]string) System {
	all := map[string]string{"HOME": root, "USERPROFILE": root, "APPDATA": root + "/Roaming", "LOCALAPPDATA": root + "/Local"}
	if name != "windows" {
		all = map[string]string{"HOME": root}
	}
	for key, value := range env {
		all[key] = value
	}
	return System{OS: name, Getenv: func(key string) string { return all[key] }}
}

// write makes a file with the folders that it needs.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFiles(t *testing.T) {
	root := t.TempDir()
	tests := []struct {
		client, system string
		env            map[string]string
		want           string
	}{
		{"claude-desktop", "linux", nil, ".config/Claude/claude_desktop_config.json"},
		{"claude-desktop", "linux", map[string]string{"XDG_CONFIG_HOME": root + "/c"}, "c/Claude/claude_desktop_config.json"},
		{"claude-desktop", "darwin", nil, "Library/Application Support/Claude/claude_desktop_config.json"},
		{"claude-desktop", "windows", nil, "Roaming/Claude/claude_desktop_config.json"},
		{"claude-desktop", "windows", map[string]string{"APPDATA": ""}, "AppData/Roaming/Claude/claude_desktop_config.json"},
		{"claude-code", "linux", nil, ".claude.json"},
		{"claude-code", "windows", nil, ".claude.json"},
		{"claude-code", "darwin", map[string]string{"CLAUDE_CONFIG_DIR": root + "/cc"}, "cc/.claude.json"},
		{"cursor", "darwin", nil, ".cursor/mcp.json"},
		{"vscode", "linux", nil, ".config/Code/User/mcp.json"},
		{"vscode", "darwin", nil, "Library/Application Support/Code/User/mcp.json"},
		{"vscode", "windows", nil, "Roaming/Code/User/mcp.json"},
		{"windsurf", "windows", nil, ".codeium/windsurf/mcp_config.json"},
		{"codex", "linux", nil, ".codex/config.toml"},
		{"codex", "linux", map[string]string{"CODEX_HOME": root + "/cx"}, "cx/config.toml"},
		{"gemini", "windows", nil, ".gemini/settings.json"},
	}
	for _, test := range tests {
		files := systemIn(root, test.system, test.env).Files(Find(test.client))
		if got, want := files[0].Path, filepath.Join(root, test.want); got != want || files[0].Scope != User {
			t.Errorf("%s on %s: %s of the %s, want %s", test.client, test.system, got, files[0].Scope, want)
		}
	}
	if files := systemIn("", "linux", nil).Files(Find("cursor")); files != nil {
		t.Errorf("without a home folder: %v", files)
	}
}

// TestPackagedClaude: on Windows the packaged program's own folder comes first.
func TestPackagedClaude(t *testing.T) {
	root := t.TempDir()
	system := systemIn(root, "windows", nil)
	packaged := filepath.Join(root, "Local", "Packages", "Claude_pzs8sxrjxfjjc", "LocalCache", "Roaming", "Claude", "claude_desktop_config.json")
	write(t, packaged, "{}")
	if got := system.Files(Find("claude-desktop"))[0].Path; got != packaged {
		t.Errorf("got %s, want %s", got, packaged)
	}
	newest := filepath.Join(root, "Local", "Claude-Data", "claude_pzs8sxrjxfjjc", "claude_desktop_config.json")
	write(t, newest, "{}")
	if got := system.Files(Find("claude-desktop"))[0].Path; got != newest {
		t.Errorf("got %s, want %s", got, newest)
	}
}

// TestProject: the project's file is found from a folder in it, and not beyond the
// repository.
func TestProject(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "outer", ".mcp.json"), "{}")
	write(t, filepath.Join(root, "outer", "repo", ".git"), "")
	write(t, filepath.Join(root, "outer", "repo", "in", "x"), "")
	write(t, filepath.Join(root, "outer", "in", "x"), "")
	for dir, want := range map[string]string{"outer/in": filepath.Join(root, "outer", ".mcp.json"), "outer/repo/in": "", "": ""} {
		system := systemIn(root, "linux", nil)
		system.Dir = filepath.Join(root, dir)
		got := ""
		for _, f := range system.Files(Find("claude-code")) {
			if f.Scope == Project {
				got = f.Path
			}
		}
		if got != want {
			t.Errorf("in %q: %q, want %q", dir, got, want)
		}
	}
}

// tomlNames are the names of the servers in text, or the error.
func tomlNames(text []byte) string {
	f, err := parseTOML("c.toml", text)
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, e := range f.servers {
		names = append(names, e.Name)
	}
	return strings.Join(names, " ")
}

const codexText = `# my config
model = "gpt-5"

# of b
[mcp_servers.b] # here
command = "b"
  # inside b
args = [
  "x", # why
]

[mcp_servers.b.env]
KEY = "v"

[other]
mcp_servers = 1

# of a
[mcp_servers."a x"]
url = "https://a"
`

func TestTOML(t *testing.T) {
	file := File{Client: Find("codex"), Path: "config.toml"}
	if got := tomlNames([]byte(codexText)); got != "b a x" {
		t.Errorf("servers %q", got)
	}
	entry := file.CofferEntry("coffer", `C:\Users\"ada"\coffer.exe`, []string{"serve"})
	const table = "\n[mcp_servers.coffer]\ncommand = \"C:\\\\Users\\\\\\\"ada\\\"\\\\coffer.exe\"\nargs = [\"serve\"]\n"
	for _, test := range []struct{ name, before, want string }{
		{"behind others", codexText, codexText + table},
		{"a missing line end", "a = 1", "a = 1\n" + table},
		{"an empty file", "", table[1:]},
		{"Windows", "a = 1\r\n", "a = 1\r\n" + strings.ReplaceAll(table, "\n", "\r\n")},
		{"a head of its own", "[mcp_servers]\na = { command = \"x\" }\n", "[mcp_servers]\na = { command = \"x\" }\n" + table},
	} {
		got, err := file.Add([]byte(test.before), entry)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: got %q (%v), want %q", test.name, got, err, test.want)
			continue
		}
		if back, err := file.Remove(got, "coffer"); err != nil || strings.TrimRight(string(back), "\r\n") != strings.TrimRight(test.before, "\r\n") {
			t.Errorf("%s: and back it is %q (%v)", test.name, back, err)
		}
	}
	for _, refused := range []string{"mcp_servers = { a = { command = \"x\" } }\n", "[[mcp_servers]]\nx = 1\n", "x = ", "mcp_servers.coffer.command = 1"} {
		if got, err := file.Add([]byte(refused), entry); err == nil {
			t.Errorf("%q was not refused: %q", refused, got)
		}
	}
}

func TestTOMLRemove(t *testing.T) {
	file := File{Client: Find("codex"), Path: "config.toml"}
	for _, test := range []struct{ name, before, remove, want string }{
		{"with its tables", codexText, "b", strings.Replace(codexText, codexText[strings.Index(codexText, "# of b"):strings.Index(codexText, "[other]")], "", 1)},
		{"the last", codexText, "a x", codexText[:strings.Index(codexText, "\n# of a")]},
		{"a line", "[mcp_servers]\n# of a\na = { command = \"x\" }\nb = { command = \"y\" } # b\n", "a", "[mcp_servers]\nb = { command = \"y\" } # b\n"},
		{"dotted keys", "mcp_servers.a.command = \"x\"\nmcp_servers.a.args = [\n]\nz = 1\n", "a", "z = 1\n"},
	} {
		got, err := file.Remove([]byte(test.before), test.remove)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: got\n%s(%v), want\n%s", test.name, got, err, test.want)
		}
	}
	if got, err := file.Remove([]byte("mcp_servers = { a = { command = \"x\" } }\n"), "a"); err == nil {
		t.Errorf("an inline table was not refused: %q", got)
	}
}

// FuzzTOML: an edit of any file gives one that means what it should, or is refused.
func FuzzTOML(f *testing.F) {
	f.Add(codexText)
	f.Add("[mcp_servers]\na = { command = \"x\" }\n[mcp_servers.b]\n")
	f.Add("mcp_servers.a.command = 'x'\n\"mcp_servers\".\"b\".x = 1\n")
	file := File{Client: Find("codex"), Path: "c.toml"}
	entry := file.CofferEntry("a name that nobody takes", "x", []string{"serve"})
	f.Fuzz(func(t *testing.T, text string) {
		before, err := parseTOML("c.toml", []byte(text))
		if err != nil {
			return
		}
		if added, err := file.Add([]byte(text), entry); err == nil && !strings.HasPrefix(string(added), text) {
			t.Errorf("%q was changed: %q", text, added)
		}
		for _, e := range before.servers {
			left, err := file.Remove([]byte(text), e.Name)
			if err != nil {
				continue
			}
			names := strings.Fields(tomlNames(left))
			if slices.Contains(names, e.Name) && !strings.Contains(e.Name, " ") {
				t.Errorf("%q is still in %q", e.Name, left)
			}
		}
	})
}

func TestSame(t *testing.T) {
	entry := func(text string) upstream.Entry {
		f := File{Client: Find("claude-code"), Path: "x.json", at: mcpServers}
		all, err := f.Servers(fmt.Appendf(nil, `{"mcpServers": {"x": %s}}`, text))
		if err != nil {
			t.Fatal(err)
		}
		return all[0].Entry
	}
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{`{"command": "x"}`, `{"type": "stdio", "command": "x", "args": [], "env": {}}`, true},
		{`{"command": "x", "args": ["a"]}`, `{"command": "x", "args": ["b"]}`, false},
		{`{"command": "x", "env": {"A": "1"}}`, `{"command": "x", "env": {"A": 1, "B": null}}`, true},
		{`{"command": "x", "env": {"A": "1"}}`, `{"command": "x", "env": {"A": "2"}}`, false},
		{`{"command": "x", "env": {"A": "1"}}`, `{"command": "x", "env": {"A": "${A}"}}`, true},
		{`{"command": "x", "env": {"A": "1"}}`, `{"command": "x"}`, false},
		{`{"url": "https://x"}`, `{"type": "http", "url": "https://x"}`, true},
		{`{"url": "https://x", "headers": {"K": "a"}}`, `{"url": "https://x", "headers": {"k": "a"}}`, true},
		{`{"url": "https://x"}`, `{"url": "https://y"}`, false},
		{`{"command": "x", "cwd": "/a"}`, `{"command": "x", "cwd": "/b"}`, false},
	} {
		if got := Same(entry(test.a), entry(test.b)); got != test.want {
			t.Errorf("Same(%s, %s) = %v", test.a, test.b, got)
		}
	}
	for text, want := range map[string]bool{
		`{"command": "/usr/bin/coffer", "args": ["serve"]}`:                    true,
		`{"command": "C:\\x\\Coffer.exe", "args": ["--config", "x", "serve"]}`: true,
		`{"command": "coffer", "args": ["demo-server"]}`:                       false,
		`{"command": "/coffer/node", "args": ["serve"]}`:                       false,
	} {
		if got := IsCoffer(entry(text)); got != want {
			t.Errorf("IsCoffer(%s) = %v", text, got)
		}
	}
}
