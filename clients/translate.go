package clients

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"coffer/upstream"
)

// vocabulary is how a client's words differ from coffer's, which are those of the
// mcpServers object.
type vocabulary struct {
	literal   bool // ${ stands for itself: it fills in no variables
	dollar    bool // $NAME is a variable
	editor    bool // ${userHome} and ${workspaceFolder} are filled in
	timeoutMS bool // timeout bounds a call, in milliseconds
	codex     bool // the keys of config.toml
}

// words are those of the file's client. Where nobody knows whose file it is, they
// are those that most have.
func (f File) words() vocabulary {
	if f.Client != nil {
		return f.Client.words
	}
	return vocabulary{editor: true, literal: f.toml(), codex: f.toml()}
}

// translate writes a server of the file in coffer's words. What it does not know
// stays, for ReadConfig to warn of.
func (f File) translate(raw upstream.Entry) upstream.Entry {
	t := translation{file: f, words: f.words(), entry: upstream.Entry{Name: raw.Name}}
	for _, m := range raw.Members {
		if t.words.codex && t.codexKey(m) {
			continue
		}
		t.key(m)
	}
	// A project's commands start in the project's folder, coffer in no project.
	if f.project != "" && t.entry.Get("command") != nil && t.entry.Get("cwd") == nil {
		t.set("cwd", upstream.JSON(f.project))
	}
	return t.entry
}

// translation is one server on its way from a client's words to coffer's.
type translation struct {
	file  File
	words vocabulary
	entry upstream.Entry
}

// set gives the entry a key, in the place that it has if it has it.
func (t *translation) set(key string, value json.RawMessage) {
	for i := range t.entry.Members {
		if t.entry.Members[i].Key == key {
			t.entry.Members[i].Value = value
			return
		}
	}
	t.entry.Members = append(t.entry.Members, upstream.Member{Key: key, Value: value})
}

// types are clients' words for a type that coffer calls otherwise.
var types = map[string]string{"streamableHttp": "http", "streamable_http": "http", "local": "stdio", "remote": "http"}

// key takes one key over.
func (t *translation) key(m upstream.Member) {
	switch m.Key {
	case "serverUrl": // Windsurf
		t.set("url", t.texts(m.Value))
	case "httpUrl": // Gemini CLI
		t.set("type", upstream.JSON("http"))
		t.set("url", t.texts(m.Value))
	case "type":
		if ours, known := types[textOf(m.Value)]; known {
			m.Value = upstream.JSON(ours)
		}
		t.set("type", m.Value)
	case "command", "args", "env", "cwd", "url", "headers":
		t.set(m.Key, t.texts(m.Value))
	case "timeout":
		if t.words.timeoutMS && json.Valid([]byte(string(m.Value)+"0")) {
			t.set("call_timeout", upstream.JSON(string(m.Value)+"ms"))
			return
		}
		t.set(m.Key, m.Value)
	default:
		t.set(m.Key, m.Value)
	}
}

// codexKey takes a key over that only Codex has, and reports whether it was one.
func (t *translation) codexKey(m upstream.Member) bool {
	switch m.Key {
	case "enabled":
		if string(m.Value) == "false" {
			t.set("disabled", upstream.JSON(true))
		}
	case "env_vars":
		t.set("inherit_env", upstream.JSON(variableNames(m.Value)))
	case "http_headers":
		for name, value := range tableOf(m.Value) {
			t.header(name, strings.ReplaceAll(value, "${", "$${"))
		}
	case "env_http_headers":
		for name, variable := range tableOf(m.Value) {
			t.header(name, "${"+variable+"}")
		}
	case "bearer_token_env_var":
		t.header("Authorization", "Bearer ${"+textOf(m.Value)+"}")
	case "startup_timeout_sec":
		t.set("connect_timeout", m.Value)
	case "startup_timeout_ms":
		t.set("connect_timeout", upstream.JSON(string(m.Value)+"ms"))
	case "tool_timeout_sec":
		t.set("call_timeout", m.Value)
	case "enabled_tools":
		t.set("enabledTools", m.Value)
	case "disabled_tools":
		t.set("disabledTools", m.Value)
	default:
		return false
	}
	return true
}

// header gives the entry a header.
func (t *translation) header(name, value string) {
	table := tableOf(t.entry.Get("headers"))
	if table == nil {
		table = map[string]string{}
	}
	table[name] = value
	t.set("headers", upstream.JSON(table))
}

// variableNames are the names in env_vars: texts, or tables with a name.
func variableNames(value json.RawMessage) []string {
	var elements []json.RawMessage
	json.Unmarshal(value, &elements) // what is no array has no names
	names := []string{}
	for _, e := range elements {
		name := textOf(e)
		if name == "" {
			name = tableOf(e)["name"]
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// texts translates the variables in a string, and in the strings of an array or an
// object. All else stays as it is.
func (t *translation) texts(value json.RawMessage) json.RawMessage {
	return stringLiteral.ReplaceAllFunc(value, func(quoted []byte) []byte {
		var text string
		if json.Unmarshal(quoted, &text) != nil {
			return quoted
		}
		if translated := t.text(text); translated != text {
			return upstream.JSON(translated)
		}
		return quoted
	})
}

var (
	stringLiteral = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	dollarName    = regexp.MustCompile(`\$([A-Za-z_][A-Za-z0-9_]*)`)
)

// text translates the variables in text.
func (t *translation) text(text string) string {
	if t.words.literal {
		return strings.ReplaceAll(text, "${", "$${")
	}
	if t.words.dollar {
		text = dollarName.ReplaceAllString(text, "${$1}")
	}
	if t.words.editor {
		text = strings.ReplaceAll(text, "${userHome}", "${"+homeVariable(t.file.os)+"}")
		if t.file.project != "" {
			text = strings.ReplaceAll(text, "${workspaceFolder}", strings.ReplaceAll(t.file.project, "${", "$${"))
		}
	}
	return text
}
