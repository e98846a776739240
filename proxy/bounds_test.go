package proxy

import (
	"strings"
	"testing"
	"unicode/utf8"

	"coffer/upstream"
)

// TestInstructionsAreBounded: a server's part of the merged instructions is cut
// between two characters, and a reader sees that it was. Of a server alone
// nothing is cut.
func TestInstructionsAreBounded(t *testing.T) {
	whole := strings.Repeat("x", maxInstructions)
	if got := clipped(whole); got != whole {
		t.Errorf("%d bytes became %d, though they fit", len(whole), len(got))
	}
	// An € has three bytes: the bound falls into the last one.
	long := strings.Repeat("x", maxInstructions-1) + "€€"
	want := strings.Repeat("x", maxInstructions-1) + " …"
	got := clipped(long)
	if got != want || !utf8.ValidString(got) {
		t.Errorf("cut to %d bytes ending in %q, want %d in %q", len(got), got[len(got)-8:], len(want), want[len(want)-8:])
	}

	two := inOrder([]*upstream.Spec{{Name: "a"}, {Name: "b"}})
	if got := two.mergeInstructions([]string{long, long}); strings.Count(got, "\n"+want) != 2 || len(got) > 2*len(want)+200 {
		t.Errorf("two servers' parts are merged to %d bytes, want each cut to %d", len(got), len(want))
	}
	one := inOrder([]*upstream.Spec{{Name: "a"}})
	if got := one.mergeInstructions([]string{long}); got != long {
		t.Errorf("a server alone has %d bytes passed on, want its own %d", len(got), len(long))
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
