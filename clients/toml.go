package clients

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"coffer/upstream"
)

// tomlServers is the table of servers in Codex's config.toml.
const tomlServers = "mcp_servers"

// tomlFile is a text of TOML taken apart. No library changes TOML in place, so the
// lines that belong to a server are found here, and every edit is checked by
// parsing its result and comparing it with what it should mean.
type tomlFile struct {
	values  map[string]any // all of it
	servers []upstream.Entry
	parts   []tomlPart
}

// tomlPart is a stretch of the text: a table's head and all up to the next, or a
// key and its value before any table or in [mcp_servers].
type tomlPart struct {
	server     string // whose it is, "" for nobody's
	start, end int
}

// parseTOML parses the text of the file name. Errors start with file:line:column.
func parseTOML(name string, text []byte) (*tomlFile, error) {
	f := &tomlFile{values: map[string]any{}}
	if err := toml.Unmarshal(text, &f.values); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column := at.Position()
			return nil, fmt.Errorf("%s:%d:%d: not valid TOML: %w", name, line, column, err)
		}
		return nil, fmt.Errorf("%s: not valid TOML: %w", name, err)
	}
	table, ok := f.values[tomlServers].(map[string]any)
	if !ok && f.values[tomlServers] != nil {
		return nil, fmt.Errorf("%s: %s is not a table", name, tomlServers)
	}
	order := f.split(text)
	for _, server := range slices.SortedFunc(maps.Keys(table), order.compare) {
		members, ok := table[server].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: %s.%s is not a table", name, tomlServers, server)
		}
		e := upstream.Entry{Name: server}
		for _, key := range slices.SortedFunc(maps.Keys(members), order.compare) {
			value, err := json.Marshal(members[key])
			if err != nil { // inf and nan
				return nil, fmt.Errorf("%s: %s.%s.%s: %w", name, tomlServers, server, key, err)
			}
			e.Members = append(e.Members, upstream.Member{Key: key, Value: value})
		}
		f.servers = append(f.servers, e)
	}
	return f, nil
}

// appearance says where a name came first.
type appearance map[string]int

func (a appearance) compare(x, y string) int { return cmp.Or(a[x]-a[y], strings.Compare(x, y)) }

// split finds the parts of text, and the order in which names come.
func (f *tomlFile) split(text []byte) appearance {
	order := appearance{}
	var table []string // the table that keys are in now
	parser := unstable.Parser{}
	parser.Reset(text)
	for parser.NextExpression() {
		e := parser.Expression()
		var key []string
		start := -1
		for it := e.Key(); it.Next(); {
			if node := it.Node(); start < 0 {
				start = int(node.Raw.Offset)
			}
			key = append(key, string(it.Node().Data))
		}
		start = bytes.LastIndexByte(text[:start], '\n') + 1
		isTable := e.Kind != unstable.KeyValue
		path := key
		if isTable {
			table = key
		} else {
			path = append(slices.Clone(table), key...)
		}
		for _, name := range path {
			if _, known := order[name]; !known {
				order[name] = len(order)
			}
		}
		end := int(e.Raw.Offset + e.Raw.Length)
		switch {
		case isTable:
			f.add(tomlPart{serverOf(key), start, len(text)}, text)
		case len(table) == 0 || len(table) == 1 && table[0] == tomlServers:
			f.add(tomlPart{serverOf(path), start, lineEnd(text, end)}, text)
		}
	}
	return order
}

// add puts a part behind the others: what ran on to the end stops before it, and
// before the comments that stand right above it.
func (f *tomlFile) add(part tomlPart, text []byte) {
	for part.start > 0 {
		line := bytes.LastIndexByte(text[:part.start-1], '\n') + 1
		if !bytes.HasPrefix(bytes.TrimLeft(text[line:part.start], " \t"), []byte("#")) {
			break
		}
		part.start = line
	}
	if n := len(f.parts); n > 0 {
		previous := &f.parts[n-1]
		part.start = max(part.start, previous.start)
		previous.end = min(previous.end, part.start)
	}
	f.parts = append(f.parts, part)
}

// serverOf is the server that a key in full belongs to.
func serverOf(path []string) string {
	if len(path) > 1 && path[0] == tomlServers {
		return path[1]
	}
	return ""
}

// lineEnd returns where the line at offset i ends, its end included.
func lineEnd(text []byte, i int) int {
	if n := bytes.IndexByte(text[i:], '\n'); n >= 0 {
		return i + n + 1
	}
	return len(text)
}

// addTOML is Add.
func (f File) addTOML(text []byte, e upstream.Entry) ([]byte, error) {
	before, err := parseTOML(f.Path, text)
	if err != nil {
		return nil, err
	}
	eol := "\n"
	if bytes.Contains(text, []byte("\r\n")) {
		eol = "\r\n"
	}
	added := bytes.Clone(text)
	if len(added) > 0 && !bytes.HasSuffix(added, []byte("\n")) {
		added = append(added, eol...)
	}
	if len(bytes.TrimSpace(added)) > 0 {
		added = append(added, eol...)
	}
	added = append(added, fmt.Sprintf("[%s.%s]%s", tomlServers, tomlKey(e.Name), eol)...)
	want := map[string]any{}
	for _, m := range e.Members {
		value, err := tomlValue(m.Value)
		if err != nil {
			return nil, err
		}
		added = append(added, fmt.Sprintf("%s = %s%s", tomlKey(m.Key), value, eol)...)
		want[m.Key] = m.Value
	}
	return f.agreed(before, added, func(servers map[string]json.RawMessage) {
		servers[e.Name] = upstream.JSON(want)
	})
}

// removeTOML is Remove.
func (f File) removeTOML(text []byte, name string) ([]byte, error) {
	before, err := parseTOML(f.Path, text)
	if err != nil {
		return nil, err
	}
	var left []byte
	at := 0
	for _, part := range before.parts {
		if part.server == name {
			left = append(left, text[at:part.start]...)
			at = part.end
		}
	}
	left = append(left, text[at:]...)
	if at == len(text) && at > 0 { // the empty lines above what was last go with it
		left = append(bytes.TrimRight(left, "\r\n"), text[len(bytes.TrimRight(text, "\r\n")):]...)
		left = bytes.TrimLeft(left, "\r\n")
	}
	return f.agreed(before, left, func(servers map[string]json.RawMessage) { delete(servers, name) })
}

// agreed returns text if it means what before meant after change, and is refused
// otherwise: the file uses a form that this does not know to edit.
func (f File) agreed(before *tomlFile, text []byte, change func(servers map[string]json.RawMessage)) ([]byte, error) {
	after, err := parseTOML(f.Path, text)
	if err == nil {
		want := meaning(before)
		change(want)
		delete(before.values, tomlServers)
		delete(after.values, tomlServers)
		got := meaning(after)
		if !maps.EqualFunc(want, got, sameJSON) || !reflect.DeepEqual(before.values, after.values) {
			err = errors.New("its servers are written in a form that coffer does not edit")
		}
	}
	if err != nil {
		return nil, &upstream.HintError{
			Err:  fmt.Errorf("%s: nothing was changed: %w", f.Path, err),
			Hint: "write each server as a table [mcp_servers.NAME], or edit the file by hand",
		}
	}
	return text, nil
}

// meaning are the servers of a file by name.
func meaning(f *tomlFile) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for _, e := range f.servers {
		all[e.Name] = upstream.Object(e.Members)
	}
	return all
}

// sameJSON reports whether two texts of JSON mean the same.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// tomlKey writes a key, quoted where it must be.
func tomlKey(key string) string {
	bare := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	}
	if key != "" && strings.IndexFunc(key, func(r rune) bool { return !bare(r) }) < 0 {
		return key
	}
	return string(upstream.JSON(key)) // a string of JSON is one of TOML
}

// tomlValue writes a JSON value as TOML.
func tomlValue(value json.RawMessage) (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var decoded any
	if err := decoder.Decode(&decoded); err != nil {
		return "", err
	}
	return tomlOf(decoded)
}

// tomlOf is tomlValue for a value that is decoded.
func tomlOf(value any) (string, error) {
	var parts []string
	switch v := value.(type) {
	case nil:
		return "", errors.New("TOML has no null")
	case []any:
		for _, element := range v {
			text, err := tomlOf(element)
			if err != nil {
				return "", err
			}
			parts = append(parts, text)
		}
		return "[" + strings.Join(parts, ", ") + "]", nil
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			text, err := tomlOf(v[key])
			if err != nil {
				return "", err
			}
			parts = append(parts, tomlKey(key)+" = "+text)
		}
		return "{ " + strings.Join(parts, ", ") + " }", nil
	default:
		return string(upstream.JSON(v)), nil
	}
}
