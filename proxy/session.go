package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"coffer/cache"
	"coffer/jsonrpc"
	"coffer/upstream"
)

// drainTime is how long requests in flight get after the client has closed its
// end (design §9).
const drainTime = 1500 * time.Millisecond

// lastWrite is how long a client may take to read what is left when the
// session ends.
const lastWrite = 100 * time.Millisecond

// Options are what a Session is made of.
type Options struct {
	Config  *upstream.Config
	Environ []string // coffer's own environment, as os.Environ gives it
	// Prefs opens the preferences; it runs beside the handshake. nil: none.
	Prefs   func(ctx context.Context) (Preferences, error)
	Log     zerolog.Logger
	Version string        // coffer's own, for serverInfo
	Dial    upstream.Dial // nil: each server by its spec
	// Follow gives changed every new reading of the config file until ctx ends.
	// nil: Config is for good.
	Follow func(ctx context.Context, changed func(*upstream.Config))
	// Stderr, if not nil, gets each line that an upstream writes to its stderr.
	Stderr func(server, line string)
	// Beside, if not nil, runs beside the session until ctx ends. It may call
	// the Session's Status, and Serve waits for it.
	Beside func(ctx context.Context)
}

// Session is one downstream connection: a client, and the upstreams that are
// started for it.
type Session struct {
	opts    Options
	log     zerolog.Logger
	servers atomic.Pointer[roster]
	ctx     context.Context // lifetime of the session's goroutines; set by Serve

	mu    sync.Mutex
	ended bool           // guarded by mu: spawn refuses
	tasks sync.WaitGroup // grows only under mu, while ended is false

	stream  *jsonrpc.Stream // the client
	set     *upstream.Set
	lists   *cache.Cache[slot, *upstream.Listing]
	catalog *catalog
	prefs   *preferences
	notices *notices
	subs    *subscriptions
	rec     *reconciler

	dirty []*upstream.Conn // the reader's own: have something to flush before it waits

	client  clientState
	relay   relayState
	listens *listens
	parked  *parking
}

// New returns a Session. Serve runs it.
func New(opts Options) *Session {
	s := &Session{opts: opts, log: opts.Log}
	r := rosterOf(opts.Config)
	s.servers.Store(r)
	s.catalog = newCatalog(r, opts.Config.MaxNameLength)
	s.subs = newSubscriptions()
	s.listens = newListens()
	s.parked = newParking(s)
	s.client.ready = make(chan struct{})
	return s
}

// Serve speaks with the client until it closes in, out fails, or ctx ends.
// Requests in flight then get a moment to finish, unless ctx has ended, and
// everything that was started is stopped. It returns nil, or why the
// preferences cannot be used (see prefs.Open) or in cannot be read.
func (s *Session) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	s.ctx = inner
	jsonrpc.WidenPipe(out)
	s.stream = jsonrpc.NewStream(in, out, s, jsonrpc.StreamOptions{
		Prefix:     "coffer-",
		MaxMessage: s.opts.Config.MaxMessageSize,
		Batches:    func() bool { return s.client.version() == "2025-03-26" },
		Bad:        s.bad,
		Idle:       s.idle,
	})
	s.lists = cache.New[slot, *upstream.Listing](inner, s.opts.Config.CacheTTL)
	s.notices = newNotices(s)
	s.prefs = newPreferences(s)
	s.rec = newReconciler(s)
	s.set = upstream.NewSet(inner, upstream.Options{
		Handler: s, Log: s.log, MaxMessageSize: s.opts.Config.MaxMessageSize,
		Environ: s.opts.Environ, Dial: s.opts.Dial, Stderr: s.opts.Stderr,
	})
	s.enlist()

	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	var writer sync.WaitGroup
	writer.Go(func() { s.stream.Out.Run(writing) })
	read := make(chan error, 1)
	go func() { read <- s.stream.Serve(inner) }() // may outlive Serve: nothing frees a read of a terminal
	s.spawn(func() { s.prefs.run(inner) })
	s.spawn(func() { s.rec.run(inner) })
	if s.opts.Follow != nil {
		s.spawn(func() { s.opts.Follow(inner, s.reconfigure) })
	}
	if beside := s.opts.Beside; beside != nil {
		s.spawn(func() { beside(inner) })
	}

	err := s.wait(ctx, read)
	s.finish(ctx)
	if err == nil {
		err = s.prefs.verdict(ctx)
	}
	s.parked.close()
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	cancel(errEnded)
	s.set.Close(ctx.Err() != nil)
	s.stream.Conn.Close(errEnded)
	s.lists.Close()
	s.tasks.Wait()
	s.prefs.close()
	last, release := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
	s.stream.Out.Drain(last)
	release()
	stopWriting()
	writer.Wait()
	return err
}

// errEnded is why work stops when the session does.
var errEnded = errors.New("session ended")

// wait returns when the session has to end, with what Serve returns.
func (s *Session) wait(ctx context.Context, read <-chan error) error {
	select {
	case err := <-read:
		return err
	case <-s.stream.Out.Dead():
		s.log.Debug().Err(s.stream.Out.Err()).Msg("client closed its end")
		return nil
	case err := <-s.prefs.fatal:
		return err
	case <-ctx.Done():
		return nil
	}
}

// finish lets requests in flight finish: answers that are computed already
// must not be thrown away because the last request was followed by EOF.
func (s *Session) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	s.listens.end()
	s.stream.Out.Flush()
	s.stream.Quiet(ctx)
	s.stream.Out.Drain(ctx)
}

// spawn runs f on a goroutine that Serve waits for; not at all once the
// session has ended.
func (s *Session) spawn(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.tasks.Go(f)
	}
}

// idle is the reader's: everything that had arrived has been handled.
func (s *Session) idle() {
	for i, c := range s.dirty {
		c.Flush()
		s.dirty[i] = nil
	}
	s.dirty = s.dirty[:0]
	s.stream.Out.Flush()
}

// soil has c flushed before the reader waits. Only the reader calls it.
func (s *Session) soil(c *upstream.Conn) {
	for _, d := range s.dirty {
		if d == c {
			return
		}
	}
	s.dirty = append(s.dirty, c)
}

// bad answers a line that is no message (JSON-RPC 2.0 §5: such errors have no
// usable id; MCP has none that could stand for it, so it is left out).
func (s *Session) bad(line []byte, err error) {
	switch {
	case errors.Is(err, jsonrpc.ErrUnexpected):
		return // late, or never asked for: JSON-RPC answers no response
	case errors.Is(err, jsonrpc.ErrSyntax):
		s.sendError(jsonrpc.CodeParse, "Parse error: "+err.Error())
	case errors.Is(err, jsonrpc.ErrTooLong):
		s.refuseOverlong(err)
	default:
		s.sendError(jsonrpc.CodeInvalidRequest, "Invalid request: "+err.Error())
	}
	s.log.Debug().Err(err).Int("bytes", len(line)).Msg("bad message from the client")
}

// refuseOverlong answers a message that was too long to be read, under its id
// if that can be told.
func (s *Session) refuseOverlong(err error) {
	m := &jsonrpc.Message{Error: jsonrpc.ErrorObject(jsonrpc.CodeInvalidRequest, fmt.Sprintf("message longer than %d bytes", s.opts.Config.MaxMessageSize), nil)}
	if e, ok := errors.AsType[*jsonrpc.Overlong](err); ok {
		if id, isRequest := e.ID(); isRequest {
			m.ID = id
		}
	}
	s.stream.Out.Post(m)
}

func (s *Session) sendError(code int, message string) {
	s.stream.Out.Post(&jsonrpc.Message{Error: jsonrpc.ErrorObject(code, message, nil)})
}

// HandleRequest implements jsonrpc.Handler. The walk of a request starts here:
//
//	HandleRequest                 which method is it
//	├─ initialize                 handshake.go: answered by us
//	├─ list                       list.go
//	│   ├─ warm                   the ready bytes, if nothing changed
//	│   └─ gather → fetch → ask   one goroutine for the request, one for each
//	│                             fetch; upstream.Conn.List; merge.go
//	├─ call, read, complete       call.go, read.go: find the owner, ask the gate,
//	│   └─ forward                upstream.Server.Start; the answer goes out on
//	│                             the goroutine that reads the upstream
//	├─ subscribe, unsubscribe     subscribe.go
//	└─ setLevel, unknown          relay.go
func (s *Session) HandleRequest(raw *jsonrpc.Request) {
	r := &request{Request: raw, s: s}
	defer s.recover(r)
	if r.Params != nil && r.Params[0] != '{' {
		s.fail(r, invalidParams("params must be an object"))
		return
	}
	if r.meta = jsonrpc.Lookup(r.Params, "_meta"); jsonrpc.Lookup(r.meta, upstream.MetaVersion) != nil {
		s.handleModern(r)
		return
	}
	handle, known := methods[r.Method]
	switch {
	case r.Method == "ping":
		r.Reply([]byte(`{}`))
	case r.Method == "initialize":
		s.initialize(r)
	case (known || r.Method == "server/discover" || r.Method == "subscriptions/listen") && !s.client.initialized():
		s.fail(r, invalidParams("%s before initialize", r.Method))
	case known:
		handle(s, r)
	default:
		s.unknown(r)
	}
}

// methods are the requests that come after the handshake.
var methods = map[string]func(*Session, *request){
	"tools/list":               func(s *Session, r *request) { s.list(r, upstream.Tools) },
	"resources/list":           func(s *Session, r *request) { s.list(r, upstream.Resources) },
	"resources/templates/list": func(s *Session, r *request) { s.list(r, upstream.Templates) },
	"prompts/list":             func(s *Session, r *request) { s.list(r, upstream.Prompts) },
	"tools/call":               func(s *Session, r *request) { s.call(r, upstream.Tools) },
	"prompts/get":              func(s *Session, r *request) { s.call(r, upstream.Prompts) },
	"resources/read":           (*Session).read,
	"resources/subscribe":      (*Session).subscribe,
	"resources/unsubscribe":    (*Session).unsubscribe,
	"completion/complete":      (*Session).complete,
	"logging/setLevel":         (*Session).setLevel,
}

// fail answers r with what err is on the wire, and logs it.
func (s *Session) fail(r *request, err error) {
	if r.Fail(toWire(err, r.modern)) {
		s.log.Debug().Err(err).Str("method", r.Method).Msg("request failed")
	}
}

// recover turns a panic in the handling of r into an answer: one request fails
// and the session goes on.
func (s *Session) recover(r *request) {
	if p := recover(); p != nil {
		s.log.Error().Str("method", r.Method).Interface("panic", p).Bytes("stack", debug.Stack()).Msg("fault in coffer")
		s.fail(r, errors.New("internal error"))
	}
}

// work runs f for r on a goroutine of its own. ctx ends when r is cancelled or
// the session does.
func (s *Session) work(r *request, f func(ctx context.Context)) {
	s.spawn(func() {
		defer s.stream.Out.Flush()
		defer s.recover(r)
		ctx, cancel := r.Context(s.ctx)
		defer cancel()
		f(ctx)
	})
}

// HandleNotification implements jsonrpc.Handler.
func (s *Session) HandleNotification(method string, params []byte) {
	switch method {
	case "notifications/initialized":
		if s.client.initialized() {
			s.client.setReady()
		}
	case "notifications/cancelled":
		s.cancel(jsonrpc.Lookup(params, "requestId"), params)
	case "notifications/progress":
		s.relayProgressUp(params)
	case "notifications/roots/list_changed":
		s.relayRootsChanged(params)
	default:
		s.relayUnknownUp(method, params)
	}
}

// cancel takes back the client's request with that id, other than initialize,
// which cannot be (MCP 2025-11-25, utilities/cancellation).
func (s *Session) cancel(id, notice []byte) {
	if h := s.client.hello; h != nil && !h.Ended() && string(id) == string(h.ID) {
		return
	}
	s.stream.Cancel(id, notice)
}
