package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"coffer/upstream"
)

// Secrets are recognised so that a person can be warned of a literal one, and so
// that no output repeats it. Neither needs to be perfect: a miss is a warning
// less, a false alarm a line too many.
var (
	// secretName is part of what people call a variable or header that is secret.
	secretName = regexp.MustCompile(`(?i)token|secret|passw|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credential|authorization|cookie|(^|[_-])(pat|pwd|pass|auth|key)$`)
	// tokenShape begins a token of a well-known issuer, a JSON Web Token or a URL
	// with a password in it.
	tokenShape = regexp.MustCompile(`\b(gh[pousr]_|github_pat_|glpat-|sk-|xox[abeprs]-|npm_|hf_|lin_api_|ntn_|AKIA|AIza)[A-Za-z0-9_-]{8}|\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.|://[^/\s:@]*:[^/\s@]+@`)
	// harmless are values that say nothing, whatever they are called: numbers, yes
	// and no, paths, addresses.
	harmless = regexp.MustCompile(`^$|^\d+$|^(?i:true|false|yes|no|on|off|none|null)$|^[~.]?\.?[/\\]|^[A-Za-z]:\\|^https?://[^?@]*$`)
)

// secret reports whether value, which something called name has, looks like a
// secret that stands there itself.
func secret(name, value string) bool {
	if strings.Contains(strings.ReplaceAll(value, "$${", ""), "${") {
		return false
	}
	return tokenShape.MatchString(value) || secretName.MatchString(name) && !harmless.MatchString(value)
}

// literal is a secret that a server's entry holds, and what to write instead.
type literal struct{ where, instead string }

// literals finds the secrets in a server's entry.
func literals(e upstream.Entry) []literal {
	var all []literal
	for _, m := range e.Members {
		var table map[string]any
		var list []any
		var text string
		switch {
		case m.Key == "env" && json.Unmarshal(m.Value, &table) == nil:
			for _, name := range sortedKeys(table) {
				if value, ok := table[name].(string); ok && secret(name, value) {
					all = append(all, literal{"env " + name, fmt.Sprintf("%s=${%s}", name, variableFor(name))})
				}
			}
		case m.Key == "headers" && json.Unmarshal(m.Value, &table) == nil:
			for _, name := range sortedKeys(table) {
				if value, ok := table[name].(string); ok && secret(name, value) {
					all = append(all, literal{"header " + name, name + ": " + headerInstead(e.Name, name, value)})
				}
			}
		case m.Key == "args" && json.Unmarshal(m.Value, &list) == nil:
			for i, arg := range list {
				if value, ok := arg.(string); ok && tokenShape.MatchString(value) && secret("", value) {
					all = append(all, literal{fmt.Sprintf("args[%d]", i), fmt.Sprintf("${%s_TOKEN}", variableFor(e.Name))})
				}
			}
		case m.Key == "url" && json.Unmarshal(m.Value, &text) == nil && secretURL(text):
			all = append(all, literal{"url", fmt.Sprintf("${%s_TOKEN} in its place", variableFor(e.Name))})
		}
	}
	return all
}

// headerInstead writes a header's value with a variable for what is secret of it.
func headerInstead(server, name, value string) string {
	if strings.EqualFold(name, "Authorization") {
		variable := fmt.Sprintf("${%s_TOKEN}", variableFor(server))
		if scheme, _, found := strings.Cut(value, " "); found {
			return scheme + " " + variable
		}
		return variable
	}
	return fmt.Sprintf("${%s}", variableFor(name))
}

// secretURL reports whether a URL has a password or a query with a secret.
func secretURL(text string) bool {
	if secret("", text) {
		return true
	}
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	for name, values := range u.Query() {
		for _, value := range values {
			if secret(name, value) {
				return true
			}
		}
	}
	return false
}

var notInVariable = regexp.MustCompile(`[^A-Za-z0-9]+`)

// variableFor makes the name of an environment variable from another name.
func variableFor(name string) string {
	name = strings.Trim(notInVariable.ReplaceAllString(name, "_"), "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "MY_" + name
	}
	return strings.ToUpper(strings.TrimSuffix(name, "_"))
}

// warnLiterals warns of the secrets in a server's entry.
func (p *program) warnLiterals(e upstream.Entry) {
	for _, l := range literals(e) {
		message, hint := l.warning(e.Name)
		p.warn("%s", message)
		fmt.Fprintf(p.stderr, "coffer: hint: %s\n", printable(hint))
	}
}

// warning is what to say of l in the entry of a server.
func (l literal) warning(server string) (message, hint string) {
	return fmt.Sprintf("%s of %q looks like a secret, and stands in the config file as it is", l.where, server),
		fmt.Sprintf("write %s, and set that variable where your clients are started", l.instead)
}

// jsonString is a string in JSON, memberString one with the key before it.
var (
	jsonString   = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"`)
	memberString = regexp.MustCompile(`("(?:[^"\\\n]|\\.)*")(\s*:\s*)("(?:[^"\\\n]|\\.)*")`)
)

// masked is a text of JSON without its secrets.
func masked(text string) string {
	text = memberString.ReplaceAllStringFunc(text, func(member string) string {
		parts := memberString.FindStringSubmatch(member)
		if secret(unquoted(parts[1]), unquoted(parts[3])) {
			return parts[1] + parts[2] + `"***"`
		}
		return member
	})
	return jsonString.ReplaceAllStringFunc(text, func(quoted string) string {
		if value := unquoted(quoted); tokenShape.MatchString(value) || secretURL(value) {
			return `"***"`
		}
		return quoted
	})
}

// unquoted is the text of a JSON string, or the string itself if it is none.
func unquoted(quoted string) string {
	var text string
	if json.Unmarshal([]byte(quoted), &text) != nil {
		return quoted
	}
	return text
}
