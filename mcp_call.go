package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"coffer/jsonrpc"
	"coffer/prefs"
	"coffer/upstream"
)

// mcpCall is `coffer mcp call`.
func (p *program) mcpCall(c *cli.Context) error {
	args, config, spec, log, err := p.oneServer(c, 2, 3)
	if err != nil {
		return err
	}
	arguments, err := p.toolArguments(c.Context, args[2:])
	if err != nil {
		return err
	}
	store, err := p.store(c)
	if err != nil {
		return err
	}
	defer store.Close()
	key := prefs.Key{Server: spec.Name, Type: prefs.Tool, Key: args[1]}
	if err := allowed(c.Context, store, spec, key); err != nil {
		return err
	}
	r, err := reach(c.Context, config, spec, log)
	if err != nil {
		return err
	}
	defer r.close(c.Context)
	if err := p.offers(c.Context, r, store, key); err != nil {
		return err
	}
	params := fmt.Appendf(nil, `{"name":%s,"arguments":%s}`, jsonrpc.Quote(key.Key), arguments)
	result, err := r.call(c.Context, "tools/call", params, spec.CallTimeout)
	if jsonrpc.CodeOf(err) != 0 {
		return failf(exitError, "", "%s answered with an error: %w", spec.Name, err)
	}
	if err != nil {
		return err
	}
	return p.printResult(c, key, result)
}

// toolArguments returns the call's arguments as JSON on one line: from the
// command line, from stdin for "-", and without either none.
func (p *program) toolArguments(ctx context.Context, args []string) ([]byte, error) {
	if len(args) == 0 {
		return []byte("{}"), nil
	}
	text := []byte(args[0])
	if args[0] == "-" {
		var err error
		if text, err = p.readInput(ctx); err != nil {
			return nil, err
		}
	}
	var line bytes.Buffer // Compact keeps every token as it is written
	if err := json.Compact(&line, text); err != nil {
		return nil, usagef(`write them like '{"path": "a.txt"}'`, "the tool's arguments are not JSON: %w", err)
	}
	if line.Len() == 0 || line.Bytes()[0] != '{' {
		return nil, usagef(`write them like '{"path": "a.txt"}'`, "the tool's arguments are not a JSON object")
	}
	return line.Bytes(), nil
}

// allowed is the gate: it returns an error if a person, or the server's policy,
// has the tool switched off.
func allowed(ctx context.Context, store *prefs.Store, spec *upstream.Spec, key prefs.Key) error {
	row, known, err := store.Get(ctx, key)
	switch {
	case err != nil:
		return err
	case known && row.Enabled, !known && spec.AutoEnable:
		return nil
	case known:
		return failf(exitError, "switch it on with: "+setCommand(key, true), "tool %q of %s is switched off", key.Key, key.Server)
	default:
		return failf(exitError, "see what it has with: coffer mcp refresh "+shellWord(key.Server)+"; switch it on with: "+setCommand(key, true),
			"tool %q of %s is switched off: it was never listed, and new tools of this server are off", key.Key, key.Server)
	}
}

// offers returns an error if the server's list does not have the tool. A list
// that fails decides nothing: the call will tell.
func (p *program) offers(ctx context.Context, r *reached, store *prefs.Store, key prefs.Key) error {
	seen := r.list(ctx, []upstream.Kind{upstream.Tools})
	listing := seen.listings[upstream.Tools]
	if listing == nil {
		return nil
	}
	if _, err := seen.record(ctx, store, r.spec); err != nil {
		p.warn("what %s listed could not be recorded: %v", r.spec.Name, err)
	}
	has := func(it upstream.Item) bool { return it.Key == key.Key }
	if slices.ContainsFunc(listing.Items, has) {
		return nil
	}
	names := make([]string, len(listing.Items))
	for i, it := range listing.Items {
		names[i] = it.Key
	}
	hint := key.Server + " has no tools"
	if len(names) > 0 {
		hint = key.Server + " has " + strings.Join(names, ", ")
	}
	return failf(exitNotFound, hint, "no tool %q in %s", key.Key, key.Server)
}

// printResult prints the result of a call: as it came, or its texts.
func (p *program) printResult(c *cli.Context, key prefs.Key, result []byte) error {
	if c.Bool("json") {
		p.out.Write(append(result, '\n'))
	} else {
		p.printContent(result)
	}
	if string(jsonrpc.Lookup(result, "isError")) == "true" {
		return failf(exitError, "", "the tool %q of %s says that it failed", key.Key, key.Server)
	}
	return nil
}

// printContent prints the texts in a result, and says of what is no text that
// it is there. Without any content it prints the structured one.
func (p *program) printContent(result []byte) {
	content, _ := jsonrpc.Elements(jsonrpc.Lookup(result, "content"))
	if structured := jsonrpc.Lookup(result, "structuredContent"); len(content) == 0 && structured != nil {
		p.printText(string(structured))
	}
	var others []string
	for _, element := range content {
		kind, _ := jsonrpc.TextAt(element, "type")
		text, ok := jsonrpc.TextAt(element, "text")
		if kind == "resource" {
			text, ok = jsonrpc.TextAt(element, "resource", "text")
		}
		if ok {
			p.printText(text)
			continue
		}
		if mime, ok := jsonrpc.TextAt(element, "mimeType"); ok {
			kind += " (" + mime + ")"
		}
		others = append(others, kind)
	}
	if len(others) > 0 {
		p.out.Flush()
		fmt.Fprintf(p.stderr, "coffer: note: not shown: %s; --json prints the whole result\n", printable(strings.Join(others, ", ")))
	}
}

// printText prints a text as it is, and ends its last line. A terminal gets
// nothing that could steer it.
func (p *program) printText(text string) {
	if isTerminal(p.stdout) {
		text = printable(text)
	}
	p.out.WriteString(text)
	if !strings.HasSuffix(text, "\n") {
		p.out.WriteByte('\n')
	}
}
