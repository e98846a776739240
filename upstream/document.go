package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// Document is a JSON file of servers, with comments and trailing commas
// allowed, of which single servers can be changed. Every byte that a change
// does not concern stays: comments, order, unknown keys, indentation, line
// ends, a byte order mark.
type Document struct {
	doc     *jsonDoc
	bom     bool
	newline bool // parseJSON added one at the end
	unit    string
	eol     string
}

// Entry is one server as its file has it: nothing is expanded or checked.
type Entry struct {
	Name    string
	Members []Member
}

// Member is one key of a server, and its value as JSON without comments.
type Member struct {
	Key   string
	Value json.RawMessage
}

// Get returns the value of key, nil if there is none.
func (e Entry) Get(key string) json.RawMessage {
	for _, m := range e.Members {
		if m.Key == key {
			return m.Value
		}
	}
	return nil
}

// JSON returns v, which must be something that encoding/json can encode, the way
// that a person writes it: with < and & as they are.
func JSON(v any) json.RawMessage {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err) // a value of ours that has no JSON form
	}
	return bytes.TrimSpace(text.Bytes())
}

// Object writes members as a JSON object, in their order.
func Object(members []Member) json.RawMessage {
	text := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, JSON(m.Key)...), ':'), m.Value...)
	}
	return append(text, '}')
}

// ParseDocument parses the text of the file name. A text of nothing but white
// space is taken as an empty object: some clients leave such a file. Errors
// start with file:line:column.
func ParseDocument(name string, text []byte) (*Document, error) {
	d := &Document{unit: "  ", eol: "\n"}
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	root, err := parseJSON(name, text)
	if err != nil {
		return nil, err
	}
	d.doc = root.doc
	d.bom = bytes.HasPrefix(text, []byte("\xef\xbb\xbf"))
	d.newline = !bytes.HasSuffix(text, []byte("\n"))
	if bytes.Contains(text, []byte("\r\n")) {
		d.eol = "\r\n"
	}
	members, err := root.members(func(key string) string { return key })
	if err != nil {
		return nil, err
	}
	if len(members) > 0 {
		if indent, own := lineIndent(d.root().Members[0].Name.BeforeExtra); own && indent != "" {
			d.unit = indent
		}
	}
	return d, nil
}

// root is the outermost object.
func (d *Document) root() *hujson.Object { return d.doc.root.Value.(*hujson.Object) }

// value is root with its position, to read from before any change.
func (d *Document) value() jsonValue {
	return jsonValue{doc: d.doc, what: "config", at: d.doc.root.StartOffset, tree: d.root()}
}

// Text is the document as it is now.
func (d *Document) Text() []byte {
	text := d.doc.root.Pack()
	if d.newline {
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	if d.bom {
		text = append([]byte("\xef\xbb\xbf"), text...)
	}
	return text
}

// ConfigServers are the servers of a file of coffer's own form: those of
// mcpServers, or of servers where the file has that instead.
func (d *Document) ConfigServers() (*Servers, error) {
	members, err := d.value().members(func(key string) string { return key })
	if err != nil {
		return nil, err
	}
	key, err := serversMember(members)
	if err != nil {
		return nil, err
	}
	if key == "" {
		key = "mcpServers"
	}
	return d.Servers(key)
}

// Servers is one object of servers in a document.
type Servers struct {
	document *Document
	path     []string
}

// Servers finds the object of servers at the end of path, each step of which is
// a key. One that is missing, or null, has no servers and comes to be when one
// is added.
func (d *Document) Servers(path ...string) (*Servers, error) {
	s := &Servers{document: d, path: path}
	value := d.value()
	for i, key := range path {
		members, err := value.members(func(key string) string { return key })
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(members, func(m jsonMember) bool { return m.key == key })
		if at < 0 || members[at].null() {
			return s, nil
		}
		value = members[at].jsonValue
		value.what = strings.Join(path[:i+1], ".")
	}
	servers, err := value.members(func(key string) string { return fmt.Sprintf("server %q", key) })
	if err != nil {
		return nil, err
	}
	for _, m := range servers {
		if _, err := m.members(func(key string) string { return m.what + ": " + key }); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// object returns the servers' object and the indentation of the line that it
// starts on; nil if it is not there.
func (s *Servers) object() (object *hujson.Object, indent string) {
	object = s.document.root()
	for _, key := range s.path {
		i := memberIndex(object, key)
		if i < 0 {
			return nil, ""
		}
		if own, ok := lineIndent(object.Members[i].Name.BeforeExtra); ok {
			indent = own
		}
		next, ok := object.Members[i].Value.Value.(*hujson.Object)
		if !ok { // null, as Servers has seen
			return nil, ""
		}
		object = next
	}
	return object, indent
}

// All returns the servers in the order of the file.
func (s *Servers) All() []Entry {
	object, _ := s.object()
	if object == nil {
		return nil
	}
	entries := make([]Entry, len(object.Members))
	for i, m := range object.Members {
		entries[i] = Entry{Name: m.Name.Value.(hujson.Literal).String()}
		for _, member := range m.Value.Value.(*hujson.Object).Members {
			value := member.Value.Clone()
			value.Minimize()
			entries[i].Members = append(entries[i].Members, Member{
				Key: member.Name.Value.(hujson.Literal).String(), Value: value.Pack(),
			})
		}
	}
	return entries
}

// Find returns the server with that name.
func (s *Servers) Find(name string) (Entry, bool) {
	for _, e := range s.All() {
		if e.Name == name {
			return e, true
		}
	}
	return Entry{}, false
}

// Add puts e behind the servers that there are. The caller has seen that none has
// its name.
func (s *Servers) Add(e Entry) {
	object, indent := s.object()
	if object == nil {
		object, indent = s.create()
	}
	s.document.appendMember(object, indent, e.Name, Object(e.Members))
}

// create makes the object of servers, and those that it stands in.
func (s *Servers) create() (object *hujson.Object, indent string) {
	object = s.document.root()
	for _, key := range s.path {
		i := memberIndex(object, key)
		if i < 0 {
			s.document.appendMember(object, indent, key, []byte("{}"))
			i = len(object.Members) - 1
		} else if object.Members[i].Value.Value.Kind() == 'n' {
			object.Members[i].Value.Value = &hujson.Object{}
		}
		if own, ok := lineIndent(object.Members[i].Name.BeforeExtra); ok {
			indent = own
		}
		object = object.Members[i].Value.Value.(*hujson.Object)
	}
	return object, indent
}

// Remove takes the server with that name out, with the comments that are right
// above it and behind it on its last line, and reports whether it was there.
func (s *Servers) Remove(name string) bool {
	object, _ := s.object()
	if object == nil {
		return false
	}
	i := memberIndex(object, name)
	if i < 0 {
		return false
	}
	s.document.removeMember(object, i)
	return true
}

// Set gives a key of the server with that name a value, and reports whether the
// server is there.
func (s *Servers) Set(name, key string, value json.RawMessage) bool {
	servers, indent := s.object()
	if servers == nil {
		return false
	}
	i := memberIndex(servers, name)
	if i < 0 {
		return false
	}
	if own, ok := lineIndent(servers.Members[i].Name.BeforeExtra); ok {
		indent = own
	}
	server := servers.Members[i].Value.Value.(*hujson.Object)
	if at := memberIndex(server, key); at >= 0 {
		server.Members[at].Value.Value = mustParse(value).Value
	} else {
		s.document.appendMember(server, indent, key, value)
	}
	return true
}

// memberIndex returns the index of the member with that key, or -1.
func memberIndex(object *hujson.Object, key string) int {
	return slices.IndexFunc(object.Members, func(m hujson.ObjectMember) bool {
		return m.Name.Value.(hujson.Literal).String() == key
	})
}

// mustParse parses JSON that was written or checked by us.
func mustParse(text []byte) hujson.Value {
	v, err := hujson.Parse(text)
	if err != nil {
		panic(err)
	}
	return v
}
