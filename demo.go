package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"coffer/jsonrpc"
)

// demoLimit ends a demo that hangs. It takes a second.
const demoLimit = 30 * time.Second

// demoOrder are the demo's servers in the order of its config.
var demoOrder = []string{"notes", "math", "travel"}

// demo is `coffer demo`: it runs the real programs and shows what happens. What
// happens is also checked, so an error means that coffer does not work here.
func (p *program) demo(c *cli.Context) (err error) {
	if _, err := positionals(c, 0, 0); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(c.Context, demoLimit, fmt.Errorf("not done after %v", demoLimit))
	defer cancel()
	folder, err := os.MkdirTemp("", "coffer-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	d := &demo{p: p, folder: folder, bold: colourful(p.stdout)}
	if d.coffer, err = os.Executable(); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{d.introduce, d.list, d.call, d.switchOff, d.listAgain, d.callAgain, d.table} {
		if err = step(ctx); err != nil {
			break
		}
	}
	err = d.end(ctx, err)
	if ctx.Err() != nil {
		err = context.Cause(ctx) // that is why a step failed
	}
	if err != nil {
		return failf(exitError, "", "demo: %w%s", err, d.lastWords())
	}
	return nil
}

// demo is one run of it.
type demo struct {
	p      *program
	coffer string // our own program
	folder string // everything that is written is in here
	bold   bool
	step   int
	client *demoClient // nil until serve was started
}

// heading begins a step.
func (d *demo) heading(format string, args ...any) {
	d.step++
	text := fmt.Sprintf("%d. %s", d.step, fmt.Sprintf(format, args...))
	if d.bold {
		text = "\x1b[1m" + text + "\x1b[0m"
	}
	fmt.Fprintf(d.p.out, "\n%s\n", text)
}

// show prints a line below a heading.
func (d *demo) show(format string, args ...any) { d.p.say("   "+format, args...) }

func (d *demo) introduce(context.Context) error {
	type entry struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	d.p.say("coffer demo: three small servers, coffer in front of them, and a client.")
	d.p.say("They run for real, on files that are deleted at the end.")
	d.heading("The config lists the servers, in the form that every client uses:")
	var lines []string
	for _, name := range demoOrder {
		text, err := json.Marshal(entry{d.coffer, []string{demoServerCommand, name}})
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%q: %s", name, text))
		d.show(`"%s": {"command": "coffer", "args": ["%s", "%s"]}`, name, demoServerCommand, name)
	}
	d.show(`The client has one entry for all of them: "coffer": {"command": "coffer", "args": ["serve"]}`)
	d.p.out.Flush()
	return os.WriteFile(filepath.Join(d.folder, "config.json"), []byte(`{"mcpServers": {`+strings.Join(lines, ",\n")+`}}`), 0o600)
}

// arguments returns args with the demo's own files before them.
func (d *demo) arguments(args ...string) []string {
	return append([]string{"--config", filepath.Join(d.folder, "config.json"), "--db", filepath.Join(d.folder, "coffer.db")}, args...)
}

// merged are the names of the merged list, in its order.
var merged = []string{"notes__add", "notes__list", "notes__delete_all", "math__add", "math__divide", "travel__distance"}

func (d *demo) list(ctx context.Context) (err error) {
	began := time.Now()
	if d.client, err = startDemoClient(ctx, d.coffer, d.arguments("--log-level", "warn", "serve")); err != nil {
		return err
	}
	if _, err := d.client.call(ctx, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"coffer demo","version":"1"}}`); err != nil {
		return err
	}
	d.client.notify("notifications/initialized")
	d.heading("The client starts `coffer serve` and asks for the tools. It gets one list:")
	tools, err := d.client.tools(ctx)
	if err != nil {
		return err
	}
	took := time.Since(began)
	var rows [][]string
	for _, t := range tools {
		description, _ := jsonrpc.TextAt(t, "description")
		rows = append(rows, []string{nameOf(t), description})
	}
	d.p.table("     ", rows)
	d.show("%d tools of 3 servers, %d ms after the start. Two are called add, and do not clash.", len(tools), took.Milliseconds())
	for _, method := range []string{"prompts/list", "resources/list"} {
		if _, err := d.client.call(ctx, method, `{}`); err != nil {
			return err
		}
	}
	return d.want("the merged list", namesOf(tools), merged)
}

func (d *demo) call(ctx context.Context) error {
	d.heading("A call goes to the server that has the tool, under the tool's own name:")
	if err := d.wantText(ctx, "math__add", `{"a":2,"b":40}`, "42"); err != nil {
		return err
	}
	return d.wantText(ctx, "notes__add", `{"text":"buy milk"}`, "Noted as number 1: buy milk")
}

// wantText calls a tool, shows that, and checks the text that comes back.
func (d *demo) wantText(ctx context.Context, tool, arguments, want string) error {
	result, err := d.client.callTool(ctx, tool, arguments)
	if err != nil {
		return err
	}
	contents, _ := jsonrpc.Elements(jsonrpc.Lookup(result, "content"))
	text := ""
	if len(contents) > 0 {
		text, _ = jsonrpc.TextAt(contents[0], "text")
	}
	d.show("%s %s  ->  %s", tool, arguments, text)
	return d.want("the answer of "+tool, text, want)
}

func (d *demo) switchOff(ctx context.Context) error {
	d.heading("Nobody should delete all notes. So, in another terminal, while the client runs:")
	words := []string{"prefs", "set", "notes", "tool", "delete_all", "off"}
	d.show("$ coffer %s", strings.Join(words, " "))
	output, err := runDemo(ctx, d.coffer, d.arguments(words...))
	if err != nil {
		return err
	}
	ended := time.Now()
	d.show("%s", strings.TrimSpace(output))
	select {
	case at := <-d.client.changed:
		if late := at.Sub(ended); late > 0 {
			d.show("The client was told %d ms after that: notifications/tools/list_changed", late.Milliseconds())
		} else {
			d.show("The client was told before that command had even ended: notifications/tools/list_changed")
		}
		return nil
	case <-d.client.ended:
		return errors.New("coffer serve ended")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *demo) listAgain(ctx context.Context) error {
	d.heading("The client asks again, and the tool is not in the list any more:")
	tools, err := d.client.tools(ctx)
	if err != nil {
		return err
	}
	d.show("%s", strings.Join(namesOf(tools), "  "))
	rest := slices.DeleteFunc(slices.Clone(merged), func(name string) bool { return name == "notes__delete_all" })
	return d.want("the list without the tool", namesOf(tools), rest)
}

func (d *demo) callAgain(ctx context.Context) error {
	d.heading("A model that remembers the tool, and calls it, is refused:")
	_, err := d.client.callTool(ctx, "notes__delete_all", `{}`)
	refusal, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		return fmt.Errorf("the call of a switched-off tool was not refused (%v)", err)
	}
	code, _ := jsonrpc.TextAt(refusal.Raw, "data", "code")
	hint, _ := jsonrpc.TextAt(refusal.Raw, "data", "hint")
	d.show("notes__delete_all {}  ->  error %d %s: %s", refusal.Code, code, refusal.Message)
	d.show("hint: %s", hint)
	if err := d.want("the refusal", fmt.Sprint(refusal.Code, " ", code), "403 CAPABILITY_DISABLED"); err != nil {
		return err
	}
	return d.wantText(ctx, "notes__list", `{}`, "buy milk")
}

// recorded is how long the rows of what was listed may take to get into the
// preference file, beside the answers.
const recorded = 2 * time.Second

func (d *demo) table(ctx context.Context) error {
	d.heading("This is all that coffer keeps, and every client on this machine obeys it:")
	const rows = 1 + 6 + 1 + 1 // heads, tools, prompt, resource
	d.show("$ coffer prefs list")
	for deadline := time.Now().Add(recorded); ; {
		output, err := runDemo(ctx, d.coffer, d.arguments("prefs", "list"))
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
		if len(lines) < rows && time.Now().Before(deadline) {
			continue
		}
		for _, line := range lines {
			d.show("%s", line)
		}
		return d.want("the number of preferences", len(lines)-1, rows-1)
	}
}

// end lets the client leave and checks that coffer leaves, too. err is why the
// demo ends early, or nil.
func (d *demo) end(ctx context.Context, err error) error {
	if d.client == nil {
		return err
	}
	left := d.client.close()
	if err != nil || ctx.Err() != nil {
		return err
	}
	if left != nil {
		return fmt.Errorf("coffer serve, when the client left: %w", left)
	}
	d.heading("The client leaves. coffer has stopped the servers and ended, and the files are deleted.")
	d.show("`coffer --help` lists the commands; README.md says how to put your own servers behind coffer.")
	return nil
}

// lastWords returns what coffer serve logged, for a demo that failed.
func (d *demo) lastWords() string {
	if d.client == nil || d.client.log.Len() == 0 {
		return ""
	}
	return "; coffer serve said:\n" + strings.TrimSpace(d.client.log.String())
}

// want checks one thing.
func (d *demo) want(what string, got, want any) error {
	d.p.out.Flush()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		return fmt.Errorf("step %d: %s is %s, not %s", d.step, what, g, w)
	}
	return nil
}

func nameOf(tool []byte) string {
	name, _ := jsonrpc.TextAt(tool, "name")
	return name
}

func namesOf(tools [][]byte) []string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = nameOf(t)
	}
	return names
}

// runDemo runs coffer as another process and returns what it prints.
func runDemo(ctx context.Context, coffer string, args []string) (string, error) {
	var output, complaint bytes.Buffer
	cmd := demoCommand(ctx, coffer, args)
	cmd.Stdout, cmd.Stderr = &output, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("coffer %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return output.String(), nil
}
