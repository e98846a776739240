package proxy

import (
	"coffer/jsonrpc"
	"coffer/prefs"
	"coffer/upstream"
)

// prefTypes are the words of the preference table for each kind of list.
var prefTypes = map[upstream.Kind]prefs.Type{
	upstream.Tools:     prefs.Tool,
	upstream.Resources: prefs.Resource,
	upstream.Templates: prefs.ResourceTemplate,
	upstream.Prompts:   prefs.Prompt,
}

// enabled is the filter and the gate: what a person chose, and where there is
// no choice and no row, the server's policy. A nil snapshot knows no rows.
func enabled(snap *prefs.Snapshot, spec *upstream.Spec, t prefs.Type, key string) bool {
	if on, known := snap.Lookup(prefs.Key{Server: spec.Name, Type: t, Key: key}); known {
		return on
	}
	return spec.AutoEnable
}

// shown maps an item to the name or URI that clients see in place of its own.
type shown func(server int, item upstream.Item) string

// merge returns the JSON array of all items that are enabled, in config order
// and then in each upstream's own: equal listings give equal bytes.
// listings go by the servers' indices; nil is left out.
func merge(servers *roster, listings []*upstream.Listing, snap *prefs.Snapshot, modern bool, name shown) []byte {
	size := 2
	for _, l := range listings {
		if l != nil {
			for _, item := range l.Items {
				size += len(item.Raw) + 32
			}
		}
	}
	out := append(make([]byte, 0, size), '[')
	for i, spec := range servers.all() {
		if i >= len(listings) || listings[i] == nil {
			continue // one that has come since they were asked
		}
		l := listings[i]
		for _, item := range l.Items {
			if !enabled(snap, spec, prefTypes[l.Kind], item.Key) {
				continue
			}
			raw := item.Raw
			if public := name(i, item); public != item.Key {
				raw = jsonrpc.Splice(raw, jsonrpc.Edit{Old: item.Token, New: jsonrpc.Quote(public)})
			}
			raw, show := itemFor(l, raw, modern)
			if !show {
				continue
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, raw...)
		}
	}
	return append(out, ']')
}

// looksAlike reports whether a client sees the same of two listings of one
// server, each under its own snapshot. nil shows nothing.
func looksAlike(spec *upstream.Spec, a *upstream.Listing, underA *prefs.Snapshot, b *upstream.Listing, underB *prefs.Snapshot) bool {
	if a == b && underA == underB {
		return true
	}
	var left, right []upstream.Item
	if a != nil {
		left = visible(spec, a, underA)
	}
	if b != nil {
		right = visible(spec, b, underB)
	}
	if len(left) != len(right) {
		return false
	}
	for i := range left {
		if string(left[i].Raw) != string(right[i].Raw) {
			return false
		}
	}
	return true
}

func visible(spec *upstream.Spec, l *upstream.Listing, snap *prefs.Snapshot) []upstream.Item {
	var items []upstream.Item
	for _, item := range l.Items {
		if enabled(snap, spec, prefTypes[l.Kind], item.Key) {
			items = append(items, item)
		}
	}
	return items
}
