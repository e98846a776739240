package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"coffer/prefs"
)

// params returns the params of a request as the client's revision has them.
func (c *soakClient) params(object string) string {
	if !c.modern {
		return object
	}
	meta := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"soak","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	if object == `{}` {
		return meta + `}`
	}
	return meta + `,` + object[1:]
}

// soakText is of what arguments are filled up with.
var soakText = strings.Repeat(`0123456789 \"é\" <&> \\ `, 1<<17)

// soakPad is a random number of bytes, sometimes many.
func soakPad(r *mrand.Rand) string {
	size := r.IntN(2000)
	switch n := r.IntN(200); {
	case n == 0:
		size = r.IntN(1 << 20)
	case n < 10:
		size = r.IntN(1 << 17)
	}
	size -= size % len(`0123456789 \"é\" <&> \\ `) // no half of an escape
	return soakText[:size]
}

// use is a client's mixed traffic, without end.
func (s *soak) use(c *soakClient, r *mrand.Rand) {
	for !s.done() {
		server := soakServers[r.IntN(len(soakServers))]
		switch n := r.IntN(100); {
		case n < 50:
			s.call(c, server, "echo", soakPad(r))
		case n < 56:
			s.call(c, server, "slow", "")
		case n < 59:
			s.call(c, server, "storm", "")
		case n < 64:
			s.call(c, server, "toggled", "")
		case n < 65:
			s.call(c, server, []string{"die", "half"}[r.IntN(2)], "")
		case n < 70:
			s.cancel(c, server)
		case n < 85:
			s.list(c)
		case n < 92:
			s.get(c, "prompts/get", server, fmt.Sprintf(`{"name":"%s__p_%s"}`, server, server), `"text":"p_`+server+`"`)
		default:
			uri := fmt.Sprintf("soak://%s/r", server)
			s.get(c, "resources/read", server, fmt.Sprintf(`{"uri":%q}`, uri), fmt.Sprintf(`"text":%q`, uri))
		}
		s.pause(r.IntN(200))
	}
}

// pause lets some milliseconds pass, or less if it is time to end.
func (s *soak) pause(ms int) {
	select {
	case <-s.over:
	case <-time.After(time.Duration(ms) * time.Millisecond):
	}
}

// number returns a new number for a call.
func (s *soak) number(server string) string { return fmt.Sprintf("%s-%d", server, s.asked.Add(1)) }

// call calls a tool and checks the answer.
func (s *soak) call(c *soakClient, server, tool, pad string) soakEnd {
	number := s.number(server)
	args := fmt.Sprintf(`{"n":%q,"pad":"%s"}`, number, pad)
	a, err := c.ask("tools/call", c.params(fmt.Sprintf(`{"name":"%s__%s","arguments":%s}`, server, tool, args)))
	end := soakUnknown
	switch {
	case err != nil:
		s.problem("call %s: %v", number, err)
	case a.Error == nil:
		end = soakAnswered
		var result struct{ Content []struct{ Text string } }
		if err := json.Unmarshal(a.Result, &result); err != nil || len(result.Content) != 1 || result.Content[0].Text != tool+" "+args {
			s.problem("call %s of %d bytes got what is not its answer: %.300s", number, len(args), a.Result)
		}
	case a.refused() && tool == "toggled", s.unavailable(a, server) && strings.Contains(a.Error.Message, "next attempt in"):
		end = soakRefused
	case !s.unavailable(a, server):
		s.problem("call %s: %v", number, a)
	}
	s.count([]string{"", "calls answered", "calls refused", "calls failed"}[end])
	s.ended(number, end)
	return end
}

// unavailable reports whether an answer says that server cannot be reached, or
// was too slow.
func (s *soak) unavailable(a liveAnswer, server string) bool {
	return a.Error != nil && (a.Error.Code == 503 || a.Error.Code == 504) && a.Error.Data.Upstream == server
}

// cancel begins a slow call and takes it back: an answer may come or not.
func (s *soak) cancel(c *soakClient, server string) {
	number := s.number(server)
	_, id, err := c.send("tools/call", c.params(fmt.Sprintf(`{"name":"%s__slow","arguments":{"n":%q}}`, server, number)))
	if err == nil {
		err = c.tell("notifications/cancelled", c.params(fmt.Sprintf(`{"requestId":%d}`, id)))
	}
	if err != nil {
		s.problem("call %s: %v", number, err)
	}
	s.ended(number, soakUnknown)
	s.count("calls cancelled")
}

// get sends a request and checks that the answer holds a text.
func (s *soak) get(c *soakClient, method, server, params, want string) {
	switch a, err := c.ask(method, c.params(params)); {
	case err != nil || a.Error == nil && !strings.Contains(string(a.Result), want) || a.Error != nil && !s.unavailable(a, server):
		s.problem("%s %s: %v %v", method, params, a, err)
	case a.Error == nil:
		s.count("reads and prompts answered")
	default:
		s.count("reads and prompts failed")
	}
}

// list asks for the tools: each server's are there, or it is named as missing.
func (s *soak) list(c *soakClient) {
	a, err := c.ask("tools/list", c.params(`{}`))
	if err != nil || a.Error != nil {
		s.problem("tools/list: %v %v", a, err)
		return
	}
	var result struct {
		Tools []struct{ Name string }
		Meta  struct {
			Missing []struct{ Upstream string } `json:"coffer/unavailable"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(a.Result, &result); err != nil {
		s.problem("tools/list: %v", err)
		return
	}
	tools := map[string]int{}
	for _, tool := range result.Tools {
		server, name, _ := strings.Cut(tool.Name, "__")
		if name != "toggled" {
			tools[server]++
		}
	}
	for _, missing := range result.Meta.Missing {
		tools[missing.Upstream] += len(soakTools) - 1
		s.count("lists without a server")
	}
	for _, server := range soakServers {
		if tools[server] != len(soakTools)-1 {
			s.problem("of %s %d tools are listed, or it is listed and missing: %.500s", server, tools[server], a.Result)
		}
	}
	s.count("lists")
}

// ping sees to it that pings do not wait for anything.
func (s *soak) ping(c *soakClient) {
	for !s.done() {
		began := time.Now()
		if _, err := c.ask("ping", `{}`); err != nil {
			s.problem("%v", err)
		}
		took := time.Since(began)
		if took > soakPatience {
			s.problem("a ping took %v", took)
		}
		s.slowest.Store(max(s.slowest.Load(), int64(took))) // of two who store at once one may win: it is only told
		s.count("pings")
		s.pause(50)
	}
}

// hear takes what a coffer says of itself.
func (s *soak) hear(c *soakClient) {
	for {
		select {
		case n := <-c.told:
			if !strings.HasPrefix(n.method, "notifications/") {
				s.problem("coffer said %.300s", n.method)
			}
			s.count(n.method)
		case <-s.over:
			return
		}
	}
}

// lag has one client read slowly, now and then.
func (s *soak) lag() {
	c := s.coffers[0]
	for !s.done() {
		c.lag.Store(int64(30 * time.Millisecond))
		s.pause(2000)
		c.lag.Store(0)
		s.pause(3000)
	}
}

// toggle switches tools off and on, and sees to it that the next request knows.
func (s *soak) toggle() {
	for n := 0; !s.done(); n++ {
		server, c := soakServers[n%len(soakServers)], s.coffers[1+n%2]
		for _, on := range []bool{false, true} {
			choose(s.t, s.store, on, prefs.Key{Server: server, Type: prefs.Tool, Key: "toggled"})
			if end := s.call(c, server, "toggled", ""); !on && end != soakRefused || on && end == soakRefused && s.refusedWrongly(c, server) {
				s.problem("toggled of %s is %s, and its call ended as %d", server, onOff(on), end)
			}
			s.count("toggles")
		}
		s.pause(100)
	}
}

// refusedWrongly reports whether a tool that is on counts as switched off, and
// not only as of a server that waits for its restart.
func (s *soak) refusedWrongly(c *soakClient, server string) bool {
	a, err := c.callTool(server + "__toggled")
	return err == nil && a.refused()
}

// command has other processes refresh and restart servers.
func (s *soak) command() {
	for n := 0; !s.done(); n++ {
		args := []string{"mcp", "refresh", soakServers[n%len(soakServers)]}
		if n%3 == 0 {
			args = append(args, "--reconnect")
		}
		if code, _, stderr := s.liveWorld.command(s.t, args...); code != exitDone && code != exitUnavailable {
			s.problem("%v: exit %d: %s", args, code, stderr)
		}
		s.count("refreshes")
		s.pause(3000)
	}
}

// kill ends and halts processes below the coffers.
func (s *soak) kill() {
	r := mrand.New(mrand.NewPCG(1, 2))
	for !s.done() {
		s.pause(200 + r.IntN(3000))
		c := s.coffers[r.IntN(len(s.coffers))]
		var victims []int
		for pid := range markedProcesses(s.t, markVar+"="+c.mark) {
			if pid != c.cmd.Process.Pid {
				victims = append(victims, pid)
			}
		}
		if len(victims) == 0 {
			continue
		}
		pid := victims[r.IntN(len(victims))]
		switch n := r.IntN(10); {
		case n < 5:
			syscall.Kill(pid, syscall.SIGKILL)
		case n < 7:
			syscall.Kill(pid, syscall.SIGTERM)
		default:
			syscall.Kill(pid, syscall.SIGSTOP)
			s.pause(r.IntN(3000))
			syscall.Kill(pid, syscall.SIGCONT)
		}
		s.count("processes killed or halted")
	}
}

// sicken has the HTTP servers forget, hang up and fail.
func (s *soak) sicken() {
	for n := 0; !s.done(); n++ {
		switch n % 3 {
		case 0:
			s.fakes[n%2].Forget()
		case 1:
			s.web[n%2].CloseClientConnections()
		case 2:
			s.ill.Store(true)
			s.pause(500)
			s.ill.Store(false)
		}
		s.count("HTTP servers failed")
		s.pause(1500)
	}
}

// visit has further coffers come and go; nothing of them may stay.
func (s *soak) visit() {
	for n := 0; !s.done(); n++ {
		c := &soakClient{mark: rand.Text()}
		c.liveCoffer = s.launch(s.t, s.config, markVar+"="+c.mark)
		if n%4 != 3 { // the fourth is gone while its servers start
			c.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
			for _, server := range soakServers {
				s.call(c, server, "echo", "")
			}
			c.send("tools/call", fmt.Sprintf(`{"name":"plain__slow","arguments":{"n":%q}}`, s.number("plain")))
		}
		switch n % 4 {
		case 0:
			c.stdin.Close()
		case 1:
			c.cmd.Process.Signal(syscall.SIGTERM)
		case 2:
			c.cmd.Process.Kill()
		case 3:
			c.send("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
			c.send("tools/list", `{}`)
			c.cmd.Process.Signal(syscall.SIGTERM)
		}
		<-c.ended
		c.cmd.Wait()
		if left := waitForMarked(s.t, markVar+"="+c.mark, soakPatience); len(left) > 0 {
			s.problem("visitor %d left behind:\n%s", n, strings.Join(left, "\n"))
		}
		s.checkLog(-1, c.logged(s.t))
		os.Remove(c.log)
		s.count("coffers that came and went")
		s.pause(1000)
	}
}
