package upstreamtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schemas are the published JSON schemas of MCP. They are safe for concurrent
// use.
type Schemas struct {
	mu        sync.Mutex
	compiler  *jsonschema.Compiler
	compiled  map[string]*jsonschema.Schema // guarded by mu, as is compiler: location -> definition
	revisions map[string]*revision
}

// revision is what one schema says of methods.
type revision struct {
	root    string                    // where the definitions stand: "definitions" or "$defs"
	defined map[string]map[string]any // name -> definition
	methods map[string]string         // method -> the definition of its request or notification
}

// ReadSchemas reads REVISION.json for every revision from dir.
func ReadSchemas(dir string) (*Schemas, error) {
	s := &Schemas{compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}, revisions: map[string]*revision{}}
	for _, name := range append(slices.Clone(versions), modern) {
		text, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = s.compiler.AddResource("mcp:"+name, doc)
		}
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", name, err)
		}
		s.revisions[name] = newRevision(doc.(map[string]any))
	}
	return s, nil
}

func newRevision(doc map[string]any) *revision {
	r := &revision{root: "$defs", defined: map[string]map[string]any{}, methods: map[string]string{}}
	if doc[r.root] == nil {
		r.root = "definitions"
	}
	for name, def := range doc[r.root].(map[string]any) {
		def := def.(map[string]any)
		r.defined[name] = def
		properties, _ := def["properties"].(map[string]any)
		method, _ := properties["method"].(map[string]any)
		// A union of one member is written as that member.
		if text, ok := method["const"].(string); ok && name != "ClientNotification" {
			r.methods[text] = name
		}
	}
	return r
}

// known reports whether any revision has the method.
func (s *Schemas) known(method string) bool {
	for _, r := range s.revisions {
		if r.methods[method] != "" {
			return true
		}
	}
	return false
}

// sends reports whether the side that union is about ("ClientRequest") sends
// messages of that definition.
func (r *revision) sends(union, name string) bool {
	def := r.defined[union]
	members, _ := def["anyOf"].([]any)
	if members == nil {
		properties, _ := def["properties"].(map[string]any)
		method, _ := properties["method"].(map[string]any)
		return method["const"] != nil && r.methods[method["const"].(string)] == name
	}
	return slices.ContainsFunc(members, func(m any) bool {
		ref, _ := m.(map[string]any)["$ref"].(string)
		return strings.HasSuffix(ref, "/"+name)
	})
}

// asks reports whether a response of that definition may be a question.
func (r *revision) asks(response string) bool {
	properties, _ := r.defined[response]["properties"].(map[string]any)
	result, _ := properties["result"].(map[string]any)
	choice, _ := result["anyOf"].([]any)
	return slices.ContainsFunc(choice, func(m any) bool {
		ref, _ := m.(map[string]any)["$ref"].(string)
		return strings.HasSuffix(ref, "/InputRequiredResult")
	})
}

// Fault is one way in which a message breaks the schema of its revision.
type Fault struct {
	Revision   string
	Definition string // which the message should be
	At         string // JSON pointer into the message
	Problem    string
	Line       []byte // the message
}

func (f Fault) String() string {
	return fmt.Sprintf("%s %s %s: %s\n      in %s", f.Revision, f.Definition, f.At, f.Problem, f.Line)
}

// check validates the part of a line that at points to ("" or "/result").
func (s *Schemas) check(version, definition, at string, part, line []byte) []Fault {
	schema, err := s.definition(version, definition)
	if err != nil {
		panic(err) // a check that cannot be made proves nothing
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(part))
	if err == nil {
		err = schema.Validate(value)
	}
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []Fault{{version, definition, at, err.Error(), line}}
	}
	var all []Fault
	for _, e := range branches(invalid) {
		where := at
		for _, step := range e.InstanceLocation {
			where += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step)
		}
		problem := strings.Join(strings.Fields(e.Error()), " ")
		all = append(all, Fault{version, definition, where, problem, line})
	}
	slices.SortFunc(all, func(a, b Fault) int { return strings.Compare(a.At, b.At) })
	return slices.CompactFunc(all, func(a, b Fault) bool { return a.At == b.At })
}

// branches returns the deepest errors that are certain: below a choice of
// several schemas nobody can tell which was meant.
func branches(e *jsonschema.ValidationError) []*jsonschema.ValidationError {
	keyword := e.ErrorKind.KeywordPath()
	choice := len(keyword) > 0 && (keyword[0] == "anyOf" || keyword[0] == "oneOf")
	if len(e.Causes) == 0 || choice {
		return []*jsonschema.ValidationError{e}
	}
	var all []*jsonschema.ValidationError
	for _, cause := range e.Causes {
		all = append(all, branches(cause)...)
	}
	return all
}

func (s *Schemas) definition(version, name string) (*jsonschema.Schema, error) {
	at := "mcp:" + version + "#/" + s.revisions[version].root + "/" + name
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compiled[at] == nil {
		schema, err := s.compiler.Compile(at)
		if err != nil {
			return nil, err
		}
		s.compiled[at] = schema
	}
	return s.compiled[at], nil
}
