package clients

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"coffer/upstream"
)

// Scope says whose servers a file holds.
type Scope int

const (
	// User is what one person has everywhere.
	User Scope = iota
	// Local is what one person has in one project.
	Local
	// Project is what everybody has in one project.
	Project
)

// String is the clients' own word for s.
func (s Scope) String() string { return [...]string{"user", "local", "project"}[s] }

// File is one place where a client keeps servers.
type File struct {
	// Client is whose file it is; nil for a file that a person named.
	Client *Client
	Scope  Scope
	Path   string

	at      []string // the keys that lead to the servers of a JSON file
	project string   // the project's folder, of which Scope is not User
	sign    string   // what shows that the client is here, if not the file's folder
	os      string
}

// Named is the file at path, which a person named: JSON with servers under
// mcpServers, servers or mcp.servers, or TOML with mcp_servers.
func (s System) Named(path string) File { return File{Path: path, os: s.OS} }

// Title names the file for a person.
func (f File) Title() string {
	switch {
	case f.Client == nil:
		return filepath.Base(f.Path)
	case f.Scope == User:
		return f.Client.Title
	default:
		return fmt.Sprintf("%s (%s)", f.Client.Title, f.Scope)
	}
}

// Here reports whether the client seems to be on this machine: its folder is there.
func (f File) Here() bool {
	return exists(f.Path) || exists(filepath.Dir(f.Path)) && f.sign == "" || f.sign != "" && exists(f.sign)
}

// toml reports whether the file is TOML.
func (f File) toml() bool { return strings.EqualFold(filepath.Ext(f.Path), ".toml") }

// Server is one server of a client's file.
type Server struct {
	// Raw is the server in the client's words, Entry in coffer's.
	Raw, Entry upstream.Entry
}

// Servers reads text, which is the file's. Errors start with the place.
func (f File) Servers(text []byte) ([]Server, error) {
	var entries []upstream.Entry
	if f.toml() {
		t, err := parseTOML(f.Path, text)
		if err != nil {
			return nil, err
		}
		entries = t.servers
	} else {
		_, s, err := f.document(text)
		if err != nil {
			return nil, err
		}
		entries = s.All()
	}
	all := make([]Server, len(entries))
	for i, e := range entries {
		all[i] = Server{Raw: e, Entry: f.translate(e)}
	}
	return all, nil
}

// document parses the text of a JSON file and finds its servers.
func (f File) document(text []byte) (*upstream.Document, *upstream.Servers, error) {
	d, err := upstream.ParseDocument(f.Path, text)
	if err != nil {
		return nil, nil, err
	}
	if f.at != nil {
		s, err := d.Servers(f.at...)
		return d, s, err
	}
	for _, at := range [][]string{mcpServers, servers, {"mcp", "servers"}} {
		s, err := d.Servers(at...)
		if err != nil || len(s.All()) > 0 {
			return d, s, err
		}
	}
	s, err := d.Servers(mcpServers...)
	return d, s, err
}

// Add returns text, which is the file's, with e behind its servers. e is in the
// client's words, and none of the servers has its name.
func (f File) Add(text []byte, e upstream.Entry) ([]byte, error) {
	if f.toml() {
		return f.addTOML(text, e)
	}
	d, s, err := f.document(text)
	if err != nil {
		return nil, err
	}
	s.Add(e)
	return f.checked(text, d.Text(), len(s.All()))
}

// Remove returns text, which is the file's, without the server of that name.
func (f File) Remove(text []byte, name string) ([]byte, error) {
	if f.toml() {
		return f.removeTOML(text, name)
	}
	d, s, err := f.document(text)
	if err != nil {
		return nil, err
	}
	s.Remove(name)
	return f.checked(text, d.Text(), len(s.All()))
}

// checked returns text if it can be read and has that many servers. It guards the
// client's file against a fault of ours.
func (f File) checked(old, text []byte, servers int) ([]byte, error) {
	got, err := f.Servers(text)
	if err == nil && len(got) != servers {
		err = errors.New("an edit of it went wrong")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: nothing was changed: %w", f.Path, err)
	}
	return text, nil
}

// CofferEntry is coffer's own entry in the client's words: what starts the program
// at path with args.
func (f File) CofferEntry(name, path string, args []string) upstream.Entry {
	e := upstream.Entry{Name: name}
	if f.Client != nil && f.Client.stdioType != "" {
		e.Members = append(e.Members, upstream.Member{Key: "type", Value: upstream.JSON(f.Client.stdioType)})
	}
	e.Members = append(e.Members, upstream.Member{Key: "command", Value: upstream.JSON(path)})
	return upstream.Entry{Name: name, Members: append(e.Members, upstream.Member{Key: "args", Value: upstream.JSON(args)})}
}
