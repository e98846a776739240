package jsonrpc

import "errors"

// Version is the only value of the jsonrpc member (JSON-RPC 2.0 §4).
const Version = "2.0"

// The error codes of JSON-RPC 2.0 §5.1.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
)

// What may be wrong with a line. All leave the stream usable: the next line may
// be sound.
var (
	// ErrSyntax says that a line is not JSON.
	ErrSyntax = errors.New("not JSON")
	// ErrEnvelope says that a line is JSON, but no JSON-RPC 2.0 message.
	ErrEnvelope = errors.New("not a JSON-RPC 2.0 message")
	// ErrUnexpected says that a line is a response that no call waits for: late
	// after a cancellation, or never asked for.
	ErrUnexpected = errors.New("response to no open request")
)

// Message is one JSON-RPC message. Its members are exact slices of the text it
// was parsed from, or what is to be sent, each on one line; a nil slice is an
// absent member. The bytes are shared and never written to.
//
//	request       ID, Method, Params?
//	notification  Method, Params?
//	response      ID, and Result or Error (an error may lack the ID)
type Message struct {
	ID     []byte // raw token: a string or an integer, as the peer wrote it
	Method string
	Params []byte
	Result []byte
	Error  []byte
	Batch  [][]byte // instead of all the above, to send: the texts of a batch
}

// IsRequest reports whether m asks for an answer.
func (m *Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsNotification reports whether m is a one-way message.
func (m *Message) IsNotification() bool { return m.Method != "" && m.ID == nil }

// Parse finds the members of the one message in text, which must be a single
// object. Values are checked to be JSON and not decoded. Where a member occurs
// twice the last counts, as in encoding/json; unknown members are ignored.
func Parse(text []byte) (*Message, error) {
	m := new(Message)
	if err := m.parse(text); err != nil {
		return nil, err
	}
	return m, nil
}

// parse makes m the message in text. After an error m is of no use.
func (m *Message) parse(text []byte) error {
	*m = Message{}
	s := scanner{text}
	start := s.space(0)
	version, named := false, true
	end := s.members(start, func(key, value []byte) {
		switch string(key) {
		case "jsonrpc":
			version = string(value) == `"`+Version+`"`
		case "id":
			m.ID = value
		case "method":
			m.Method, named = Text(value)
			named = named && m.Method != ""
		case "params":
			m.Params = unlessNull(value) // what some clients send for "none"
		case "result":
			m.Result = value
		case "error":
			m.Error = unlessNull(value) // JSON-RPC 1.0 habit, beside a result
		}
	})
	switch {
	case end < 0:
		// Either no object or no JSON at all.
		if end = s.value(start); end >= 0 && s.space(end) == len(text) {
			return ErrEnvelope
		}
		return ErrSyntax
	case s.space(end) != len(text):
		return ErrSyntax
	}
	if m.Error != nil {
		m.ID = unlessNull(m.ID)         // JSON-RPC 2.0 §5: the request's id could not be read
		m.Result = unlessNull(m.Result) // JSON-RPC 1.0 habit, beside an error
	}
	if !version || !named || !m.wellFormed() {
		return ErrEnvelope
	}
	return nil
}

// unlessNull returns value, or nil if it is null.
func unlessNull(value []byte) []byte {
	if string(value) == "null" {
		return nil
	}
	return value
}

// wellFormed checks the combination of members and the type of the id.
func (m *Message) wellFormed() bool {
	if m.ID != nil && !validID(m.ID) {
		return false
	}
	if m.Method != "" {
		return m.Result == nil && m.Error == nil
	}
	if m.Params != nil {
		return false
	}
	if m.Error != nil {
		return m.Result == nil && m.Error[0] == '{'
	}
	return m.Result != nil && m.ID != nil
}

// validID reports whether raw may stand as an id: a string or an integer
// (MCP 2025-11-25, basic: ids MUST NOT be null; the schema allows no
// fractions). raw is JSON.
func validID(raw []byte) bool {
	if raw[0] == '"' {
		return true
	}
	for i, c := range raw {
		if (c < '0' || c > '9') && (c != '-' || i > 0) {
			return false
		}
	}
	return true
}

// members calls yield for each member of the object at i, with the name
// decoded and the value as an exact slice, and returns the offset after the
// object, or -1 if there is no well-formed object at i.
func (s scanner) members(i int, yield func(key, value []byte)) int {
	if i >= len(s.text) || s.text[i] != '{' {
		return -1
	}
	if i = s.space(i + 1); i < len(s.text) && s.text[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(s.text) || s.text[i] != '"' {
			return -1
		}
		named := s.str(i)
		value := s.colon(named)
		if value < 0 {
			return -1
		}
		end := s.value(value)
		if end < 0 {
			return -1
		}
		// Not before it is seen to end here: a number may have been cut.
		next := s.space(end)
		if next >= len(s.text) || s.text[next] != ',' && s.text[next] != '}' {
			return -1
		}
		yield(unquote(s.text[i:named]), s.text[value:end])
		if s.text[next] == '}' {
			return next + 1
		}
		i = s.space(next + 1)
	}
}

// Batch splits a JSON-RPC batch (an array, MCP 2025-03-26 only) into the texts
// of its elements. ok is false if text is no array, or an empty one.
func Batch(text []byte) (elements [][]byte, ok bool) {
	elements, ok = Elements(text)
	return elements, ok && len(elements) > 0
}

// elements calls yield for each element of the array at i, as an exact slice,
// and returns the offset after the array, or -1 if there is no well-formed
// array at i.
func (s scanner) elements(i int, yield func(value []byte)) int {
	if i >= len(s.text) || s.text[i] != '[' {
		return -1
	}
	if i = s.space(i + 1); i < len(s.text) && s.text[i] == ']' {
		return i + 1
	}
	for {
		end := s.value(i)
		if end < 0 {
			return -1
		}
		yield(s.text[i:end])
		if i = s.space(end); i >= len(s.text) {
			return -1
		}
		switch s.text[i] {
		case ']':
			return i + 1
		case ',':
			i = s.space(i + 1)
		default:
			return -1
		}
	}
}

// split appends to dst what stands before m's one large member on the wire, and
// returns that member and what stands behind it. So a Writer need not copy big
// values.
func (m *Message) split(dst []byte) (head, body []byte, tail string) {
	if m.Batch != nil {
		return joinBatch(dst, m.Batch), nil, ""
	}
	head = append(dst, `{"jsonrpc":"2.0"`...)
	if m.ID != nil {
		head = append(append(head, `,"id":`...), m.ID...)
	}
	switch {
	case m.Method != "":
		head = AppendQuote(append(head, `,"method":`...), m.Method)
		if m.Params == nil {
			return head, nil, "}"
		}
		return append(head, `,"params":`...), m.Params, "}"
	case m.Error != nil:
		return append(head, `,"error":`...), m.Error, "}"
	default:
		return append(head, `,"result":`...), m.Result, "}"
	}
}

func joinBatch(dst []byte, elements [][]byte) []byte {
	dst = append(dst, '[')
	for i, text := range elements {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, text...)
	}
	return append(dst, ']')
}

// Append appends m's JSON text to dst.
func (m *Message) Append(dst []byte) []byte {
	head, body, tail := m.split(dst)
	return append(append(head, body...), tail...)
}
