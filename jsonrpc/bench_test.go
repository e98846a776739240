package jsonrpc_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"coffer/jsonrpc"
)

// smallCall is what most traffic looks like.
var smallCall = []byte(`{"jsonrpc":"2.0","id":1234,"method":"tools/call","params":{"name":"filesystem__read_text_file",` +
	`"arguments":{"path":"/home/user/projects/coffer/jsonrpc/message.go","head":120,"note":"a \"quoted\" word"},` +
	`"_meta":{"progressToken":17,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}}`)

// image is a result as a tool that makes pictures sends it: one long string.
func image(size int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"image","mimeType":"image/png","data":"%s"}]}}`,
		strings.Repeat("iVBORw0KGgoAAAAN", size/16))
}

// rows is a result made of many small tokens, a third of them in a string that
// holds JSON text.
func rows(size int) []byte {
	row := `{"id":12345,"name":"caf\u00e9 au lait","price":1.10,"tags":["a","b"],"ok":true,"text":"{\"path\":\"/a/b\",\"n\":1}\n"}`
	out := []byte(`{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"rows":[` + row)
	for len(out) < size {
		out = append(append(out, ','), row...)
	}
	return append(out, `]}}}`...)
}

func BenchmarkParse(b *testing.B) {
	for _, c := range []struct {
		name string
		text []byte
	}{
		{"call 300 B", smallCall},
		{"image 10 MB", image(10 << 20)},
		{"rows 10 MB", rows(10 << 20)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := jsonrpc.Parse(c.text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMember(b *testing.B) {
	m, err := jsonrpc.Parse(smallCall)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, n := jsonrpc.Member(m.Params, "name"); n != 1 {
			b.Fatal(n)
		}
	}
}

func BenchmarkSplice(b *testing.B) {
	m, err := jsonrpc.Parse(smallCall)
	if err != nil {
		b.Fatal(err)
	}
	name := jsonrpc.Lookup(m.Params, "name")
	token := jsonrpc.Lookup(m.Params, "_meta", "progressToken")
	b.ReportAllocs()
	for b.Loop() {
		jsonrpc.Splice(m.Params,
			jsonrpc.Edit{Old: name, New: []byte(`"read_text_file"`)},
			jsonrpc.Edit{Old: token, New: []byte("99")})
	}
}

func BenchmarkSet(b *testing.B) {
	m, err := jsonrpc.Parse(smallCall)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		jsonrpc.Set(m.Params, "name", []byte(`"read_text_file"`))
	}
}

// repeat gives text, and a newline, n times.
func repeat(text []byte, n int) io.Reader {
	return &repeater{line: append(bytes.Clone(text), '\n'), left: n}
}

type repeater struct {
	line []byte
	at   int
	left int
}

func (r *repeater) Read(p []byte) (n int, err error) {
	for n < len(p) && r.left > 0 {
		c := copy(p[n:], r.line[r.at:])
		n += c
		if r.at += c; r.at == len(r.line) {
			r.at = 0
			r.left--
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func BenchmarkReader(b *testing.B) {
	for _, c := range []struct {
		name string
		text []byte
	}{{"call 300 B", smallCall}, {"image 10 MB", image(10 << 20)}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			r := jsonrpc.NewReader(repeat(c.text, b.N), 0)
			for range b.N {
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// sink is a pipe that somebody reads.
func sink(b *testing.B) *os.File {
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		io.Copy(struct{ io.Writer }{io.Discard}, r)
		r.Close()
		close(done)
	}()
	b.Cleanup(func() { w.Close(); <-done })
	return w
}

// BenchmarkPost is one message, one write.
func BenchmarkPost(b *testing.B) {
	m, err := jsonrpc.Parse(smallCall)
	if err != nil {
		b.Fatal(err)
	}
	big, err := jsonrpc.Parse(image(10 << 20))
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		m     *jsonrpc.Message
		burst int
	}{{"call 300 B", m, 1}, {"64 calls", m, 64}, {"image 10 MB", big, 1}} {
		b.Run(c.name, func(b *testing.B) {
			w := jsonrpc.NewWriter(sink(b), 0)
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan struct{})
			go func() { w.Run(ctx); close(done) }()
			b.ReportAllocs()
			for b.Loop() {
				for range c.burst {
					w.Post(c.m)
				}
				w.Drain(ctx)
			}
			cancel()
			<-done
		})
	}
}

// echo answers each request at once.
type echo struct{ result []byte }

func (e *echo) HandleRequest(r *jsonrpc.Request)  { r.Reply(e.result) }
func (e *echo) HandleNotification(string, []byte) {}

// BenchmarkServe is the hot path: read, parse, dispatch, answer, write.
func BenchmarkServe(b *testing.B) {
	b.ReportAllocs()
	out := sink(b)
	var s *jsonrpc.Stream
	s = jsonrpc.NewStream(repeat(smallCall, b.N), out, &echo{[]byte(`{"content":[{"type":"text","text":"ok"}]}`)}, jsonrpc.StreamOptions{
		Bad:  func(line []byte, err error) { b.Error(err) },
		Idle: func() { s.Out.Flush() },
	})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { s.Out.Run(ctx); close(done) }()
	if err := s.Serve(ctx); err != nil {
		b.Fatal(err)
	}
	s.Out.Drain(ctx)
	cancel()
	<-done
}

// BenchmarkRelay brings results from one pipe to another, as a proxy does, and
// beside it what the pipes alone take.
func BenchmarkRelay(b *testing.B) {
	for _, c := range []struct {
		name string
		text []byte
	}{{"image 10 MB", image(10 << 20)}, {"rows 10 MB", rows(10 << 20)}} {
		b.Run("pipes alone, "+c.name, func(b *testing.B) {
			from, out := feed(b, c.text), sink(b)
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			b.ResetTimer()
			if _, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{from}, make([]byte, 64<<10)); err != nil {
				b.Fatal(err)
			}
		})
		b.Run(c.name, func(b *testing.B) {
			from := feed(b, c.text)
			w := jsonrpc.NewWriter(sink(b), 0)
			defer run(b, w)()
			s := jsonrpc.NewStream(from, io.Discard, &relay{w}, jsonrpc.StreamOptions{
				Bad: func(line []byte, err error) { b.Error(err) }, Idle: w.Flush, Gate: func() { w.Room(b.Context()) },
			})
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			b.ResetTimer()
			if err := s.Serve(b.Context()); err != nil {
				b.Fatal(err)
			}
			w.Drain(b.Context())
		})
	}
}

// feed is a pipe that gives the result in text b.N times, as a notification.
func feed(b *testing.B, text []byte) *os.File {
	m, err := jsonrpc.Parse(text)
	if err != nil {
		b.Fatal(err)
	}
	line := append((&jsonrpc.Message{Method: "n", Params: m.Result}).Append(nil), '\n')
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for range b.N {
			w.Write(line)
		}
		w.Close()
	}()
	b.Cleanup(func() { r.Close() })
	return r
}

// nobody swallows what a Conn sends.
type nobody struct{ sent int }

func (n *nobody) Send(*jsonrpc.Message, *jsonrpc.Call) { n.sent++ }

// BenchmarkCall is one call of ours and its answer, without a transport.
func BenchmarkCall(b *testing.B) {
	c := jsonrpc.NewConn(&nobody{}, &echo{}, "coffer-")
	b.ReportAllocs()
	for b.Loop() {
		call := &jsonrpc.Call{Method: "tools/call", Done: func(jsonrpc.Answer) {}}
		c.Start(call)
		if !c.Receive(&jsonrpc.Message{ID: c.ID(call.Number), Result: []byte(`{}`)}) {
			b.Fatal("nobody waited")
		}
	}
}
