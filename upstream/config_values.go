package upstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// Keys that other clients write, or that people carry over from them. A key
// that only concerns the client itself (what it asks before a call, what it
// shows) or that is judged elsewhere (inputs, by ${input:…}) is passed over in
// silence: its text here is empty. A key whose loss changes what the server
// does or what a client may do with it is warned of like an unknown one, with
// the way to get the same from coffer.
var (
	foreignTopLevel = map[string]string{
		"$schema": "",
		"inputs":  "", // VS Code
		// Claude Desktop's own settings stand in the same file.
		"globalShortcut": "", "preferences": "", "isUsingBuiltInNodeForMcp": "", "isDxtAutoUpdatesEnabled": "",

		"mcp":     "move its servers object to the top level",
		"sandbox": "coffer does not confine upstreams",
	}
	foreignServer = map[string]string{
		"alwaysAllow": "", "autoApprove": "", "trust": "", "alwaysLoad": "",
		"description": "", "name": "", "title": "", "icon": "", "version": "", "gallery": "",
		"dev": "", // VS Code: restarts and debugs a server under development

		"envFile":        "set its variables in env, or name them in inherit_env",
		"timeout":        "set connect_timeout, list_timeout or call_timeout", // ms or s, by client
		"enabled":        "write disabled",
		"disabledTools":  "use `coffer prefs set`",
		"enabledTools":   "use `coffer prefs set`",
		"includeTools":   "use `coffer prefs set`",
		"excludeTools":   "use `coffer prefs set`",
		"tools":          "use `coffer prefs set`",
		"headersHelper":  "set headers",
		"oauth":          "set headers",
		"auth":           "set headers",
		"serverUrl":      "rename it to url",
		"httpUrl":        "rename it to url",
		"sandbox":        "coffer does not confine upstreams",
		"sandboxEnabled": "coffer does not confine upstreams",
	}
)

// Keys that mean something for one kind of transport only.
var (
	stdioOnly  = []string{"args", "env", "cwd", "inherit_env"}
	remoteOnly = []string{"headers"}
)

// warn adds w to the warnings of the config.
func (r *configReader) warn(w Warning) { r.config.Warnings = append(r.config.Warnings, w) }

// unknown warns of a key that coffer does not know, unless foreign says that
// it is another client's and harmless.
func (r *configReader) unknown(server string, m jsonMember, foreign map[string]string) {
	hint, known := foreign[m.key]
	w := Warning{Pos: m.doc.pos(m.keyAt), Server: server, Key: m.key}
	switch {
	case !known:
		w.Message = fmt.Sprintf("unknown key %q", m.key)
	case hint != "":
		w.Message = fmt.Sprintf("key %q has no effect in coffer: %s", m.key, hint)
	default:
		return
	}
	r.warn(w)
}

// warnIneffective warns of what s sets for a transport that it does not use.
// Some clients write every key, so an empty one says nothing.
func (r *configReader) warnIneffective(s *Spec, fields []jsonMember) {
	ineffective, target := stdioOnly, "a url"
	if s.Transport == TransportStdio {
		ineffective, target = remoteOnly, "a command"
	}
	for _, f := range fields {
		if slices.Contains(ineffective, f.key) && !f.empty() {
			r.warn(Warning{
				Pos: f.doc.pos(f.keyAt), Server: s.Name, Key: f.key,
				Message: fmt.Sprintf("key %q has no effect beside %s", f.key, target),
			})
		}
	}
}

// expanded returns the text v with its variables replaced. One that cannot be
// replaced becomes s.Err, if it is the first, and leaves the text as it is.
func (r *configReader) expanded(s *Spec, v jsonValue) (string, error) {
	text, err := v.text()
	if err != nil {
		return "", err
	}
	return r.expand(s, v, text), nil
}

// expand is expanded for the text of v that is already known.
func (r *configReader) expand(s *Spec, v jsonValue, text string) string {
	result, err := expand(text, r.getenv)
	if err == nil {
		return result
	}
	if s.Err == nil {
		s.Err = v.errorf("%w", err)
		if hint, ok := errors.AsType[*HintError](err); ok {
			s.Err = &HintError{Err: s.Err, Hint: hint.Hint}
		}
	}
	return text
}

// list reads an array of texts.
func (r *configReader) list(s *Spec, v jsonValue) ([]string, error) {
	elements, err := v.elements()
	if err != nil {
		return nil, err
	}
	list := make([]string, len(elements))
	for i, e := range elements {
		if list[i], err = r.expanded(s, e); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// table reads an object of texts: env or headers. As in VS Code a number
// counts as its text, and null as left out.
func (r *configReader) table(s *Spec, v jsonValue) (map[string]string, error) {
	members, err := v.members(func(key string) string { return v.what + "." + key })
	if err != nil {
		return nil, err
	}
	table := make(map[string]string, len(members))
	for _, m := range members {
		switch {
		case m.key == "" || strings.ContainsAny(m.key, "=\x00"):
			return nil, fmt.Errorf("%s: %s has a name that is empty or holds = or NUL", v.doc.pos(m.keyAt), v.what)
		case m.null():
		case m.tree.Kind() == '0':
			table[m.key] = string(m.tree.(hujson.Literal))
		default:
			if table[m.key], err = r.expanded(s, m.jsonValue); err != nil {
				return nil, err
			}
		}
	}
	return table, nil
}

// inheritance reads inherit_env: an array of names, or true for all.
func (v jsonValue) inheritance() (names []string, all bool, err error) {
	if k := v.tree.Kind(); k == 't' || k == 'f' {
		return nil, k == 't', nil
	}
	elements, err := v.elements()
	if err != nil {
		return nil, false, v.mismatch("an array of names or true")
	}
	for _, e := range elements {
		name, err := e.text()
		if err != nil {
			return nil, false, err
		}
		names = append(names, name)
	}
	return names, false, nil
}
