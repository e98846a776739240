package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"coffer/jsonrpc"
	"coffer/prefs"
	"coffer/upstream"
)

// typeOf maps the protocol's lists to the types of preferences, both in the
// order in which coffer shows them.
var typeOf = map[upstream.Kind]prefs.Type{
	upstream.Tools: prefs.Tool, upstream.Resources: prefs.Resource,
	upstream.Templates: prefs.ResourceTemplate, upstream.Prompts: prefs.Prompt,
}

// kindsOf returns the lists of the types, all of them for none.
func kindsOf(types []prefs.Type) []upstream.Kind {
	var kinds []upstream.Kind
	for _, k := range upstream.Kinds() {
		for _, t := range types {
			if typeOf[k] == t {
				kinds = append(kinds, k)
			}
		}
	}
	if kinds == nil {
		return upstream.Kinds()
	}
	return kinds
}

// reached is a server that a command has a connection of its own to.
type reached struct {
	spec *upstream.Spec
	conn *upstream.Conn
	took time.Duration // from the start to the end of the handshake
	set  *upstream.Set
}

// reach connects to one server. The caller closes what it returns.
func reach(ctx context.Context, config *upstream.Config, spec *upstream.Spec, log zerolog.Logger) (*reached, error) {
	if spec.Disabled {
		return nil, failf(exitError, "set disabled to false for this server in "+config.Path, "server %q is disabled in the config", spec.Name)
	}
	set := upstream.NewSet(ctx, upstream.Options{
		Handler: alone{}, Log: log, MaxMessageSize: config.MaxMessageSize, Environ: os.Environ(),
	})
	server := set.Add(spec)
	began := time.Now()
	set.Start(upstream.Client{
		Info:         fmt.Appendf(nil, `{"name":"coffer","version":%s}`, jsonrpc.Quote(versionText())),
		Capabilities: []byte(`{}`),
	})
	conn, err := server.Connect(ctx)
	if err != nil {
		set.Close(ctx.Err() != nil)
		return nil, err
	}
	return &reached{spec: spec, conn: conn, took: time.Since(began), set: set}, nil
}

// close ends the connection; at once if ctx has ended.
func (r *reached) close(ctx context.Context) { r.set.Close(ctx.Err() != nil) }

// call sends a request within limit; 0: without one.
func (r *reached) call(ctx context.Context, method string, params []byte, limit time.Duration) ([]byte, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, r.timeout(method, limit))
		defer cancel()
	}
	return r.conn.Call(ctx, method, params)
}

// timeout is the error for an answer that did not come in time.
func (r *reached) timeout(method string, limit time.Duration) error {
	return &upstream.Error{Upstream: r.spec.Name, Kind: upstream.ErrTimeout, Err: fmt.Errorf("no answer to %s within %s", method, limit)}
}

// look is what one server listed: for each kind that was asked for a listing,
// or why there is none.
type look struct {
	kinds    []upstream.Kind
	listings map[upstream.Kind]*upstream.Listing
	failed   map[upstream.Kind]error
	at       time.Time
}

// list asks for the lists, all at once.
func (r *reached) list(ctx context.Context, kinds []upstream.Kind) *look {
	l := &look{kinds: kinds, listings: map[upstream.Kind]*upstream.Listing{}, failed: map[upstream.Kind]error{}}
	var mu sync.Mutex // guards l's maps
	var wg sync.WaitGroup
	for _, k := range kinds {
		wg.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, r.spec.ListTimeout, r.timeout(k.Method(), r.spec.ListTimeout))
			defer cancel()
			listing, err := r.conn.List(ctx, k)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				l.failed[k] = r.blame(err)
				return
			}
			l.listings[k] = listing
		})
	}
	wg.Wait()
	l.at = time.Now()
	return l
}

// blame returns err as a failure of the server, which a list that fails is
// whatever the reason.
func (r *reached) blame(err error) error {
	if _, ok := errors.AsType[*upstream.Error](err); ok || errors.Is(err, context.Canceled) {
		return err
	}
	return &upstream.Error{Upstream: r.spec.Name, Kind: upstream.ErrUnavailable, Err: err}
}

// err returns the first failure, in the order of the kinds.
func (l *look) err() error {
	for _, k := range l.kinds {
		if err := l.failed[k]; err != nil {
			return err
		}
	}
	return nil
}

// record brings the preferences in line with what was listed.
func (l *look) record(ctx context.Context, store *prefs.Store, spec *upstream.Spec) (prefs.Diff, error) {
	var lists []prefs.Listed
	for _, k := range l.kinds {
		if listing := l.listings[k]; listing != nil {
			keys := make([]string, len(listing.Items))
			for i, it := range listing.Items {
				keys[i] = it.Key
			}
			lists = append(lists, prefs.Listed{Type: typeOf[k], Keys: keys})
		}
	}
	return store.Reconcile(ctx, spec.Name, lists, spec.AutoEnable, l.at)
}

// alone is the proxy's part towards an upstream when there is no client: it has
// nobody to tell and nobody to ask.
type alone struct{}

// Notified, Up, Down, Missed, Flush and Room implement upstream.Handler.
func (alone) Notified(*upstream.Conn, string, []byte) {}
func (alone) Up(*upstream.Conn)                       {}
func (alone) Down(*upstream.Conn)                     {}
func (alone) Missed(*upstream.Conn, ...upstream.Kind) {}
func (alone) Flush()                                  {}
func (alone) Room(context.Context)                    {}

// Asked implements upstream.Handler. We declared no capability, so there is
// nothing that a server may ask.
func (alone) Asked(_ *upstream.Conn, r *jsonrpc.Request) {
	r.Fail(jsonrpc.ErrorObject(jsonrpc.CodeMethodNotFound, "Method not found: "+r.Method, nil))
}
