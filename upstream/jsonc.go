package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// maxJSONDepth bounds nesting: hujson recurses, and a stack that overflows ends
// the process. encoding/json has the same bound.
const maxJSONDepth = 10000

// jsonDoc is a text of JSON with comments and trailing commas (JWCC), kept to
// tell positions.
type jsonDoc struct {
	name string // the file, as messages name it
	text []byte // without byte order mark, with a newline at the end
	root hujson.Value
}

// jsonValue is one value of a document, with what messages need: what it is
// called and where it starts. Messages never quote values, which may be secret.
type jsonValue struct {
	doc  *jsonDoc
	what string // `server "fs": args[1]`
	at   int    // offset in doc.text
	tree hujson.ValueTrimmed
}

// jsonMember is one member of an object; keyAt is where its key starts.
type jsonMember struct {
	jsonValue
	key   string
	keyAt int
}

// parseJSON parses the text of the file name. Errors carry the position.
func parseJSON(name string, text []byte) (jsonValue, error) {
	doc := &jsonDoc{name: name, text: bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))}
	if !bytes.HasSuffix(doc.text, []byte("\n")) {
		// hujson wants one after a line comment, even at the end of the file.
		doc.text = append(bytes.Clone(doc.text), '\n')
	}
	if bytes.HasPrefix(doc.text, []byte("\xff\xfe")) || bytes.HasPrefix(doc.text, []byte("\xfe\xff")) {
		return jsonValue{}, &HintError{
			Err:  fmt.Errorf("%s: text is UTF-16", doc.pos(0)),
			Hint: "save the file as UTF-8",
		}
	}
	if at := invalidUTF8(doc.text); at >= 0 {
		return jsonValue{}, fmt.Errorf("%s: text is not valid UTF-8", doc.pos(at))
	}
	if at := doc.tooDeep(); at >= 0 {
		return jsonValue{}, fmt.Errorf("%s: nested deeper than %d", doc.pos(at), maxJSONDepth)
	}
	root, err := hujson.Parse(doc.text)
	if err != nil {
		return jsonValue{}, doc.syntaxError(err)
	}
	doc.root = root
	return jsonValue{doc: doc, what: "config", at: root.StartOffset, tree: root.Value}, nil
}

// invalidUTF8 returns the offset of the first byte of text that is not UTF-8,
// or -1.
func invalidUTF8(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	for i := 0; ; {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
}

// tooDeep returns the offset of the bracket that nests deeper than
// maxJSONDepth, or -1.
func (d *jsonDoc) tooDeep() int {
	depth := 0
	for i := 0; i < len(d.text); i++ {
		switch d.text[i] {
		case '{', '[':
			if depth++; depth > maxJSONDepth {
				return i
			}
		case '}', ']':
			depth--
		case '"':
			for i++; i < len(d.text) && d.text[i] != '"'; i++ {
				if d.text[i] == '\\' {
					i++
				}
			}
		case '/':
			end := "\n"
			if bytes.HasPrefix(d.text[i:], []byte("/*")) {
				end = "*/"
			} else if !bytes.HasPrefix(d.text[i:], []byte("//")) {
				return -1 // not JSON, as hujson will say
			}
			length := bytes.Index(d.text[i+2:], []byte(end))
			if length < 0 {
				return -1 // likewise
			}
			i += 2 + length + len(end) - 1
		}
	}
	return -1
}

// syntaxError turns an error of hujson.Parse into one that starts with the
// position.
func (d *jsonDoc) syntaxError(err error) error {
	var line, column int // column in bytes; both stay 0 for a text unlike hujson's
	fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &line, &column)
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	at := d.offset(line, column)
	if strings.HasPrefix(err.Error(), "invalid literal") {
		// It quotes the literal whole. encoding/json says what is wrong inside.
		var bad *json.SyntaxError
		if errors.As(json.NewDecoder(bytes.NewReader(d.text[at:])).Decode(new(any)), &bad) {
			at, err = at+max(int(bad.Offset)-1, 0), bad
		} else {
			err = errors.New("invalid literal")
		}
	}
	err = fmt.Errorf("%s: not valid JSON: %w", d.pos(at), err)
	if strings.Contains(err.Error(), "string escape code") {
		return &HintError{Err: err, Hint: `write a backslash in a string as \\`}
	}
	return err
}

// offset is the inverse of hujson's line and column, which count bytes. An end
// that came too soon is placed behind the last thing that is there.
func (d *jsonDoc) offset(line, column int) int {
	at := 0
	for range line - 1 {
		at += bytes.IndexByte(d.text[at:], '\n') + 1
	}
	return min(max(at+column-1, 0), len(bytes.TrimRight(d.text, " \t\r\n")))
}

// pos writes an offset as file:line:column, with columns in characters.
func (d *jsonDoc) pos(at int) string {
	before := d.text[:at]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return fmt.Sprintf("%s:%d:%d", d.name, line, column)
}

// errorf makes an error that starts with the position and the name of v.
func (v jsonValue) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %s %w", v.doc.pos(v.at), v.what, fmt.Errorf(format, args...))
}

// mismatch is the error of a value of the wrong type.
func (v jsonValue) mismatch(want string) error {
	kind := map[hujson.Kind]string{
		'n': "null", 't': "true", 'f': "false", '"': "a string", '0': "a number", '{': "an object", '[': "an array",
	}[v.tree.Kind()]
	return v.errorf("is %s, not %s", kind, want)
}

// null reports whether v is null.
func (v jsonValue) null() bool { return v.tree.Kind() == 'n' }

// empty reports whether v is null or the empty string, array or object.
func (v jsonValue) empty() bool {
	switch t := v.tree.(type) {
	case *hujson.Object:
		return len(t.Members) == 0
	case *hujson.Array:
		return len(t.Elements) == 0
	default:
		return v.null() || string(t.(hujson.Literal)) == `""`
	}
}

// text returns v as a string.
func (v jsonValue) text() (string, error) {
	if v.tree.Kind() != '"' {
		return "", v.mismatch("a string")
	}
	return v.tree.(hujson.Literal).String(), nil
}

// boolean returns v as a bool.
func (v jsonValue) boolean() (bool, error) {
	if k := v.tree.Kind(); k != 't' && k != 'f' {
		return false, v.mismatch("true or false")
	}
	return v.tree.Kind() == 't', nil
}

// elements returns the elements of the array v.
func (v jsonValue) elements() ([]jsonValue, error) {
	array, ok := v.tree.(*hujson.Array)
	if !ok {
		return nil, v.mismatch("an array")
	}
	elements := make([]jsonValue, len(array.Elements))
	for i, e := range array.Elements {
		elements[i] = jsonValue{v.doc, fmt.Sprintf("%s[%d]", v.what, i), e.StartOffset, e.Value}
	}
	return elements, nil
}

// members returns the members of the object v in their order; name makes the
// name of a member in messages from its key. A key that stands there twice is
// an error: parsers differ on which one counts.
func (v jsonValue) members(name func(key string) string) ([]jsonMember, error) {
	object, ok := v.tree.(*hujson.Object)
	if !ok {
		return nil, v.mismatch("an object")
	}
	members := make([]jsonMember, len(object.Members))
	first := make(map[string]int, len(members)) // key -> where it starts
	for i, m := range object.Members {
		key := m.Name.Value.(hujson.Literal).String()
		member := jsonValue{v.doc, name(key), m.Value.StartOffset, m.Value.Value}
		if at, twice := first[key]; twice {
			member.at = m.Name.StartOffset
			return nil, member.errorf("is given twice, first at %s", v.doc.pos(at))
		}
		first[key] = m.Name.StartOffset
		members[i] = jsonMember{jsonValue: member, key: key, keyAt: m.Name.StartOffset}
	}
	return members, nil
}
