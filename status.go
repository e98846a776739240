package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"coffer/proxy"
	"coffer/siblings"
	"coffer/upstream"
)

// running is one coffer in `coffer status --json`. Each running coffer writes
// it about itself; only Error is added by who asked. Coffers of several
// versions read it, so members are added and never change.
type running struct {
	PID       int               `json:"pid"`
	Version   string            `json:"version"`
	StartedAt moment            `json:"started_at"`
	Config    string            `json:"config"`
	DB        string            `json:"db"`
	Client    *runningClient    `json:"client"` // null: it has not spoken yet
	Upstreams []runningUpstream `json:"upstreams"`
	Error     *string           `json:"error"` // why it does not tell more
}

// runningClient is who the client of a running coffer says it is.
type runningClient struct {
	Name            string `json:"name"`
	Version         string `json:"version"`
	ProtocolVersion string `json:"protocol_version"`
}

// runningUpstream is one server of a running coffer.
type runningUpstream struct {
	Server          string         `json:"server"`
	Transport       string         `json:"transport"`
	State           upstream.State `json:"state"`
	ProtocolVersion *string        `json:"protocol_version"` // while it is connected
	ConnectedAt     moment         `json:"connected_at"`     // of the newest connection
	Calls           int64          `json:"calls"`            // requests of the client for it
	Restarts        int            `json:"restarts"`         // connections after the first
	LastError       *string        `json:"last_error"`
	LastErrorAt     moment         `json:"last_error_at"`
	RetryAt         moment         `json:"retry_at"` // before this it is not tried again
}

// answer tells whoever asks what the session is doing, until ctx ends.
func (r running) answer(ctx context.Context, log zerolog.Logger, session *proxy.Session) {
	if err := siblings.Serve(ctx, runtimeFolders(), func() []byte { return r.document(session.Status()) }); err != nil {
		log.Debug().Err(err).Msg("no socket: `coffer status` will not see this coffer")
	}
}

// document returns what r's coffer says when it is asked.
func (r running) document(status proxy.Status) []byte {
	if c := status.Client; c != nil {
		r.Client = &runningClient{Name: c.Name, Version: c.Version, ProtocolVersion: c.Protocol}
	}
	r.Upstreams = make([]runningUpstream, len(status.Upstreams))
	for i, u := range status.Upstreams {
		r.Upstreams[i] = runningUpstream{
			Server: u.Server, Transport: u.Transport.String(), State: u.State, ProtocolVersion: optional(u.Version),
			ConnectedAt: moment(u.ConnectedAt), Calls: u.Calls, Restarts: u.Restarts,
			LastError: optional(textOf(u.LastErr)), LastErrorAt: moment(u.LastErrAt), RetryAt: moment(u.RetryAt),
		}
	}
	text, _ := json.Marshal(r) // texts, numbers and times: it cannot fail
	return text
}

// askRunning asks every coffer that runs, oldest first.
func (p *program) askRunning(c *cli.Context) []running {
	answers, err := siblings.Ask(c.Context, runtimeFolders())
	if err != nil {
		p.warn("%v", err)
	}
	all := make([]running, 0, len(answers))
	for _, a := range answers {
		r := running{PID: a.PID}
		if a.Err == nil {
			a.Err = json.Unmarshal(a.Text, &r)
		}
		if r.Error = optional(textOf(a.Err)); r.Upstreams == nil {
			r.Upstreams = []runningUpstream{}
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b running) int {
		if n := time.Time(a.StartedAt).Compare(time.Time(b.StartedAt)); n != 0 {
			return n
		}
		return a.PID - b.PID
	})
	return all
}

func (p *program) statusCommand() *cli.Command {
	return &cli.Command{Name: "status", Usage: "show the coffers that run now, and how their servers are",
		Description: "It asks each over its own socket. A server is connected, connecting, idle (nothing needed it\n" +
			"yet), down (a use tries again, after a pause), broken (its entry in the config) or disabled.",
		Flags: []cli.Flag{jsonFlag()}, Action: p.status}
}

// status is `coffer status`.
func (p *program) status(c *cli.Context) error {
	if _, err := positionals(c, 0, 0); err != nil {
		return err
	}
	all := p.askRunning(c)
	if c.Bool("json") {
		return p.printJSON(map[string]any{"coffers": all})
	}
	if len(all) == 0 {
		p.say("No coffer is running.")
	}
	config, _, err := p.configPath(c)
	if err != nil {
		config = "" // then every coffer's is shown
	}
	for i, r := range all {
		if i > 0 {
			p.say("")
		}
		p.printRunning(r, absolute(config))
	}
	return nil
}

// printRunning prints one coffer; config is the file that needs no mention.
func (p *program) printRunning(r running, config string) {
	if r.Error != nil {
		p.say("pid %d: %s", r.PID, *r.Error)
		return
	}
	p.say("%s, pid %d, since %s", r.clientText(), r.PID, r.StartedAt.short())
	if r.Config != config {
		p.say("  config: %s", r.Config)
	}
	if r.Version != versionText() {
		p.say("  coffer %s", r.Version)
	}
	if len(r.Upstreams) == 0 {
		p.say("  no servers")
		return
	}
	rows := [][]string{{"SERVER", "STATE", "CALLS", "RESTARTS", "LAST ERROR"}}
	for _, u := range r.Upstreams {
		rows = append(rows, []string{u.Server, u.stateText(), strconv.FormatInt(u.Calls, 10), strconv.Itoa(u.Restarts), u.errorText()})
	}
	p.table("  ", rows)
}

// clientText is the client in prose.
func (r running) clientText() string {
	switch {
	case r.Client == nil:
		return "no client yet"
	case r.Client.Name == "":
		return "a client without a name"
	}
	return strings.TrimSpace(r.Client.Name + " " + r.Client.Version)
}

func (u runningUpstream) stateText() string {
	if wait := time.Until(time.Time(u.RetryAt)); wait > 0 {
		return fmt.Sprintf("%s, retry in %s", u.State, wait.Round(time.Second))
	}
	return string(u.State)
}

// errorText is the last error in one line, with its time.
func (u runningUpstream) errorText() string {
	if u.LastError == nil {
		return ""
	}
	text, _, more := strings.Cut(*u.LastError, "\n")
	if more {
		text += " …"
	}
	if !time.Time(u.LastErrorAt).IsZero() {
		text = u.LastErrorAt.short() + ": " + text
	}
	return text
}
