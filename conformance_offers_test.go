package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

var fixtureInfo = fixtureObject{"name": "fixture", "version": "1.0.0"}

const fixtureCapabilities = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},
	"resources":{"listChanged":true,"subscribe":true},"completions":{},"logging":{}}`

// fixtureMethods are the methods of both eras.
var fixtureMethods map[string]func(c *fixtureCall) (fixtureObject, error)

func init() { // the table refers to itself through the tools
	nothing := func(*fixtureCall) (fixtureObject, error) { return fixtureObject{}, nil }
	fixtureMethods = map[string]func(c *fixtureCall) (fixtureObject, error){
		"initialize": func(c *fixtureCall) (fixtureObject, error) {
			return fixtureObject{"protocolVersion": "2025-11-25", "capabilities": json.RawMessage(fixtureCapabilities), "serverInfo": fixtureInfo}, nil
		},
		"server/discover": func(c *fixtureCall) (fixtureObject, error) {
			return fixtureObject{"supportedVersions": []string{"2026-07-28"}, "capabilities": json.RawMessage(fixtureCapabilities)}, nil
		},
		"subscriptions/listen":  (*fixtureCall).subscribe,
		"ping":                  nothing,
		"resources/subscribe":   nothing,
		"resources/unsubscribe": nothing,
		"logging/setLevel": func(c *fixtureCall) (fixtureObject, error) {
			c.f.mu.Lock()
			defer c.f.mu.Unlock()
			c.f.level = c.Params.Level
			return fixtureObject{}, nil
		},
		"completion/complete": func(c *fixtureCall) (fixtureObject, error) {
			return fixtureObject{"completion": fixtureObject{"values": []string{"paris", "park", "party"}, "total": 3, "hasMore": false}}, nil
		},
		"tools/list":     func(c *fixtureCall) (fixtureObject, error) { return c.list("tools", fixtureTools) },
		"tools/call":     func(c *fixtureCall) (fixtureObject, error) { return c.get("tool", "tools", fixtureTools) },
		"prompts/list":   func(c *fixtureCall) (fixtureObject, error) { return c.list("prompts", fixturePrompts) },
		"prompts/get":    func(c *fixtureCall) (fixtureObject, error) { return c.get("prompt", "prompts", fixturePrompts) },
		"resources/list": func(c *fixtureCall) (fixtureObject, error) { return object(fixtureResources), nil },
		"resources/templates/list": func(c *fixtureCall) (fixtureObject, error) {
			return object(`{"resourceTemplates":[{"uriTemplate":"test://template/{id}/data","name":"template","mimeType":"application/json"}]}`), nil
		},
		"resources/read": (*fixtureCall).read,
	}
}

// fixtureItem is a tool or a prompt.
type fixtureItem struct {
	name string
	rest string // raw members of the listed item after the name and description
	run  func(c *fixtureCall) (fixtureObject, error)
}

// dynamicItem is the last tool and the last prompt, which come and go.
const dynamicItem = "test_dynamic"

func (c *fixtureCall) list(kind string, items []fixtureItem) (fixtureObject, error) {
	var listed []json.RawMessage
	for _, item := range items {
		if item.name != dynamicItem || c.f.has(kind) {
			listed = append(listed, fmt.Appendf(nil, `{"name":%q,"description":"For the suite: %s"%s}`, item.name, item.name, item.rest))
		}
	}
	return fixtureObject{kind: listed}, nil
}

func (c *fixtureCall) get(noun, kind string, items []fixtureItem) (fixtureObject, error) {
	for _, item := range items {
		if item.name == c.Params.Name && (item.name != dynamicItem || c.f.has(kind)) {
			return item.run(c)
		}
	}
	return nil, &fixtureError{-32602, "Unknown " + noun + ": " + c.Params.Name, nil}
}

func (f *fixture) has(kind string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.extra[kind]
}

// object reads a constant.
func object(text string) (o fixtureObject) {
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	return o
}

func text(format string, args ...any) (fixtureObject, error) {
	return fixtureObject{"content": []any{fixtureObject{"type": "text", "text": fmt.Sprintf(format, args...)}}}, nil
}

// tool is a tool that takes no arguments.
func tool(name string, run func(c *fixtureCall) (fixtureObject, error)) fixtureItem {
	return fixtureItem{name, `,"inputSchema":{"type":"object"}`, run}
}

// constant is a tool that always returns the same content.
func constant(name, content string) fixtureItem {
	return tool(name, func(*fixtureCall) (fixtureObject, error) { return object(`{"content":[` + content + `]}`), nil })
}

// asker is a tool that asks once and tells what it was answered.
func asker(name string, state bool, questions map[string]fixtureQuestion) fixtureItem {
	return tool(name, func(c *fixtureCall) (fixtureObject, error) {
		ask := c.ask
		if state {
			ask = c.askByState
		}
		answers, err := ask(questions)
		if err != nil {
			return nil, err
		}
		return text("state-ok: %v", answers)
	})
}

const (
	fixtureImage = `"data":"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==","mimeType":"image/png"`
	fixtureAudio = `"data":"UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=","mimeType":"audio/wav"`
	nameSchema   = `{"name":{"type":"string"}}`
	okSchema     = `{"ok":{"type":"boolean"}}`
)

var fixtureTools = []fixtureItem{
	constant("test_simple_text", `{"type":"text","text":"This is a simple text response for testing."}`),
	constant("test_image_content", `{"type":"image",`+fixtureImage+`}`),
	constant("test_audio_content", `{"type":"audio",`+fixtureAudio+`}`),
	constant("test_embedded_resource", `{"type":"resource","resource":{"uri":"test://embedded-resource","mimeType":"text/plain","text":"This is an embedded resource content."}}`),
	constant("test_multiple_content_types", `{"type":"text","text":"Multiple content types test:"},{"type":"image",`+fixtureImage+`},
		{"type":"resource","resource":{"uri":"test://mixed-content-resource","mimeType":"application/json","text":"{\"test\":\"data\",\"value\":123}"}}`),
	tool("test_error_handling", func(*fixtureCall) (fixtureObject, error) {
		return object(`{"content":[{"type":"text","text":"This tool intentionally returns an error for testing"}],"isError":true}`), nil
	}),
	tool("test_tool_with_logging", logThrice),
	tool("test_logging_tool", logThrice),
	tool("test_tool_with_progress", func(c *fixtureCall) (fixtureObject, error) {
		for _, done := range []int{0, 50, 100} {
			c.progress(done)
		}
		return text("progress reported")
	}),
	tool("test_sampling", func(c *fixtureCall) (fixtureObject, error) {
		prompt, _ := c.Params.Arguments["prompt"].(string)
		answers, err := c.ask(map[string]fixtureQuestion{"sample": sample(prompt)})
		if err != nil {
			return nil, err
		}
		return text("LLM response: %v", answers["sample"])
	}),
	tool("test_elicitation", func(c *fixtureCall) (fixtureObject, error) {
		message, _ := c.Params.Arguments["message"].(string)
		answers, err := c.ask(map[string]fixtureQuestion{"user": elicit(message, `{"username":{"type":"string"},"email":{"type":"string"}}`)})
		if err != nil {
			return nil, err
		}
		return text("User response: %v", answers["user"])
	}),
	asker("test_streaming_elicitation", false, map[string]fixtureQuestion{"name": elicit("Your name?", nameSchema)}),
	asker("test_elicitation_sep1034_defaults", false, map[string]fixtureQuestion{"form": elicit("Provide your information", `{
		"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
		"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}`)}),
	asker("test_elicitation_sep1330_enums", false, map[string]fixtureQuestion{"form": elicit("Select options", `{
		"untitledSingle":{"type":"string","enum":["option1","option2"]},
		"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"Value One"},{"const":"value2","title":"Value Two"}]},
		"legacyEnum":{"type":"string","enum":["opt1","opt2"],"enumNames":["Option One","Option Two"]},
		"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2"]}},
		"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"Value One"},{"const":"value2","title":"Value Two"}]}}}`)}),
	asker("test_missing_capability", false, map[string]fixtureQuestion{"sample": sample("Anything")}),
	asker("test_input_required_result_elicitation", false, map[string]fixtureQuestion{"user_name": elicit("What is your name?", nameSchema)}),
	asker("test_input_required_result_sampling", false, map[string]fixtureQuestion{"capital_question": sample("What is the capital of France?")}),
	asker("test_input_required_result_list_roots", false, map[string]fixtureQuestion{"client_roots": listRoots}),
	asker("test_input_required_result_request_state", true, map[string]fixtureQuestion{"confirm": elicit("Please confirm", okSchema)}),
	asker("test_input_required_result_tampered_state", true, map[string]fixtureQuestion{"confirm": elicit("Please confirm", okSchema)}),
	asker("test_input_required_result_multiple_inputs", true, map[string]fixtureQuestion{
		"user_name": elicit("What is your name?", nameSchema), "greeting": sample("Generate a greeting"), "client_roots": listRoots,
	}),
	tool("test_input_required_result_multi_round", func(c *fixtureCall) (fixtureObject, error) {
		name, err := c.askByState(map[string]fixtureQuestion{"step1": elicit("Step 1: What is your name?", nameSchema)})
		if err != nil {
			return nil, err
		}
		color, err := c.askByState(map[string]fixtureQuestion{"step2": elicit("Step 2: What is your favorite color?", `{"color":{"type":"string"}}`)})
		if err != nil {
			return nil, err
		}
		return text("%v likes %v", name["step1"], color["step2"])
	}),
	tool("test_input_required_result_capabilities", func(c *fixtureCall) (fixtureObject, error) {
		questions := make(map[string]fixtureQuestion)
		for key, q := range map[string]fixtureQuestion{"user_name": elicit("What is your name?", nameSchema), "sample": sample("Anything")} {
			if c.declares(q.Method) {
				questions[key] = q
			}
		}
		answers, err := c.ask(questions)
		if err != nil {
			return nil, err
		}
		return text("%v", answers)
	}),
	tool("test_trigger_tool_change", func(c *fixtureCall) (fixtureObject, error) {
		c.f.toggle("tools")
		return text("changed")
	}),
	tool("test_trigger_prompt_change", func(c *fixtureCall) (fixtureObject, error) {
		c.f.toggle("prompts")
		return text("changed")
	}),
	constant(dynamicItem, `{"type":"text","text":"here"}`),
}

func logThrice(c *fixtureCall) (fixtureObject, error) {
	for _, step := range []string{"started", "processing data", "completed"} {
		c.log("Tool execution " + step)
	}
	return text("Tool with logging executed successfully")
}

// prompt is a prompt of one message.
func prompt(name, arguments, content string) fixtureItem {
	return fixtureItem{name, `,"arguments":[` + arguments + `]`, func(c *fixtureCall) (fixtureObject, error) {
		filled := content
		for key, value := range c.Params.Arguments {
			filled = strings.ReplaceAll(filled, "<"+key+">", fmt.Sprint(value))
		}
		return object(`{"messages":[{"role":"user","content":` + filled + `}]}`), nil
	}}
}

var fixturePrompts = []fixtureItem{
	prompt("test_simple_prompt", ``, `{"type":"text","text":"This is a simple prompt for testing."}`),
	prompt("test_prompt_with_arguments", `{"name":"arg1","required":true},{"name":"arg2","required":true}`,
		`{"type":"text","text":"Prompt with arguments: arg1='<arg1>', arg2='<arg2>'"}`),
	prompt("test_prompt_with_embedded_resource", `{"name":"resourceUri","required":true}`,
		`{"type":"resource","resource":{"uri":"<resourceUri>","mimeType":"text/plain","text":"Embedded resource content for testing."}}`),
	prompt("test_prompt_with_image", ``, `{"type":"image",`+fixtureImage+`}`),
	{"test_input_required_result_prompt", ``, func(c *fixtureCall) (fixtureObject, error) {
		answers, err := c.ask(map[string]fixtureQuestion{"user_context": elicit("What context should the prompt use?", `{"context":{"type":"string"}}`)})
		if err != nil {
			return nil, err
		}
		return fixtureObject{"messages": []any{fixtureObject{"role": "user", "content": fixtureObject{"type": "text", "text": fmt.Sprint(answers)}}}}, nil
	}},
	prompt(dynamicItem, ``, `{"type":"text","text":"here"}`),
}

const fixtureResources = `{"resources":[
	{"uri":"test://static-text","name":"static-text","mimeType":"text/plain"},
	{"uri":"test://static-binary","name":"static-binary","mimeType":"image/png"},
	{"uri":"test://watched-resource","name":"watched-resource","mimeType":"text/plain"}]}`

func (c *fixtureCall) read() (fixtureObject, error) {
	uri := c.Params.URI
	content := fixtureObject{"uri": uri, "mimeType": "text/plain"}
	id, isData := strings.CutPrefix(uri, "test://template/")
	switch {
	case uri == "test://static-text" || uri == "test://watched-resource":
		content["text"] = "This is the content of " + uri
	case uri == "test://static-binary":
		content["mimeType"], content["blob"] = "image/png", "iVBORw0KGgo="
	case isData && strings.HasSuffix(id, "/data"):
		content["mimeType"], content["text"] = "application/json", fmt.Sprintf(`{"id":%q,"templateTest":true}`, strings.TrimSuffix(id, "/data"))
	case c.newer:
		return nil, &fixtureError{-32602, "Resource not found", fixtureObject{"uri": uri}}
	default:
		return nil, &fixtureError{-32002, "Resource not found", fixtureObject{"uri": uri}}
	}
	return fixtureObject{"contents": []any{content}}, nil
}
