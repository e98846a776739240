package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// examples are what the help of a command ends with, by the command's words.
var examples = map[string][]string{
	"serve":            {"coffer serve", "coffer serve --config work.json --log-file /tmp/coffer.log --log-level debug"},
	"status":           {"coffer status", "coffer status --json"},
	"logs":             {"coffer logs", "coffer logs -f files", "coffer logs -n 50"},
	"doctor":           {"coffer doctor", "coffer doctor --json"},
	"mcp list":         {"coffer mcp list", "coffer mcp list --json"},
	"mcp add":          {"coffer mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes", "coffer mcp add git -e 'GITHUB_TOKEN=${GITHUB_TOKEN}' -- docker run -i --rm -e GITHUB_TOKEN ghcr.io/github/github-mcp-server", "coffer mcp add issues --url https://mcp.example.com/mcp --header 'Authorization: Bearer ${ISSUES_TOKEN}'", "coffer mcp add issues https://mcp.example.com/mcp --dry-run"},
	"mcp remove":       {"coffer mcp remove files", "coffer mcp remove files --dry-run"},
	"mcp enable":       {"coffer mcp enable files"},
	"mcp disable":      {"coffer mcp disable files"},
	"mcp test":         {"coffer mcp test files", "coffer mcp test files --json"},
	"mcp capabilities": {"coffer mcp capabilities files", "coffer mcp capabilities files --type tool --type prompt"},
	"mcp why":          {"coffer mcp why files__read_file", "coffer mcp why mcp__coffer__files__read_file"},
	"mcp refresh":      {"coffer mcp refresh files", "coffer mcp refresh --all --reconnect"},
	"mcp call":         {`coffer mcp call files read_file '{"path": "notes.txt"}'`, "coffer mcp call files read_file - <arguments.json"},
	"import":           {"coffer import --dry-run", "coffer import --from cursor --from claude-desktop", "coffer import --from ./mcp.json"},
	"install":          {"coffer install cursor", "coffer install claude-desktop vscode --replace --yes"},
	"uninstall":        {"coffer uninstall cursor"},
	"prefs set":        {"coffer prefs set files tool write_file off", "coffer prefs set files tool 'delete_*' off --glob", "coffer prefs set - <changes"},
	"prefs list":       {"coffer prefs list", "coffer prefs list files --off --json"},
	"prefs get":        {"coffer prefs get files tool write_file"},
	"prefs export":     {"coffer prefs export >preferences.json"},
	"prefs import":     {"coffer prefs import preferences.json"},
	"prefs prune":      {"coffer prefs prune --unseen-for 90d --dry-run", "coffer prefs prune files"},
	"demo":             {"coffer demo"},
	"completion":       {`eval "$(coffer completion bash)"`, "coffer completion fish >~/.config/fish/completions/coffer.fish"},
}

// exemplify gives the commands their examples; before are the words that lead to
// them.
func exemplify(commands []*cli.Command, before string) {
	for _, c := range commands {
		words := strings.TrimSpace(before + " " + c.Name)
		if lines := examples[words]; len(lines) > 0 {
			c.CustomHelpTemplate = cli.CommandHelpTemplate + "\nEXAMPLES:\n   " + strings.Join(lines, "\n   ") + "\n"
		}
		exemplify(c.Subcommands, words)
	}
}
