package clients

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"coffer/upstream"
)

// IsCoffer reports whether e starts coffer's own proxy. Its program may be called
// coffer-1.2 or coffer.exe.
func IsCoffer(e upstream.Entry) bool {
	command := textOf(e.Get("command"))
	program := strings.ToLower(command[strings.LastIndexAny(command, `/\`)+1:])
	return strings.HasPrefix(program, "coffer") && slices.Contains(textsOf(e.Get("args")), "serve")
}

// Same reports whether two entries in coffer's words reach the same server in the
// same way, whatever they are called. A value that was replaced by a variable
// counts as the same.
func Same(a, b upstream.Entry) bool {
	if textOf(a.Get("url")) != textOf(b.Get("url")) || textOf(a.Get("command")) != textOf(b.Get("command")) ||
		textOf(a.Get("cwd")) != textOf(b.Get("cwd")) || !slices.EqualFunc(textsOf(a.Get("args")), textsOf(b.Get("args")), equivalent) {
		return false
	}
	return maps.EqualFunc(tableOf(a.Get("env")), tableOf(b.Get("env")), equivalent) &&
		maps.EqualFunc(headersOf(a), headersOf(b), equivalent)
}

func equivalent(a, b string) bool {
	return a == b || strings.Contains(a, "${") != strings.Contains(b, "${")
}

// headersOf are the headers of e, whose names have no case.
func headersOf(e upstream.Entry) map[string]string {
	all := map[string]string{}
	for name, value := range tableOf(e.Get("headers")) {
		all[strings.ToLower(name)] = value
	}
	return all
}

// textOf is a JSON string's text, "" for anything else.
func textOf(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return ""
	}
	return text
}

// textsOf are the texts of a JSON array.
func textsOf(value json.RawMessage) []string {
	var elements []json.RawMessage
	if json.Unmarshal(value, &elements) != nil {
		return nil
	}
	texts := make([]string, len(elements))
	for i, e := range elements {
		texts[i] = textOf(e)
	}
	return texts
}

// tableOf are the texts of a JSON object. A number counts as its text, and null
// as left out, as they do in a config.
func tableOf(value json.RawMessage) map[string]string {
	var members map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(value)))
	decoder.UseNumber()
	if value == nil || decoder.Decode(&members) != nil {
		return nil
	}
	table := map[string]string{}
	for name, member := range members {
		if member != nil {
			table[name] = fmt.Sprint(member)
		}
	}
	return table
}
