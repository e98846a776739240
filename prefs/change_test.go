package prefs

import (
	"testing"
	"time"
)

func TestSetReturnsTheRowsBefore(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	reconcile(t, s, "fs", true, noon, "listed")
	later := noon.Add(time.Hour)
	before, err := s.Set(t.Context(), []Change{{tool("listed"), false}, {tool("new"), true}, {tool("new"), false}}, later)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "before", before, []*Row{
		{Key: tool("listed"), Enabled: true, FirstSeen: noon, LastSeen: noon},
		nil,
		{Key: tool("new"), Enabled: true, SetAt: later},
	})
	equal(t, "rows", allRows(t, s), []Row{
		{Key: tool("listed"), FirstSeen: noon, LastSeen: noon, SetAt: later},
		{Key: tool("new"), SetAt: later},
	})
}

func TestSetIsAllOrNothing(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	_, err := s.Set(t.Context(), []Change{{tool("a"), false}, {Key{"fs", "nonsense", "b"}, false}}, noon)
	if err == nil {
		t.Error("a type that does not exist was stored")
	}
	equal(t, "rows", allRows(t, s), []Row(nil))
}

func TestReconcile(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	set(t, s, tool("waits"), false)
	later, latest := noon.Add(time.Hour), noon.Add(2*time.Hour)

	diff := reconcile(t, s, "fs", true, later, "a", "b", "a", "waits")
	equal(t, "first", diff, Diff{New: []Key{tool("a"), tool("b"), tool("waits")}})
	set(t, s, tool("a"), false)

	diff = reconcile(t, s, "fs", false, latest, "c", "a", "")
	equal(t, "second", diff, Diff{
		New: []Key{tool("c"), tool("")},
		Gone: []Row{
			{Key: tool("b"), Enabled: true, FirstSeen: later, LastSeen: later},
			{Key: tool("waits"), FirstSeen: later, LastSeen: later, SetAt: noon},
		},
	})
	reconcile(t, s, "fs", true, noon, "a") // a slow sibling's older list
	equal(t, "rows", allRows(t, s), []Row{
		{Key: tool(""), FirstSeen: latest, LastSeen: latest},
		{Key: tool("a"), FirstSeen: later, LastSeen: latest, SetAt: noon},
		{Key: tool("b"), Enabled: true, FirstSeen: later, LastSeen: later},
		{Key: tool("c"), FirstSeen: latest, LastSeen: latest},
		{Key: tool("waits"), FirstSeen: later, LastSeen: later, SetAt: noon},
	})
}

// TestReconcileKeepsToItsTypes: a list that failed is not given, and loses nothing.
func TestReconcileKeepsToItsTypes(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	lists := []Listed{{Tool, []string{"a"}}, {Prompt, []string{"a"}}, {Resource, nil}}
	for _, server := range []string{"fs", "git"} {
		if _, err := s.Reconcile(t.Context(), server, lists, true, noon); err != nil {
			t.Fatal(err)
		}
	}
	diff, err := s.Reconcile(t.Context(), "fs", []Listed{{Prompt, nil}}, true, noon)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "diff", diff, Diff{Gone: []Row{{Key: Key{"fs", Prompt, "a"}, Enabled: true, FirstSeen: noon, LastSeen: noon}}})
	rows, err := s.Rows(t.Context(), Filter{Server: "git", Types: []Type{Tool}})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "rows", rows, []Row{{Key: Key{"git", Tool, "a"}, Enabled: true, FirstSeen: noon, LastSeen: noon}})
}

// TestKeysAreTakenAsTheyAre: whatever an upstream calls its things.
func TestKeysAreTakenAsTheyAre(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	keys := []string{"", " ", "a\x00b", "a\nb", "\xff", "Ünï", "'; DROP TABLE x; --", "file:///a%20b?c#d"}
	reconcile(t, s, "fs", true, noon, keys...)
	for _, key := range keys {
		if _, known := fresh(t, s).Lookup(tool(key)); !known {
			t.Errorf("%q is not known", key)
		}
		row, known, err := s.Get(t.Context(), tool(key))
		if !known || err != nil || row.Key != tool(key) {
			t.Errorf("Get %q: %v %t %v", key, row, known, err)
		}
	}
}

func TestMatch(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	reconcile(t, s, "fs", true, noon, "read_file", "read_dir", "Read", "write_file", "file:///a/b", "a*b", "a[b", "über")
	reconcile(t, s, "git", true, noon, "read_log")
	for _, test := range []struct {
		glob string
		want []string
	}{
		{"read_*", []string{"read_dir", "read_file"}},
		{"*_file", []string{"read_file", "write_file"}},
		{"file:*b", []string{"file:///a/b"}},
		{"[rw]*_file", []string{"read_file", "write_file"}},
		{"[^rw]*_file", nil},
		{"?ber", []string{"über"}},
		{"read", nil},
		{"a[*]b", []string{"a*b"}},
		{"a[[]b", []string{"a[b"}},
		{"a[b", nil},
		{"", nil},
	} {
		got, err := s.Match(t.Context(), "fs", Tool, test.glob)
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, k := range got {
			keys = append(keys, k.Key)
		}
		equal(t, test.glob, keys, test.want)
	}
}

func TestPrune(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	old, recent := noon.Add(-100*24*time.Hour), noon
	reconcile(t, s, "fs", true, old, "old", "old by hand")
	reconcile(t, s, "fs", true, recent, "recent")
	reconcile(t, s, "left", true, old, "x")
	if _, err := s.Set(t.Context(), []Change{{tool("old by hand"), false}, {tool("waits"), false}}, old); err != nil {
		t.Fatal(err)
	}
	x, limit := Key{"left", Tool, "x"}, noon.Add(-90*24*time.Hour)
	for _, test := range []struct {
		name string
		opt  PruneOptions
		want []Key
	}{
		{"by age", PruneOptions{UnseenBefore: limit}, []Key{tool("old"), x}},
		{"by age, by hand too", PruneOptions{UnseenBefore: limit, All: true}, []Key{tool("old"), tool("old by hand"), tool("waits"), x}},
		{"one server", PruneOptions{Server: "left"}, []Key{x}},
		{"one server by age", PruneOptions{Server: "fs", UnseenBefore: limit}, []Key{tool("old")}},
		{"one server, all of it", PruneOptions{Server: "fs", All: true}, []Key{tool("old"), tool("old by hand"), tool("recent"), tool("waits")}},
		{"nothing is that old", PruneOptions{UnseenBefore: old}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.opt.DryRun = true
			rows, err := s.Prune(t.Context(), test.opt)
			if err != nil {
				t.Fatal(err)
			}
			var got []Key
			for _, r := range rows {
				got = append(got, r.Key)
			}
			equal(t, "dry run", got, test.want)
			equal(t, "rows left", len(allRows(t, s)), 5)
		})
	}
	rows, err := s.Prune(t.Context(), PruneOptions{UnseenBefore: limit, All: true})
	if err != nil || len(rows) != 4 {
		t.Errorf("pruned %v, %v, want four", rows, err)
	}
	equal(t, "rows left", allRows(t, s), []Row{{Key: tool("recent"), Enabled: true, FirstSeen: recent, LastSeen: recent}})
	if _, err := s.Prune(t.Context(), PruneOptions{All: true}); err == nil {
		t.Error("a prune without an age or a server cleared the file")
	}
}

func TestImportOfAnExportIsTheSame(t *testing.T) {
	from, to := openAt(t, newPath(t), Options{}), openAt(t, newPath(t), Options{})
	reconcile(t, from, "fs", false, noon, "a", "b")
	set(t, from, tool("b"), true)
	set(t, from, tool("waits"), false)
	set(t, to, tool("other"), true)
	export := allRows(t, from)

	done, err := to.Import(t.Context(), export, true, noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "done", done, Imported{Added: []Key{tool("a"), tool("b"), tool("waits")}, Removed: []Key{tool("other")}})
	equal(t, "rows", allRows(t, to), export)

	done, err = to.Import(t.Context(), export, false, noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "done again", done, Imported{})
	equal(t, "rows after another import", allRows(t, to), export)
}

func TestImportMerges(t *testing.T) {
	early, late, now := noon.Add(-time.Hour), noon.Add(time.Hour), noon.Add(2*time.Hour)
	seen := func(first, last, setAt time.Time, enabled bool) Row {
		return Row{Key: tool("a"), Enabled: enabled, FirstSeen: first, LastSeen: last, SetAt: setAt}
	}
	never := time.Time{}
	for _, test := range []struct {
		name             string
		was, given, want Row
	}{
		{"seen times widen", seen(noon, noon, never, true), seen(early, late, never, true), seen(early, late, never, true)},
		{"seen times stay wide", seen(early, late, never, true), seen(noon, noon, never, true), seen(early, late, never, true)},
		{"seen times stay", seen(early, late, never, true), seen(never, never, never, true), seen(early, late, never, true)},
		{"a choice stays", seen(noon, noon, early, false), seen(noon, noon, never, false), seen(noon, noon, early, false)},
		{"a choice comes", seen(noon, noon, never, true), seen(noon, noon, early, false), seen(noon, noon, early, false)},
		{"an older export wins, as its person wants", seen(noon, noon, late, true), seen(noon, noon, early, false), seen(noon, noon, late, false)},
		{"another flag is a choice", seen(noon, noon, never, true), seen(noon, noon, never, false), seen(noon, noon, now, false)},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := openAt(t, newPath(t), Options{})
			for _, r := range []Row{test.was, test.given} {
				if _, err := s.Import(t.Context(), []Row{r}, false, now); err != nil {
					t.Fatal(err)
				}
			}
			equal(t, "rows", allRows(t, s), []Row{test.want})
		})
	}
}

func TestImportRefusesWhatMakesNoSense(t *testing.T) {
	s := openAt(t, newPath(t), Options{})
	good := Row{Key: tool("good"), Enabled: true}
	for want, row := range map[string]Row{
		`row 2: tool "x" has no server`:                                           {Key: Key{"", Tool, "x"}},
		`row 2: unknown type "verb": tool, resource, resource_template or prompt`: {Key: Key{"fs", "verb", "x"}},
		`row 2: fs tool "x" has one seen time without the other`:                  {Key: tool("x"), LastSeen: noon},
		`row 2: fs tool "good" is given twice`:                                    {Key: tool("good")},
	} {
		_, err := s.Import(t.Context(), []Row{good, row}, true, noon)
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	equal(t, "rows", allRows(t, s), []Row(nil))
}
