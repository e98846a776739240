package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"coffer/jsonrpc"
	"coffer/upstream"
)

// demoServerCommand is the hidden command that is one of the demo's servers.
const demoServerCommand = "demo-server"

// demoServer is a small MCP server (2025-11-25, stdio) that ships with coffer,
// so that the demo needs neither network nor other programs.
type demoServer struct {
	name  string
	tools []demoTool
	// prompt is the text of the one prompt, "" for none; note the one resource.
	promptName, promptText string
	resourceURI            string
	resource               func() string
}

// demoTool is a tool: run gets the raw arguments, whose members all are texts
// or numbers, and may fail with an error that the model shall see.
type demoTool struct {
	name, description string
	arguments         []string // all required
	run               func(arguments []byte) (string, error)
}

// demoServers makes each server anew.
var demoServers = map[string]func() *demoServer{
	"notes": func() *demoServer {
		var notes []string
		all := func() string { return strings.Join(notes, "\n") }
		return &demoServer{
			name: "notes",
			tools: []demoTool{
				{"add", "Write a note", []string{"text"}, func(arguments []byte) (string, error) {
					text, _ := jsonrpc.TextAt(arguments, "text")
					notes = append(notes, text)
					return fmt.Sprintf("Noted as number %d: %s", len(notes), text), nil
				}},
				{"list", "Read all notes", nil, func([]byte) (string, error) { return all(), nil }},
				{"delete_all", "Delete every note", nil, func([]byte) (string, error) {
					notes = nil
					return "All notes are gone.", nil
				}},
			},
			resourceURI: "notes://all",
			resource:    all,
		}
	},
	"math": func() *demoServer {
		return &demoServer{name: "math", tools: []demoTool{
			{"add", "Add two numbers", []string{"a", "b"}, arithmetic(func(a, b float64) (float64, error) { return a + b, nil })},
			{"divide", "Divide one number by another", []string{"a", "b"}, arithmetic(func(a, b float64) (float64, error) {
				if b == 0 {
					return 0, fmt.Errorf("cannot divide by zero")
				}
				return a / b, nil
			})},
		}}
	},
	"travel": func() *demoServer {
		return &demoServer{
			name: "travel",
			tools: []demoTool{{"distance", "The distance between two towns", []string{"from", "to"}, func(arguments []byte) (string, error) {
				from, _ := jsonrpc.TextAt(arguments, "from")
				to, _ := jsonrpc.TextAt(arguments, "to")
				return fmt.Sprintf("From %s to %s it is quite a walk.", from, to), nil
			}}},
			promptName: "packing_list",
			promptText: "Write me a packing list for a weekend.",
		}
	},
}

// arithmetic is a tool that computes with the numbers a and b.
func arithmetic(compute func(a, b float64) (float64, error)) func([]byte) (string, error) {
	return func(arguments []byte) (string, error) {
		var numbers [2]float64
		for i, name := range []string{"a", "b"} {
			n, err := strconv.ParseFloat(string(jsonrpc.Lookup(arguments, name)), 64)
			if err != nil {
				return "", fmt.Errorf("%s is no number", name)
			}
			numbers[i] = n
		}
		result, err := compute(numbers[0], numbers[1])
		return strconv.FormatFloat(result, 'g', -1, 64), err
	}
}

// demoServer is the hidden command.
func (p *program) demoServer(c *cli.Context) error {
	args, err := positionals(c, 1, 1)
	if err != nil {
		return err
	}
	make, known := demoServers[args[0]]
	if !known {
		return failf(exitNotFound, "", "no demo server %q", args[0])
	}
	return make().serve(c.Context, p)
}

// serve speaks MCP on stdin and stdout until the client closes.
func (d *demoServer) serve(ctx context.Context, p *program) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stream *jsonrpc.Stream
	stream = jsonrpc.NewStream(p.stdin, p.stdout, d, jsonrpc.StreamOptions{
		Bad:  func([]byte, error) {},
		Idle: func() { stream.Out.Flush() },
	})
	writing := make(chan struct{}) // closed when the writer has stopped
	go func() {
		defer close(writing)
		stream.Out.Run(ctx)
	}()
	read := make(chan error, 1)
	go func() { read <- stream.Serve(ctx) }() // may outlive us: nothing frees a read of a terminal
	var err error
	select {
	case err = <-read:
	case <-ctx.Done():
	}
	stream.Out.Drain(ctx)
	cancel()
	<-writing
	return err
}

// HandleNotification implements jsonrpc.Handler.
func (d *demoServer) HandleNotification(string, []byte) {}

// HandleRequest implements jsonrpc.Handler.
func (d *demoServer) HandleRequest(r *jsonrpc.Request) {
	switch r.Method {
	case "initialize":
		r.Reply(d.initialize(r.Params))
	case "ping":
		r.Reply([]byte(`{}`))
	case "tools/list":
		r.Reply(d.listTools())
	case "tools/call":
		d.call(r)
	case "prompts/list":
		r.Reply(d.listPrompts())
	case "prompts/get":
		r.Reply(fmt.Appendf(nil, `{"messages":[{"role":"user","content":{"type":"text","text":%s}}]}`, jsonrpc.Quote(d.promptText)))
	case "resources/list":
		r.Reply(d.listResources())
	case "resources/templates/list":
		r.Reply([]byte(`{"resourceTemplates":[]}`))
	case "resources/read":
		d.read(r)
	default:
		r.Fail(jsonrpc.ErrorObject(jsonrpc.CodeMethodNotFound, "Method not found: "+r.Method, nil))
	}
}

func (d *demoServer) initialize(params []byte) []byte {
	asked, _ := jsonrpc.TextAt(params, "protocolVersion")
	versions := upstream.LegacyVersions()
	if !slices.Contains(versions, asked) {
		asked = versions[0]
	}
	capabilities := `"tools":{}`
	if d.promptName != "" {
		capabilities += `,"prompts":{}`
	}
	if d.resource != nil {
		capabilities += `,"resources":{}`
	}
	return fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":{%s},"serverInfo":{"name":"demo %s","version":%s}}`,
		asked, capabilities, d.name, jsonrpc.Quote(versionText()))
}

func (d *demoServer) listTools() []byte {
	var tools []string
	for _, t := range d.tools {
		var properties, required []string
		for _, name := range t.arguments {
			properties = append(properties, fmt.Sprintf(`%q:{}`, name))
			required = append(required, strconv.Quote(name))
		}
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{%s},"required":[%s]}}`,
			t.name, t.description, strings.Join(properties, ","), strings.Join(required, ",")))
	}
	return []byte(`{"tools":[` + strings.Join(tools, ",") + `]}`)
}

func (d *demoServer) listPrompts() []byte {
	if d.promptName == "" {
		return []byte(`{"prompts":[]}`)
	}
	return fmt.Appendf(nil, `{"prompts":[{"name":%q}]}`, d.promptName)
}

func (d *demoServer) listResources() []byte {
	if d.resource == nil {
		return []byte(`{"resources":[]}`)
	}
	return fmt.Appendf(nil, `{"resources":[{"uri":%q,"name":"all notes"}]}`, d.resourceURI)
}

func (d *demoServer) call(r *jsonrpc.Request) {
	name, _ := jsonrpc.TextAt(r.Params, "name")
	arguments := jsonrpc.Lookup(r.Params, "arguments")
	i := slices.IndexFunc(d.tools, func(t demoTool) bool { return t.name == name })
	if i < 0 {
		r.Fail(jsonrpc.ErrorObject(jsonrpc.CodeInvalidParams, "Unknown tool: "+name, nil))
		return
	}
	for _, argument := range d.tools[i].arguments {
		if jsonrpc.Lookup(arguments, argument) == nil {
			r.Fail(jsonrpc.ErrorObject(jsonrpc.CodeInvalidParams, name+" needs "+argument, nil))
			return
		}
	}
	text, err := d.tools[i].run(arguments)
	flag := ""
	if err != nil {
		text, flag = err.Error(), `,"isError":true`
	}
	r.Reply(fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}]%s}`, jsonrpc.Quote(text), flag))
}

func (d *demoServer) read(r *jsonrpc.Request) {
	uri, _ := jsonrpc.TextAt(r.Params, "uri")
	if d.resource == nil || uri != d.resourceURI {
		r.Fail(jsonrpc.ErrorObject(-32002, "Resource not found: "+uri, nil)) // MCP 2025-11-25, server/resources
		return
	}
	r.Reply(fmt.Appendf(nil, `{"contents":[{"uri":%q,"text":%s}]}`, uri, jsonrpc.Quote(d.resource())))
}
