package jsonrpc

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"unicode/utf8"
)

// maxDepth bounds nesting as encoding/json does, so that whatever passes the
// scanner can be read by a decoder behind it. It is less by one because a
// value is always looked at as part of an object or array.
const maxDepth = 10000 - 1

// scanner walks JSON text without decoding it. Its methods take an offset and
// return the offset after what they recognised, or -1 where the text is not
// JSON (RFC 8259). It never allocates save for nesting deeper than its stack.
type scanner struct {
	text []byte
}

// space returns the offset of the first byte at or after i that is not JSON
// white space.
func (s scanner) space(i int) int {
	for i < len(s.text) && s.text[i] <= ' ' {
		switch s.text[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// value recognises the value that starts at i.
func (s scanner) value(i int) int {
	if i >= len(s.text) {
		return -1
	}
	switch s.text[i] {
	case '"':
		return s.str(i)
	case '{', '[':
		return s.container(i)
	default:
		return s.scalar(i)
	}
}

// container recognises the object or array that starts at i. It keeps a stack
// of its own rather than recursing, so that hostile nesting costs bytes and not
// goroutine stack.
func (s scanner) container(i int) int {
	var room [64]byte
	open := room[:0] // the containers around i: '{' or '['
	for i < len(s.text) {
		switch c := s.text[i]; c {
		case '{', '[':
			if len(open) == maxDepth {
				return -1
			}
			i = s.space(i + 1)
			if i < len(s.text) && s.text[i] == c+2 { // '{'+2 is '}', '['+2 is ']'
				i++
				break
			}
			open = append(open, c)
			if c == '{' {
				i = s.key(i)
			}
			if i < 0 {
				return -1
			}
			continue
		case '"':
			i = s.str(i)
		default:
			i = s.scalar(i)
		}
		if i < 0 {
			return -1
		}
		// A value is complete: close what closes here, then go to the next.
		for {
			if len(open) == 0 {
				return i
			}
			top := open[len(open)-1]
			if i = s.space(i); i >= len(s.text) {
				return -1
			}
			if s.text[i] == top+2 {
				open = open[:len(open)-1]
				i++
				continue
			}
			if s.text[i] != ',' {
				return -1
			}
			i = s.space(i + 1)
			if top == '{' {
				if i = s.key(i); i < 0 {
					return -1
				}
			}
			break
		}
	}
	return -1
}

// key recognises a member's name and its colon, and returns where the
// member's value starts.
func (s scanner) key(i int) int {
	if i >= len(s.text) || s.text[i] != '"' {
		return -1
	}
	return s.colon(s.str(i))
}

// colon recognises the colon that follows a name, and returns where the
// member's value starts. i is where the name ends, or -1.
func (s scanner) colon(i int) int {
	if i < 0 {
		return -1
	}
	if i = s.space(i); i >= len(s.text) || s.text[i] != ':' {
		return -1
	}
	return s.space(i + 1)
}

// str recognises the string that starts at i. Plain stretches are skipped
// eight bytes at a time.
func (s scanner) str(i int) int {
	text := s.text
	for i++; i < len(text); {
		if i+8 <= len(text) {
			odd := special(binary.LittleEndian.Uint64(text[i:]))
			if odd == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(odd) / 8
		}
		switch c := text[i]; {
		case c == '"':
			return i + 1
		case c < 0x20:
			return -1
		case c == '\\':
			if i = s.escape(i + 1); i < 0 {
				return -1
			}
		}
		i++
	}
	return -1
}

// special sets the top bit of the first byte of w, from the low end, that ends
// a plain stretch of a string: a quote, a backslash or a control character.
// Bits may be set above that byte, never below.
func special(w uint64) uint64 {
	const lows, highs = 0x0101010101010101, 0x8080808080808080
	// Taking n from a byte sets its top bit if the byte is less than n; the
	// bytes whose own top bit is set are no such characters.
	return ((w - lows*0x20) | (w ^ lows*'"' - lows) | (w ^ lows*'\\' - lows)) &^ w & highs
}

// escape recognises what follows a backslash and returns the offset of its
// last byte.
func (s scanner) escape(i int) int {
	if i >= len(s.text) {
		return -1
	}
	switch s.text[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i
	case 'u':
		if i+4 >= len(s.text) {
			return -1
		}
		for _, c := range s.text[i+1 : i+5] {
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
				return -1
			}
		}
		return i + 4
	}
	return -1
}

// scalar recognises a number, true, false or null.
func (s scanner) scalar(i int) int {
	word := ""
	switch s.text[i] {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	default:
		return s.number(i)
	}
	if end := i + len(word); end <= len(s.text) && string(s.text[i:end]) == word {
		return end
	}
	return -1
}

func (s scanner) number(i int) int {
	if i < len(s.text) && s.text[i] == '-' {
		i++
	}
	if i < len(s.text) && s.text[i] == '0' {
		i++
	} else if i = s.digits(i); i < 0 {
		return -1
	}
	if i < len(s.text) && s.text[i] == '.' {
		if i = s.digits(i + 1); i < 0 {
			return -1
		}
	}
	if i < len(s.text) && (s.text[i] == 'e' || s.text[i] == 'E') {
		i++
		if i < len(s.text) && (s.text[i] == '+' || s.text[i] == '-') {
			i++
		}
		return s.digits(i)
	}
	return i
}

// digits recognises one digit or more.
func (s scanner) digits(i int) int {
	start := i
	for i < len(s.text) && '0' <= s.text[i] && s.text[i] <= '9' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// toUTF8 returns text with every run of invalid bytes replaced by U+FFFD; MCP
// requires UTF-8 on the wire (2025-11-25, basic/transports). Valid text is
// returned as it is.
func toUTF8(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	return bytes.ToValidUTF8(text, []byte("\uFFFD"))
}

// OneLine returns JSON text that came by some other way than a Reader as line
// framing demands it: valid UTF-8 without line breaks. A line break in valid
// JSON can only stand between tokens, where a space means the same. text is
// not changed.
func OneLine(text []byte) []byte {
	text = toUTF8(text)
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 {
		return text
	}
	text = bytes.Clone(text)
	for i, c := range text {
		if c == '\n' || c == '\r' {
			text[i] = ' '
		}
	}
	return text
}

// Text returns the string that a JSON string token stands for. ok is false if
// raw is not a JSON string. A lone surrogate becomes U+FFFD: whoever needs it
// unharmed passes raw on.
func Text(raw []byte) (text string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' || (scanner{raw}).str(0) != len(raw) {
		return "", false
	}
	return string(unquote(raw)), true
}

// unquote returns what the string token raw stands for. It copies only if there
// are escapes or invalid bytes, which is rare in names and URIs.
func unquote(raw []byte) []byte {
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return inner
	}
	var text string
	json.Unmarshal(raw, &text) // cannot fail: raw has passed the scanner
	return []byte(text)
}

// Quote returns s as a JSON string token. Unlike json.Marshal it leaves <, >
// and & alone. Invalid UTF-8 becomes U+FFFD.
func Quote(s string) []byte {
	return AppendQuote(make([]byte, 0, len(s)+2), s)
}

// AppendQuote appends s as a JSON string token to dst.
func AppendQuote(dst []byte, s string) []byte {
	dst = append(dst, '"')
	plain := 0 // s[:plain] needs no escapes, and is valid UTF-8
	for plain < len(s) && ' ' <= s[plain] && s[plain] < utf8.RuneSelf && s[plain] != '"' && s[plain] != '\\' {
		plain++
	}
	dst = append(dst, s[:plain]...)
	for _, r := range s[plain:] {
		dst = appendEscaped(dst, r)
	}
	return append(dst, '"')
}

// appendEscaped appends r as it stands in a JSON string.
func appendEscaped(dst []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return append(dst, '\\', byte(r))
	case r == '\n':
		return append(dst, `\n`...)
	case r == '\t':
		return append(dst, `\t`...)
	case r == '\r':
		return append(dst, `\r`...)
	case r < ' ':
		return append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
	}
	return utf8.AppendRune(dst, r)
}
