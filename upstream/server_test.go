package upstream

import (
	"errors"
	"testing"
	"time"
)

// TestEvictLost: a connection that died counts as a failure also if a list that
// failed on it gives it up before its reader has said that it is lost.
func TestEvictLost(t *testing.T) {
	f := newFake(t)
	s := reach(t, Spec{Transport: TransportHTTP, URL: f.URL}, newProxy())
	died := errors.New("died")
	for n, want := range []time.Duration{0, time.Second} {
		s.mu.Lock()
		s.retryAt = time.Time{}
		s.mu.Unlock()
		c := connected(t, s)
		c.mu.Lock()
		c.err = died
		c.mu.Unlock()
		s.Evict(c)
		s.lost(c, died)
		status := s.Status()
		if !errors.Is(status.LastErr, died) || status.State != StateDown {
			t.Errorf("%d: %+v, want down because it died", n, status)
		}
		if wait := time.Until(s.retryAt); wait > want || wait < want-patience {
			t.Errorf("%d: the next attempt may come in %v, want %v", n, wait, want)
		}
		if s.failures != n+1 {
			t.Errorf("%d failures, want %d", s.failures, n+1)
		}
	}
	s.mu.Lock()
	s.retryAt = time.Time{}
	s.mu.Unlock()
	s.Evict(connected(t, s))
	if s.failures != 2 {
		t.Errorf("a live connection that was given up counts as a failure")
	}
}
