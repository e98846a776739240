package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"coffer/testdata/bench/toy"
)

// pipes returns a session with a server that answers each line with what
// answer makes of it.
func pipes(t *testing.T, answer func(line []byte) string) *session {
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirOut.Close()
		lines := bufio.NewScanner(theirIn)
		for lines.Scan() {
			io.WriteString(theirOut, answer(lines.Bytes()))
		}
	}()
	t.Cleanup(func() {
		in.Close()
		<-done
		theirIn.Close()
		out.Close()
	})
	return &session{cmd: &exec.Cmd{Path: "test"}, in: in, out: out, buf: make([]byte, 64)}
}

// TestWrongAnswers: no answer passes that is not the very one.
func TestWrongAnswers(t *testing.T) {
	server := toy.New(-1)
	asks := map[string]func(s *session) error{
		"call":  func(s *session) error { return new(caller).call(s, "s1__t01", 10, 0) },
		"many":  func(s *session) error { return new(caller).window(s, 2, 5, func(int) string { return "s1__t01" }) },
		"list":  func(s *session) error { return newLister(toy.List()).list(s) },
		"hello": func(s *session) error { return hello(s) },
	}
	for _, test := range []struct {
		name   string
		change func(answer string) string
		found  []string // by which of them
	}{
		{"right", func(answer string) string { return answer }, nil},
		{"another id", func(answer string) string { return strings.Replace(answer, `"id":`, `"id":9`, 1) }, []string{"call", "many", "list", "hello"}},
		{"another text", func(answer string) string { return strings.Replace(answer, `"text":"s1`, `"text":"s2`, 1) }, []string{"call", "many"}},
		{"another item", func(answer string) string { return strings.Replace(answer, `"name":"s1`, `"name":"s2`, 1) }, []string{"list"}},
		{"a byte more", func(answer string) string { return strings.Replace(answer, "}}", "} }", 1) }, []string{"call", "many", "list"}},
		{"an error", func(string) string { return `{"jsonrpc":"2.0","id":1,"error":{"code":503,"message":"down"}}` + "\n" }, []string{"call", "many", "list", "hello"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for what, ask := range asks {
				s := pipes(t, func(line []byte) string {
					answer, _ := server.AppendAnswer(nil, line)
					return test.change(string(answer))
				})
				if err, want := ask(s), slices.Contains(test.found, what); (err != nil) != want {
					t.Errorf("%s: error %v, want one: %v", what, err, want)
				}
			}
		})
	}
}

// TestPieces: a line may come in any pieces.
func TestPieces(t *testing.T) {
	s := pipes(t, func(line []byte) string { return strings.Repeat("x", 1000) + "\n\nlast\n" })
	if err := s.tell([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{strings.Repeat("x", 1000), "", "last"} {
		if line, err := s.line(); err != nil || string(line) != want {
			t.Errorf("got %q, %v, want %q", line, err, want)
		}
	}
}

// TestToy: all servers together list what the one that has everything lists,
// with schemas of the size that the scenario says.
func TestToy(t *testing.T) {
	if n := strings.Count(string(toy.List()), `"inputSchema"`); n != 100 {
		t.Errorf("%d tools", n)
	}
	for _, tool := range toy.Tools(3, toy.Tool) {
		_, schema, _ := strings.Cut(tool, `"inputSchema":`)
		if len(schema) != 700+len("}") {
			t.Errorf("schema of %d bytes in %s", len(schema)-1, tool)
		}
	}
	seen := map[string]bool{}
	for i := range 100 {
		seen[inTurn(i)] = true
		if name := ofOne(i); !strings.HasPrefix(name, toy.Merged(0, 0)[:4]) {
			t.Errorf("call %d to one server goes to %s", i, name)
		}
	}
	if len(seen) != 100 {
		t.Errorf("calls in turn use %d tools", len(seen))
	}
}

func TestRow(t *testing.T) {
	f := figure{Name: "x", Of: coffer, Base: relay, Limit: limit{AtMost: 2.5}}
	for round, drift := range []float64{1, 10, 100} { // of which the ratio must show nothing
		f.add(relay, drift)
		f.add(coffer, drift*float64(2+round))
	}
	r := f.row()
	if got, want := fmt.Sprint(r.Value, r.Low, r.High, *r.Met), "3 2.5 3.5 false"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if r.Medians[relay] != 10 {
		t.Errorf("median of the floor %v, want 10", r.Medians[relay])
	}
}
