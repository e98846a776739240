// Package jsonrpc moves JSON-RPC 2.0 messages as they are: newline-delimited
// text on both sides of a proxy, without decoding a value that need not be
// decoded. It knows nothing of MCP's methods.
//
// # From bytes to messages and back
//
//	Reader  a byte stream -> lines            reader.go
//	Parse   a line -> Message, exact slices   message.go, over scan.go
//	Conn    ids: who asked what               conn.go, request.go
//	Writer  messages -> a byte stream         writer.go
//	Stream  the four of them as one peer      stream.go
//
// Stream.Serve draws the hot path: Next, Parse, Conn.Receive, then what the
// Handler posts, and a Flush when nothing more has arrived. Member, Splice, Set
// and Delete (splice.go) find and change single members of raw objects. They are
// for text that is known to be JSON; what they say of other text is undefined,
// but they do not panic on it.
//
// # Who owns bytes
//
// A line belongs to who called Reader.Next, is never touched again by the
// Reader, and never written to by anybody: everything found in it, from
// Message.Params down to a name, is a slice of it and keeps it alive. The same
// holds for what is given to Post and Reply: from then on nobody may write to
// it, since big members go to the stream without a copy. New text comes from
// Splice, Set and Delete, which copy.
//
// # Who may call what
//
// Everything of Conn, Request and Writer may be called from any goroutine,
// except that Conn.Receive, ReceiveOn and ReceiveBatch, which keep the order of the wire,
// are called by one goroutine: for a Stream the one that runs Serve. It alone
// uses the Reader. Handlers and Call.Done run on it and must not wait for any
// peer. Post, Flush and a Sender never wait, so whoever holds an answer may send
// it from where it is; who relays what others produce calls Writer.Room between
// two messages, and so bounds the memory. Exactly one goroutine runs
// Writer.Run. Serve and Run are the only things that last; the package starts
// no other goroutine, save one that lives as long as Run.
package jsonrpc
