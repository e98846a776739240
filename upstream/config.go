package upstream

import (
	"fmt"
	"time"
)

// What a config file that does not say otherwise gets (design §3).
const (
	defaultCacheTTL         = 60 * time.Second
	defaultMaxNameLength    = 64
	defaultMaxMessageSize   = 64 << 20
	defaultInstructionsWait = 500 * time.Millisecond
	defaultConnectTimeout   = 30 * time.Second
	defaultListTimeout      = 10 * time.Second
)

const (
	// minNameLength leaves room for a hash tail and some of the name before it.
	minNameLength = 16
	// minMessageSize is less than any handshake needs with room to spare: a
	// smaller limit is a slip of the unit, not a wish.
	minMessageSize = 1 << 10
	// maxConfigSize bounds what is read, so that a wrong path (a log, a device)
	// is an error and not a full memory. Claude Code's own file, the largest
	// that people point at, is a few MiB.
	maxConfigSize = 32 << 20
)

// Config is one config file, read and checked. It never changes afterwards.
type Config struct {
	// Path is the file, as it was given to ReadConfig.
	Path string
	// Missing is true when Path is the default place and no file is there. All
	// other fields then hold their defaults.
	Missing bool
	// Servers are the upstreams in the order of the file, disabled ones
	// included. Their names are unique and not empty.
	Servers []Spec

	// CacheTTL is how long a listing is used before the upstream is asked
	// again. 0: it is asked each time.
	CacheTTL time.Duration
	// MaxNameLength bounds a merged name, in bytes; at least 16.
	MaxNameLength int
	// MaxMessageSize bounds one JSON-RPC message, in bytes; at least 1024.
	MaxMessageSize int
	// Instructions replaces the text merged from the upstreams' instructions.
	// Nil: the merged text is used. Empty: the client gets none.
	Instructions *string
	// InstructionsWait is how long initialize waits for upstreams' instructions.
	// 0: it does not wait.
	InstructionsWait time.Duration

	// Warnings are what the file holds without effect, in the order of the
	// file: for `coffer mcp list`, never fatal.
	Warnings []Warning
}

// Transport is how an upstream is reached.
type Transport int

const (
	// TransportStdio is a child process that speaks on its stdin and stdout.
	TransportStdio Transport = iota
	// TransportHTTP is a URL without a type: streamable HTTP, and where the
	// server refuses that as the specification describes, HTTP+SSE.
	TransportHTTP
	// TransportStreamable is streamable HTTP and nothing else.
	TransportStreamable
	// TransportSSE is the HTTP+SSE of 2024-11-05 and nothing else.
	TransportSSE
)

// String returns the word for t in the config file and in `coffer mcp list`:
// stdio, http or sse.
func (t Transport) String() string {
	switch t {
	case TransportStdio:
		return "stdio"
	case TransportSSE:
		return "sse"
	default:
		return "http"
	}
}

// Spec is one server of the config file: everything that is needed to reach
// it. Its texts have their variables expanded, unless Err says otherwise.
type Spec struct {
	// Name is the server's key in the file: any text but the empty one.
	Name string
	// Transport says which of Command and URL is set.
	Transport Transport

	// Command, Args, Env and Cwd describe the child of TransportStdio. Env
	// comes on top of what Environ inherits; an empty Cwd is coffer's own.
	Command string
	Args    []string
	Env     map[string]string
	Cwd     string
	// InheritEnv names variables of coffer's own environment that the child
	// gets beside the safe list, a * at the end for any rest; InheritAll gives
	// it all of them.
	InheritEnv []string
	InheritAll bool

	// URL (http or https) and Headers describe the remote end of the other
	// transports.
	URL     string
	Headers map[string]string

	// Disabled servers are neither connected nor listed.
	Disabled bool
	// AutoEnable is auto_enable_new_capabilities, true by default: whether a
	// capability without a preference is switched on.
	AutoEnable bool
	// Prefix goes before the names of tools and prompts, uncleaned. Nil: it is
	// made from Name. Empty: names stay as the upstream has them.
	Prefix *string

	// ConnectTimeout bounds start and handshake, ListTimeout one list with all
	// its pages; both are positive. CallTimeout bounds one call; 0: unbounded.
	ConnectTimeout time.Duration
	ListTimeout    time.Duration
	CallTimeout    time.Duration

	// Err is what makes this one server unusable, a *HintError that starts
	// with file:line:column: a variable that is not set, an editor's variable,
	// a URL that is none. The others work. A field whose variables cannot be
	// replaced holds the text of the file.
	Err error
}

// Warning is something in a config file that has no effect.
type Warning struct {
	// Pos is where: file:line:column.
	Pos string
	// Server is the key of the server that holds it, empty at the top level.
	Server string
	// Key is the key without effect, empty when the warning is about the file.
	Key string
	// Message says what is wrong, and what to do where that is known.
	Message string
}

// String returns the warning as one line, its position first.
func (w Warning) String() string {
	if w.Server == "" {
		return w.Pos + ": " + w.Message
	}
	return fmt.Sprintf("%s: server %q: %s", w.Pos, w.Server, w.Message)
}
