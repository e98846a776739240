// Package proxy is the downstream side of coffer: everything between one
// client on stdin and stdout and the upstream servers that are started for it.
//
// # Two walks
//
// tools/list: jsonrpc.Stream reads a line → session.go HandleRequest → list.go
// list. If every upstream's listing is fresh and nothing has changed, the ready
// bytes are the answer and nothing else happens. Otherwise gather asks all
// upstreams at once: cache.Get → (miss) retrieve → upstream.Conn.List, every
// page. What arrives goes to the catalog (names, owners of URIs), to the
// reconciler (which writes what is new, beside the answer) and to notices
// (which tells the client if a list changed that it had seen). merge.go joins
// the listings under the snapshot of preferences; session.go answers.
//
// tools/call: HandleRequest → call.go call: one look at the name, the rest of
// the params stay bytes → catalog.route → gate, with a snapshot that is as new
// as the request → forward → upstream.Server.Start. The answer comes on the
// goroutine that reads the upstream and is written from there, its result
// untouched (read.go rewriter has the one exception).
//
// # Goroutines
//
// One reads the client; it parses, routes and sends, and never waits for
// anything but its next line. One writes to the client what the client does not
// take at once. One follows the preference file, one records listings in it.
// Each upstream link has its own (see package upstream), and each list fetch
// one. A request gets a goroutine only if it has to wait: for a list, for a
// connection, for the preferences to be opened. Serve waits for all of them but
// the reader, which nothing can free from a read of a terminal.
//
// # State
//
// Session has the parts; each part locks itself and none calls another under
// its lock, save that notices and views ask the catalog. Snapshots, listings
// and rendered lists are immutable and compared by pointer.
//
// # Eras
//
// HandleRequest decides the era of each request by its _meta. modern.go answers
// what only 2026-07-28 has and gives results the form of the client's era;
// listen.go holds its subscriptions; mrtr.go and parked.go carry questions across eras.
package proxy
