package proxy_test

import (
	"errors"
	"regexp"
	"strings"

	"coffer/jsonrpc"
)

// placeholder is <<*>>, <<name>>, <<name=regexp>> or <<=regexp>>.
var placeholder = regexp.MustCompile(`<<(\*|[a-z][a-z0-9_]*|)(?:=(.*?))?>>`)

// scalar is what <<name>> stands for: a JSON number or string.
const scalar = `-?[0-9]+|"(?:[^"\\]|\\.)*"`

// match reports whether got is what text expects, and binds its variables.
func match(text, got string, vars map[string]string) bool {
	pattern, names := "^", []string(nil)
	rest := expand(text)
	for rest != "" {
		at := placeholder.FindStringSubmatchIndex(rest)
		if at == nil {
			pattern += regexp.QuoteMeta(rest)
			break
		}
		pattern += regexp.QuoteMeta(rest[:at[0]])
		name, inside := rest[at[2]:at[3]], scalar
		if at[4] >= 0 {
			inside = rest[at[4]:at[5]]
		}
		value, bound := vars[name]
		switch {
		case name == "*":
			pattern += ".*?"
		case name == "":
			pattern += "(?:" + inside + ")"
		case bound:
			pattern += regexp.QuoteMeta(value)
		default:
			pattern += "(" + inside + ")"
			names = append(names, name)
		}
		rest = rest[at[1]:]
	}
	re, err := regexp.Compile(pattern + "$")
	if err != nil {
		return false
	}
	found := re.FindStringSubmatch(got)
	if found == nil {
		return false
	}
	groups := map[string]string{}
	for i, name := range names {
		if old, twice := groups[name]; twice && old != found[i+1] {
			return false
		}
		groups[name] = found[i+1]
	}
	for name, value := range groups {
		vars[name] = value
	}
	return true
}

// fill returns the message that a line to send stands for.
func fill(text string, vars map[string]string) ([]byte, error) { return fillWords(expand(text), vars) }

// fillWords puts what they stand for in the places of words and variables.
func fillWords(text string, vars map[string]string) ([]byte, error) {
	var err error
	text = placeholder.ReplaceAllStringFunc(text, func(p string) string {
		value, bound := vars[strings.Trim(p, "<>")]
		if !bound {
			err = errors.New(p + " stands for nothing yet")
		}
		return value
	})
	return []byte(text), err
}

// shortLine is the short form of a message: an id, a method or = or !, and the
// params, which are an object or array, or the result or error object.
var shortLine = regexp.MustCompile(`^(?:(-?[0-9]+|"(?:[^"\\]|\\.)*"|<<[a-z][a-z0-9_]*>>) )?(?:(=|!) (.+)|([a-zA-Z][^ ]*)(?: ([{[<].*))?)$`)

// expand turns the short form of a message into the message; text that is
// none stays as it is.
func expand(text string) string {
	m := shortLine.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	out := `{"jsonrpc":"2.0"`
	if m[1] != "" {
		out += `,"id":` + m[1]
	}
	switch {
	case m[2] == "=":
		out += `,"result":` + m[3]
	case m[2] == "!":
		out += `,"error":` + m[3]
	case m[5] == "":
		out += `,"method":"` + m[4] + `"`
	default:
		out += `,"method":"` + m[4] + `","params":` + m[5]
	}
	return out + "}"
}

// shorten is the reverse of expand, where that is possible.
func shorten(text string) string {
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		return text
	}
	var words []string
	if m.ID != nil {
		words = append(words, string(m.ID))
	}
	switch {
	case m.Method != "":
		words = append(words, m.Method)
		if m.Params != nil {
			words = append(words, string(m.Params))
		}
	case m.Error != nil:
		words = append(words, "!", string(m.Error))
	default:
		words = append(words, "=", string(m.Result))
	}
	if short := strings.Join(words, " "); expand(short) == text {
		return short
	}
	return text
}
