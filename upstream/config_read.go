package upstream

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"time"
)

// ReadConfig reads the config file at path: the mcpServers object of Claude
// Desktop, Claude Code and Cursor, or the servers object of VS Code, as JSON
// with comments and trailing commas. explicit says that a person named the
// file: then it must exist, while at the default place it may be missing.
// getenv looks a variable up, as os.LookupEnv does.
//
// What is wrong with the file is an error that starts with file:line:column
// and names the server; where there is a fix, it is a *HintError. What is
// wrong with one server because of where coffer runs (a variable that is not
// set) is that server's Err. A file with no servers in it is good, with a
// warning if it has neither object.
func ReadConfig(path string, explicit bool, getenv func(string) (string, bool)) (*Config, error) {
	text, err := readBounded(path)
	switch {
	case err == nil:
		return ParseConfig(path, text, getenv)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("reading config %q: %w", path, err)
	case explicit:
		return nil, &HintError{
			Err:  fmt.Errorf("reading config %q: %w", path, err),
			Hint: "check --config and COFFER_CONFIG, or create the file: README.md has an example",
		}
	}
	c := newConfig(path)
	c.Missing = true
	return c, nil
}

// newConfig is the config of an empty file.
func newConfig(path string) *Config {
	return &Config{
		Path:             path,
		CacheTTL:         defaultCacheTTL,
		MaxNameLength:    defaultMaxNameLength,
		MaxMessageSize:   defaultMaxMessageSize,
		InstructionsWait: defaultInstructionsWait,
	}
}

// ParseConfig is ReadConfig for a text that was read from path, or is about to be
// written there.
func ParseConfig(path string, text []byte, getenv func(string) (string, bool)) (*Config, error) {
	c := newConfig(path)
	root, err := parseJSON(path, text)
	if err != nil {
		return nil, err
	}
	r := &configReader{config: c, getenv: getenv}
	if err := r.top(root); err != nil {
		return nil, err
	}
	return c, nil
}

// readBounded reads a file of at most maxConfigSize bytes. Its errors do not
// repeat the path.
func readBounded(path string) ([]byte, error) {
	text, err := func() ([]byte, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, maxConfigSize+1))
	}()
	err = bare(err)
	if len(text) > maxConfigSize {
		err = fmt.Errorf("larger than %d MiB", maxConfigSize>>20)
	}
	return text, err
}

// configReader fills a Config from its parsed file.
type configReader struct {
	config *Config
	getenv func(string) (string, bool)
}

// top reads the top level of the file.
func (r *configReader) top(root jsonValue) error {
	members, err := root.members(func(key string) string { return key })
	if err != nil {
		return err
	}
	c := r.config
	servers, err := serversMember(members)
	if err != nil {
		return err
	}
	for _, m := range members {
		if m.null() { // as good as left out
			continue
		}
		switch m.key {
		case "mcpServers", "servers":
			err = r.servers(m.jsonValue)
		case "cache_ttl":
			c.CacheTTL, err = m.duration(0)
		case "max_name_length":
			c.MaxNameLength, err = m.integer(minNameLength)
		case "max_message_size":
			c.MaxMessageSize, err = m.size(minMessageSize)
		case "instructions":
			c.Instructions, err = optional(m.text())
		case "instructions_wait":
			c.InstructionsWait, err = m.duration(0)
		default:
			r.unknown("", m, foreignTopLevel)
		}
		if err != nil {
			return err
		}
	}
	if servers == "" {
		r.warn(Warning{Pos: root.doc.pos(root.at), Message: "config has neither mcpServers nor servers: no servers"})
	}
	return nil
}

// serversMember returns the key that the servers are under, "" if there is none.
func serversMember(members []jsonMember) (key string, err error) {
	for _, m := range members {
		if m.key != "mcpServers" && m.key != "servers" {
			continue
		}
		if key != "" {
			return "", &HintError{
				Err:  fmt.Errorf("%s: config has both %s and %s", m.doc.pos(m.keyAt), key, m.key),
				Hint: "move all servers into one of them",
			}
		}
		key = m.key
	}
	return key, nil
}

// servers reads the object of all servers.
func (r *configReader) servers(v jsonValue) error {
	members, err := v.members(func(key string) string { return fmt.Sprintf("server %q", key) })
	if err != nil {
		return err
	}
	for _, m := range members {
		s, err := r.server(m)
		if err != nil {
			return err
		}
		r.config.Servers = append(r.config.Servers, s)
	}
	return nil
}

// server reads one server.
func (r *configReader) server(m jsonMember) (Spec, error) {
	s := Spec{
		Name:           m.key,
		AutoEnable:     true,
		ConnectTimeout: defaultConnectTimeout,
		ListTimeout:    defaultListTimeout,
	}
	if s.Name == "" {
		return s, fmt.Errorf("%s: a server's name is empty", m.doc.pos(m.keyAt))
	}
	fields, err := m.members(func(key string) string { return m.what + ": " + key })
	if err != nil {
		return s, err
	}
	given := make(map[string]jsonMember, len(fields)) // what is there and not empty
	for _, f := range fields {
		if f.null() { // as good as left out
			continue
		}
		if !f.empty() {
			given[f.key] = f
		}
		if err := r.field(&s, f); err != nil {
			return s, err
		}
	}
	if s.Transport, err = transportOf(m, given); err != nil {
		return s, err
	}
	r.checkTarget(&s, given)
	r.warnIneffective(&s, fields)
	return s, nil
}

// field reads one key of a server into s.
func (r *configReader) field(s *Spec, f jsonMember) (err error) {
	switch f.key {
	case "command":
		s.Command, err = r.expanded(s, f.jsonValue)
	case "args":
		s.Args, err = r.list(s, f.jsonValue)
	case "env":
		s.Env, err = r.table(s, f.jsonValue)
	case "cwd":
		s.Cwd, err = r.expanded(s, f.jsonValue)
		s.Cwd = expandHome(s.Cwd, r.getenv)
	case "inherit_env":
		s.InheritEnv, s.InheritAll, err = f.inheritance()
	case "type":
		_, err = f.text() // transportOf judges it beside command and url
	case "url":
		s.URL, err = r.expanded(s, f.jsonValue)
	case "headers":
		s.Headers, err = r.table(s, f.jsonValue)
	case "disabled":
		s.Disabled, err = f.boolean()
	case "auto_enable_new_capabilities":
		s.AutoEnable, err = f.boolean()
	case "prefix":
		s.Prefix, err = optional(f.text())
	case "connect_timeout":
		s.ConnectTimeout, err = f.duration(time.Millisecond)
	case "list_timeout":
		s.ListTimeout, err = f.duration(time.Millisecond)
	case "call_timeout":
		s.CallTimeout, err = f.duration(0)
	default:
		r.unknown(s.Name, f, foreignServer)
	}
	return err
}

// transportOf decides by command, url and type, of which an empty one counts
// as left out, how the server m is reached.
func transportOf(m jsonMember, given map[string]jsonMember) (Transport, error) {
	_, command := given["command"]
	_, remote := given["url"]
	pos := m.doc.pos(m.keyAt)
	switch {
	case command && remote:
		return 0, &HintError{
			Err:  fmt.Errorf("%s: %s has both command and url", pos, m.what),
			Hint: "keep command for a program to start, url for a server to reach",
		}
	case !command && !remote:
		hint := "add command for a program to start, or url for a server to reach"
		for _, other := range []string{"serverUrl", "httpUrl"} { // Windsurf, Gemini CLI
			if _, ok := given[other]; ok {
				hint = "rename " + other + " to url"
			}
		}
		return 0, &HintError{Err: fmt.Errorf("%s: %s has neither command nor url", pos, m.what), Hint: hint}
	}
	kind, typed := given["type"]
	if !typed {
		if command {
			return TransportStdio, nil
		}
		return TransportHTTP, nil
	}
	name, err := kind.text()
	if err != nil {
		return 0, err
	}
	transport, known := map[string]Transport{
		"stdio": TransportStdio, "http": TransportStreamable, "streamable-http": TransportStreamable, "sse": TransportSSE,
	}[name]
	switch {
	case !known:
		return 0, &HintError{
			Err:  kind.errorf("%q is unknown", name),
			Hint: "write stdio, http, streamable-http or sse, or leave it out",
		}
	case command && transport != TransportStdio:
		return 0, &HintError{Err: kind.errorf("%q does not go with command", name), Hint: "leave type out, or set url in place of command"}
	case remote && transport == TransportStdio:
		return 0, &HintError{Err: kind.errorf("%q does not go with url", name), Hint: "leave type out, or set command in place of url"}
	}
	return transport, nil
}

// checkTarget sets s.Err if, with variables expanded, no program is left to
// start or the URL is none that can be reached.
func (r *configReader) checkTarget(s *Spec, given map[string]jsonMember) {
	if s.Err != nil {
		return
	}
	if s.Transport == TransportStdio {
		if s.Command == "" {
			s.Err = &HintError{
				Err:  given["command"].errorf("is empty once its variables are filled in"),
				Hint: "set the variables, or write the command itself",
			}
		}
		return
	}
	// The text of a URL may hold a key, so neither it nor url's error is shown.
	if u, err := url.Parse(s.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		s.Err = &HintError{
			Err:  given["url"].errorf("is not the address of a server"),
			Hint: "write it whole, like https://example.com/mcp",
		}
	}
}

// optional turns a text into a pointer to it.
func optional(text string, err error) (*string, error) { return &text, err }
