package proxy

import (
	"coffer/jsonrpc"
	"coffer/upstream"
)

// Status is what a session is doing at a moment, for people.
type Status struct {
	Client    *ClientStatus // nil: it has not spoken yet
	Upstreams []UpstreamStatus
}

// ClientStatus is who the client says it is.
type ClientStatus struct {
	Name, Version string
	Protocol      string // revision
}

// UpstreamStatus is one server of the config.
type UpstreamStatus struct {
	Server    string
	Transport upstream.Transport
	upstream.Status
}

// Status returns what the session is doing now: the enabled servers in config
// order, then the disabled ones. It must not be called before Serve has called
// Options.Beside.
func (s *Session) Status() Status {
	var status Status
	if told := s.client.said.Load(); told != nil {
		c := &ClientStatus{Protocol: told.version}
		c.Name, _ = jsonrpc.TextAt(told.info, "name")
		c.Version, _ = jsonrpc.TextAt(told.info, "version")
		if c.Protocol == "" {
			c.Protocol = upstream.ModernVersion
		}
		status.Client = c
	}
	roster := s.servers.Load()
	for i, spec := range roster.all() {
		status.Upstreams = append(status.Upstreams, UpstreamStatus{
			Server: spec.Name, Transport: spec.Transport, Status: roster.servers[i].Status(),
		})
	}
	for _, spec := range roster.off {
		status.Upstreams = append(status.Upstreams, UpstreamStatus{
			Server: spec.Name, Transport: spec.Transport, Status: upstream.Status{State: upstream.StateDisabled},
		})
	}
	return status
}
