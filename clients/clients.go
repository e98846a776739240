// Package clients knows the MCP clients: where each keeps its servers on each
// system, in which form, and what its words mean in coffer's own.
//
// A File is one place of a client. Read gives its servers as they stand there and
// as coffer would have them; Add and Remove change its text and nothing around
// what they change, or refuse.
package clients

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Client is one MCP client.
type Client struct {
	// Name is the word for it on the command line, Title its own name.
	Name, Title string

	// files lists where it keeps servers, the user's own place first.
	files func(System) []File
	// stdioType is what its entries of commands have as type, "" for none.
	stdioType string
	words     vocabulary
}

// All are the clients that coffer knows, in the order that they are shown in.
var All = []*Client{
	{Name: "claude-desktop", Title: "Claude Desktop", files: claudeDesktop, words: vocabulary{literal: true}},
	{Name: "claude-code", Title: "Claude Code", files: claudeCode, stdioType: "stdio", words: vocabulary{timeoutMS: true}},
	{Name: "cursor", Title: "Cursor", files: cursor, words: vocabulary{editor: true}},
	{Name: "vscode", Title: "VS Code", files: vscode, stdioType: "stdio", words: vocabulary{editor: true}},
	{Name: "windsurf", Title: "Windsurf", files: windsurf},
	{Name: "codex", Title: "Codex", files: codex, words: vocabulary{literal: true, codex: true}},
	{Name: "gemini", Title: "Gemini CLI", files: gemini, words: vocabulary{dollar: true, timeoutMS: true}},
}

// Find returns the client with that name, or nil.
func Find(name string) *Client {
	for _, c := range All {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// System is what the places of files depend on.
type System struct {
	// OS is the system as runtime.GOOS has it.
	OS string
	// Getenv looks a variable up.
	Getenv func(string) string
	// Dir is the folder whose project is looked at.
	Dir string
}

// Files lists the places where c may keep servers on s, whether they are there or
// not: its user's own first, then those of the project. It is empty if s does not
// say where the home folder is.
func (s System) Files(c *Client) []File {
	if s.home() == "" {
		return nil
	}
	files := c.files(s)
	for i := range files {
		files[i].Client, files[i].os = c, s.OS
	}
	return files
}

// home is the user's own folder.
func (s System) home() string {
	if s.OS == "windows" {
		return s.Getenv("USERPROFILE")
	}
	return s.Getenv("HOME")
}

// HomeVariable is the variable that names the home folder on s.
func (s System) HomeVariable() string { return homeVariable(s.OS) }

func homeVariable(system string) string {
	if system == "windows" {
		return "USERPROFILE"
	}
	return "HOME"
}

// underHome joins names to the home folder.
func (s System) underHome(names ...string) string {
	return filepath.Join(append([]string{s.home()}, names...)...)
}

// settings joins names to the folder where desktop programs keep settings.
func (s System) settings(names ...string) string {
	var folder string
	switch s.OS {
	case "windows":
		if folder = s.Getenv("APPDATA"); folder == "" {
			folder = s.underHome("AppData", "Roaming")
		}
	case "darwin":
		folder = s.underHome("Library", "Application Support")
	default:
		if folder = s.Getenv("XDG_CONFIG_HOME"); !filepath.IsAbs(folder) {
			folder = s.underHome(".config")
		}
	}
	return filepath.Join(append([]string{folder}, names...)...)
}

// own joins names to the folder that a variable names, or to one under the home
// folder.
func (s System) own(variable, folder string, names ...string) string {
	at := s.Getenv(variable)
	if at == "" {
		at = s.underHome(folder)
	}
	return filepath.Join(append([]string{at}, names...)...)
}

// project finds the project's file with that name: in Dir or the nearest folder
// above it, up to the one that is a repository and not as far as the home folder.
// It is nil if there is none.
func (s System) project(path []string, name ...string) []File {
	if s.Dir == "" {
		return nil
	}
	for dir := s.Dir; dir != s.home(); dir = filepath.Dir(dir) {
		file := filepath.Join(append([]string{dir}, name...)...)
		if exists(file) {
			return []File{{Scope: Project, Path: file, at: path, project: dir}}
		}
		if exists(filepath.Join(dir, ".git")) || dir == filepath.Dir(dir) {
			break
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// Under which keys the servers stand.
var (
	mcpServers = []string{"mcpServers"}
	servers    = []string{"servers"}
)

// claudeDesktop: modelcontextprotocol.io "Connect to local MCP servers". On Windows
// the packaged program (since February 2026) reads the file of its package's own
// folder instead; its newest builds one in Claude-Data.
func claudeDesktop(s System) []File {
	const name = "claude_desktop_config.json"
	var files []File
	if local := s.Getenv("LOCALAPPDATA"); s.OS == "windows" && local != "" {
		for _, folder := range matching(filepath.Join(local, "Claude-Data"), "claude") {
			files = append(files, File{Path: filepath.Join(folder, name), at: mcpServers})
		}
		for _, folder := range matching(filepath.Join(local, "Packages"), "claude_") {
			files = append(files, File{Path: filepath.Join(folder, "LocalCache", "Roaming", "Claude", name), at: mcpServers})
		}
	}
	return append(files, File{Path: s.settings("Claude", name), at: mcpServers})
}

// matching lists the folders in folder whose name begins with prefix, whatever its
// case.
func matching(folder, prefix string) []string {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(strings.ToLower(e.Name()), prefix) {
			all = append(all, filepath.Join(folder, e.Name()))
		}
	}
	return all
}

// claudeCode: code.claude.com/docs/en/mcp. The scopes user and local are in one
// file, the scope project is in the project.
func claudeCode(s System) []File {
	path := s.underHome(".claude.json")
	if folder := s.Getenv("CLAUDE_CONFIG_DIR"); folder != "" {
		path = filepath.Join(folder, ".claude.json")
	}
	files := []File{{Path: path, at: mcpServers, sign: s.own("CLAUDE_CONFIG_DIR", ".claude")}}
	if s.Dir != "" {
		local := []string{"projects", filepath.ToSlash(s.Dir), "mcpServers"}
		files = append(files, File{Scope: Local, Path: path, at: local, project: s.Dir})
	}
	return append(files, s.project(mcpServers, ".mcp.json")...)
}

// cursor: cursor.com/docs/mcp.
func cursor(s System) []File {
	return append([]File{{Path: s.underHome(".cursor", "mcp.json"), at: mcpServers}}, s.project(mcpServers, ".cursor", "mcp.json")...)
}

// vscode: code.visualstudio.com/docs/agents/reference/mcp-configuration. The
// portable form of Copilot is read too.
func vscode(s System) []File {
	files := []File{
		{Path: s.settings("Code", "User", "mcp.json"), at: servers},
		{Path: s.own("COPILOT_HOME", ".copilot", "mcp-config.json"), at: mcpServers},
	}
	return append(files, s.project(servers, ".vscode", "mcp.json")...)
}

// windsurf: docs.windsurf.com/windsurf/cascade/mcp.
func windsurf(s System) []File {
	return []File{{Path: s.underHome(".codeium", "windsurf", "mcp_config.json"), at: mcpServers}}
}

// codex: developers.openai.com/codex/mcp.
func codex(s System) []File {
	return append([]File{{Path: s.own("CODEX_HOME", ".codex", "config.toml")}}, s.project(nil, ".codex", "config.toml")...)
}

// gemini: geminicli.com/docs/tools/mcp-server.
func gemini(s System) []File {
	return append([]File{{Path: s.underHome(".gemini", "settings.json"), at: mcpServers}}, s.project(mcpServers, ".gemini", "settings.json")...)
}
