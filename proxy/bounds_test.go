package proxy

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestInstructionsAreBounded: a server's part of the merged instructions is cut
// between two characters, and a reader sees that it was.
func TestInstructionsAreBounded(t *testing.T) {
	whole := strings.Repeat("x", maxInstructions)
	if got := clipped(whole); got != whole {
		t.Errorf("%d bytes became %d, though they fit", len(whole), len(got))
	}
	// An € has three bytes: the bound falls into the last one.
	got := clipped(strings.Repeat("x", maxInstructions-1) + "€€")
	if want := strings.Repeat("x", maxInstructions-1) + " …"; got != want || !utf8.ValidString(got) {
		t.Errorf("cut to %d bytes ending in %q, want %d in %q", len(got), got[len(got)-8:], len(want), want[len(want)-8:])
	}
}

// TestSightingsAreBounded: of URIs that results showed, the one that was not
// shown for the longest time is forgotten first.
func TestSightingsAreBounded(t *testing.T) {
	s := newSightings(2)
	s.put("a", 1)
	s.put("b", 1)
	s.put("a", 2) // shown again, and by another server
	s.put("c", 1)
	if _, ok := s.get("b"); ok {
		t.Error("the oldest is still known")
	}
	if server, ok := s.get("a"); !ok || server != 2 {
		t.Errorf("a is of server %d (%t), want the one that showed it last", server, ok)
	}
	if server, ok := s.get("c"); !ok || server != 1 {
		t.Errorf("c is of server %d (%t)", server, ok)
	}
	if s.order.Len() != 2 || len(s.byURI) != 2 {
		t.Errorf("%d and %d URIs are kept, want 2", s.order.Len(), len(s.byURI))
	}
}
