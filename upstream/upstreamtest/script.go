package upstreamtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"coffer/jsonrpc"
)

// Script says what a Server offers and how it misbehaves. The zero Script is a
// well-behaved server that offers nothing. Its JSON form is what the command
// fakeserver takes.
type Script struct {
	// Versions are the revisions that it speaks. It agrees to what it is asked
	// for if that is one of them, else it proposes the first. With 2026-07-28
	// it answers server/discover, too, or, if that is all, nothing else first.
	// Default: all of the handshake era, newest first.
	Versions []string `json:"versions,omitempty"`
	// Capabilities is what it declares. Default: all that it can do, with
	// listChanged and subscribe.
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	Instructions string          `json:"instructions,omitempty"`

	// What it lists, Page items at a time (0: all at once).
	Tools     []json.RawMessage `json:"tools,omitempty"`
	Resources []json.RawMessage `json:"resources,omitempty"`
	Templates []json.RawMessage `json:"templates,omitempty"`
	Prompts   []json.RawMessage `json:"prompts,omitempty"`
	Page      int               `json:"page,omitempty"`
	// TTL is the ttlMs of its lists; negative: they have none. Default: an hour.
	TTL *int `json:"ttl,omitempty"`

	// Rules say what it does with messages other than by default. The first
	// that matches counts.
	Rules []Rule `json:"rules,omitempty"`

	// Log is a file to which each message that it receives is appended as one
	// line: what was sent twice is there twice, over all restarts.
	Log string `json:"log,omitempty"`

	// Trace is a file for all that is said, in order: the connection's number,
	// ">" for what it sends or "<" for what it receives, and the message.
	Trace string `json:"trace,omitempty"`

	// Of the command only: lines for stdout (which are no protocol) and stderr
	// as it starts; to exit with a code after them; to stay when stdin ends or
	// TERM comes; how many processes to start that stay as well; a file to
	// which the pids of all of them are appended, one a line.
	Banner     []string `json:"banner,omitempty"`
	Stderr     []string `json:"stderr,omitempty"`
	Exit       *int     `json:"exit,omitempty"`
	IgnoreEOF  bool     `json:"ignore_eof,omitempty"`
	IgnoreTERM bool     `json:"ignore_term,omitempty"`
	Children   int      `json:"children,omitempty"`
	Pids       string   `json:"pids,omitempty"`

	// Of HTTP only: answer each POST with an event stream; have no stream for
	// what it starts itself (GET gets 405).
	SSE      bool `json:"sse,omitempty"`
	NoStream bool `json:"no_stream,omitempty"`
}

// Rule is a deviation. What is set is done in the order of the fields; a
// request that no field answers gets the default answer.
type Rule struct {
	// Method is the one it is for. Key, if set, must be the params' name or
	// URI. Nth, if set, has the rule apply to the nth such message only,
	// counted from 1, and over restarts where Script.Log is set.
	Method string `json:"method"`
	Key    string `json:"key,omitempty"`
	Nth    int    `json:"nth,omitempty"`

	// Wait passes before anything else, and a message of the method After must
	// have come, ever; a POST of 2026-07-28 that its client gives up is a
	// notifications/cancelled. Other messages are dealt with meanwhile.
	Wait  Duration `json:"wait,omitempty"`
	After string   `json:"after,omitempty"`
	// Status refuses the POST with it (HTTP only).
	Status int `json:"status,omitempty"`
	// Send are messages to send first. In them "$token" and "$id" stand for
	// the request's progress token and id. In 2026-07-28 what belongs to
	// subscriptions goes to those who subscribed.
	Send []json.RawMessage `json:"send,omitempty"`
	// Ask are questions to the client, one after the other: each waits for its
	// answer, or in 2026-07-28 for the retry that brings it. "$answers" in
	// Result stands for all of them, as an array.
	Ask []Question `json:"ask,omitempty"`
	// Die ends the connection (of the command: the process, with that code).
	Die *int `json:"die,omitempty"`
	// Result or Error answers. Silent has no answer sent.
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
	Silent bool            `json:"silent,omitempty"`
}

// Question is a request of a Server to its client.
type Question struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
}

// Duration is a time.Duration that is written as Go does, "1.5s".
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// ReadScript reads a Script from its JSON text, or from the file that text
// names if it is none. A misspelt key is an error.
func ReadScript(text string) (Script, error) {
	var s Script
	source := []byte(text)
	if len(text) == 0 || text[0] != '{' {
		var err error
		if source, err = os.ReadFile(text); err != nil {
			return s, fmt.Errorf("script: %w", err)
		}
	}
	d := json.NewDecoder(bytes.NewReader(source))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("script: %w", err)
	}
	return s, nil
}

// concerns reports whether the rule is for m, whichever it is in number.
func (r *Rule) concerns(m *jsonrpc.Message) bool {
	return r.Method == m.Method && (r.Key == "" || r.Key == keyOf(m))
}

// keyOf returns the name or URI that a request is about, or "".
func keyOf(m *jsonrpc.Message) string {
	if name, ok := jsonrpc.TextAt(m.Params, "name"); ok {
		return name
	}
	uri, _ := jsonrpc.TextAt(m.Params, "uri")
	return uri
}

// filled returns a message of Send with the request's token and id in place.
func filled(text json.RawMessage, m *jsonrpc.Message) []byte {
	out := []byte(text)
	if token := jsonrpc.Lookup(m.Params, "_meta", "progressToken"); token != nil {
		out = bytes.ReplaceAll(out, []byte(`"$token"`), token)
	}
	if m.ID != nil {
		out = bytes.ReplaceAll(out, []byte(`"$id"`), m.ID)
	}
	return out
}
