package upstream

import "time"

// State says how a server is reached at a moment.
type State string

const (
	// StateIdle: nothing has needed it yet, or its connection was given up on
	// purpose; the next use connects.
	StateIdle State = "idle"
	// StateConnecting: an attempt is under way.
	StateConnecting State = "connecting"
	// StateConnected: requests can be sent at once.
	StateConnected State = "connected"
	// StateDown: the newest attempt or connection failed; a use connects anew
	// once the wait is over.
	StateDown State = "down"
	// StateBroken: its entry in the config does not let it be reached.
	StateBroken State = "broken"
	// StateDisabled: it is switched off in the config.
	StateDisabled State = "disabled"
)

// Status is what is known of a server at a moment, for people.
type Status struct {
	State       State
	Version     string    // protocol revision of the connection, or ""
	ConnectedAt time.Time // of the newest connection; zero: there was none
	Restarts    int       // connections after the first
	Calls       int64     // requests of the client that were to be sent to it
	LastErr     error     // why the newest attempt or connection to fail did, or nil
	LastErrAt   time.Time
	RetryAt     time.Time // before this no attempt is made; zero: at the next use
}

// history is what a Server remembers only to tell of it.
type history struct {
	connections int
	connectedAt time.Time
	failedAt    time.Time
}

// Status returns what is known of the server now.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{
		State: StateIdle, ConnectedAt: s.history.connectedAt, Restarts: max(0, s.history.connections-1),
		Calls: s.calls.Load(), LastErr: s.lastErr, LastErrAt: s.history.failedAt,
	}
	switch {
	case s.conn != nil:
		status.State, status.Version = StateConnected, s.conn.Version()
	case s.dial != nil:
		status.State = StateConnecting
	case s.spec.Err != nil:
		status.State, status.LastErr = StateBroken, s.spec.Err
	case s.failures > 0:
		status.State = StateDown
		if time.Until(s.retryAt) > 0 {
			status.RetryAt = s.retryAt
		}
	}
	return status
}
