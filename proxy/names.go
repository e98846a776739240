package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"strconv"
	"strings"

	"coffer/upstream"
)

const (
	// separator stands between the prefix and the original name. Names are
	// joined with it and never split at it: a tool's own name may contain it.
	separator = "__"
	// maxPrefix is the longest prefix, in bytes (design §4).
	maxPrefix = 24
	// tailLength is how many hex digits of a hash tell cleaned names apart:
	// with 1,000 names, two of them meet once in ten thousand machines.
	tailLength = 8
)

// plain reports whether c may stand in every client's tool names.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// allPlain reports whether every byte of s is plain.
func allPlain(s string) bool {
	for i := range len(s) {
		if !plain(s[i]) {
			return false
		}
	}
	return true
}

// clean returns what stands for name where name cannot: every character that
// is not plain becomes an underscore, the rest is cut to fit into limit bytes
// with a tail that is a hash of salt and name.
func clean(name, salt string, limit int) string {
	var b strings.Builder
	for _, r := range name {
		if b.Len() == limit-tailLength-1 {
			break
		}
		if r < 0x80 && plain(byte(r)) {
			b.WriteByte(byte(r))
		} else {
			b.WriteByte('_')
		}
	}
	sum := sha256.Sum256([]byte(salt + name))
	return b.String() + "_" + hex.EncodeToString(sum[:])[:tailLength]
}

// prefixOf returns the prefix of a server's tools and prompts, "" for none.
func prefixOf(spec *upstream.Spec) string {
	p := spec.Name
	if spec.Prefix != nil {
		if p = *spec.Prefix; p == "" {
			return ""
		}
	}
	if len(p) <= maxPrefix && allPlain(p) && !strings.Contains(p, separator) && !strings.HasPrefix(p, "_") && !strings.HasSuffix(p, "_") {
		return p
	}
	return clean(p, "", maxPrefix)
}

// MergedName returns the name under which clients see the server's tool or
// prompt with that original name, if no server before it has taken it. limit
// is max_name_length.
func MergedName(spec *upstream.Spec, original string, limit int) string {
	return qualify(prefixOf(spec), original, limit)
}

// qualify joins prefix and original, and cleans the whole where it must.
func qualify(prefix, original string, limit int) string {
	if prefix == "" {
		if len(original) <= limit {
			return original
		}
		return clean(original, "", limit)
	}
	name := prefix + separator + original
	if len(name) <= limit && allPlain(name) {
		return name
	}
	return clean(name, "", limit)
}

// target is what a merged name stands for.
type target struct {
	server int    // its index in the roster
	key    string // the upstream's own name
}

// naming maps names in one namespace (tools or prompts) both ways.
type naming struct {
	roster *roster
	limit  int
	// settled holds, for each server, original -> merged as last settled while
	// its list was known; nil before that.
	settled []map[string]string
	routes  map[string]target // merged -> target
}

func newNaming(r *roster, limit int) *naming {
	return &naming{roster: r, limit: limit, settled: make([]map[string]string, r.size()), routes: map[string]target{}}
}

// follow goes over to another roster.
func (n *naming) follow(before, r *roster) {
	settled := make([]map[string]string, r.size())
	for i, spec := range r.all() {
		if was := before.index(spec.Name); was >= 0 {
			settled[i] = n.settled[was]
		}
	}
	n.roster, n.settled = r, settled
}

// settle names every item anew. listings has one entry for each server, nil
// where its list is not known now: then its names stay as they were settled.
func (n *naming) settle(listings []*upstream.Listing) {
	n.routes = map[string]target{}
	for i, spec := range n.roster.all() {
		if listings[i] == nil {
			for original, name := range n.settled[i] {
				n.take(name, target{i, original})
			}
			continue
		}
		names := make(map[string]string, len(listings[i].Items))
		prefix := prefixOf(spec)
		for _, item := range listings[i].Items {
			name := qualify(prefix, item.Key, n.limit)
			// A name that is taken gets a tail of its own. The loop ends at
			// once save if two hashes are equal.
			for salt := ""; !n.take(name, target{i, item.Key}); salt += "+" {
				joined := item.Key
				if prefix != "" {
					joined = prefix + separator + item.Key
				}
				name = clean(joined, strconv.Quote(spec.Name)+salt, n.limit)
			}
			names[item.Key] = name
		}
		n.settled[i] = names
	}
}

// take enters name for t; false if another has it.
func (n *naming) take(name string, t target) bool {
	if _, taken := n.routes[name]; taken {
		return false
	}
	n.routes[name] = t
	return true
}

// guess returns where a name goes that no list shows: to the server with the
// longest prefix that it starts with, since that server's list may be newer
// than ours; with one server and no prefix, to that.
func guess(servers iter.Seq2[int, *upstream.Spec], name string) (target, bool) {
	best, length := target{}, 0
	count, bare := 0, target{}
	for i, spec := range servers {
		prefix := prefixOf(spec)
		original, ok := strings.CutPrefix(name, prefix+separator)
		if ok && prefix != "" && original != "" && len(prefix) > length {
			best, length = target{i, original}, len(prefix)
		}
		count++
		if prefix == "" {
			bare = target{i, name}
		}
	}
	if length > 0 {
		return best, true
	}
	return bare, count == 1 && bare.key != ""
}

// hasTail reports whether name looks like one that clean has made: its
// original cannot be read from it.
func hasTail(name string) bool {
	i := len(name) - tailLength
	if i < 1 || name[i-1] != '_' {
		return false
	}
	_, err := hex.DecodeString(name[i:])
	return err == nil
}
