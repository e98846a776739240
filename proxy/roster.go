package proxy

import (
	"fmt"
	"iter"
	"reflect"
	"slices"

	"coffer/upstream"
)

// roster is which servers there are. A server keeps its index while the session
// lasts, so that what is under way and what is remembered can go by it; one that
// has left the config leaves a gap. A roster does not change: the session gets
// another.
type roster struct {
	specs   []*upstream.Spec   // by index; nil: has left
	servers []*upstream.Server // by index, those that have left too
	order   []int              // indices of those that are there, config order
	off     []*upstream.Spec   // disabled in the config
}

// rosterOf returns the roster of a config file, without servers to reach.
func rosterOf(config *upstream.Config) *roster {
	var on, off []*upstream.Spec
	for i := range config.Servers {
		if spec := &config.Servers[i]; spec.Disabled {
			off = append(off, spec)
		} else {
			on = append(on, spec)
		}
	}
	r := inOrder(on)
	r.off = off
	return r
}

// inOrder returns a roster of these servers.
func inOrder(specs []*upstream.Spec) *roster {
	r := &roster{specs: specs}
	for i := range specs {
		r.order = append(r.order, i)
	}
	return r
}

// all are the servers that are there, with their indices, in config order.
func (r *roster) all() iter.Seq2[int, *upstream.Spec] {
	return func(yield func(int, *upstream.Spec) bool) {
		for _, i := range r.order {
			if !yield(i, r.specs[i]) {
				return
			}
		}
	}
}

// size is one more than the greatest index.
func (r *roster) size() int { return len(r.specs) }

// sole reports whether there is one server and no other.
func (r *roster) sole() bool { return len(r.order) == 1 }

// index returns the index of a server that is there, or -1.
func (r *roster) index(name string) int {
	for i, spec := range r.all() {
		if spec.Name == name {
			return i
		}
	}
	return -1
}

// follow returns the roster of the config as it is now, which indices are new to
// it and which have left. A server whose entry has changed leaves and comes again.
func (r *roster) follow(config *upstream.Config) (next *roster, come, gone []int) {
	next = &roster{specs: slices.Clone(r.specs), servers: slices.Clone(r.servers)}
	for i := range next.specs {
		next.specs[i] = nil
	}
	wanted := rosterOf(config)
	next.off = wanted.off
	for _, spec := range wanted.all() {
		i := r.index(spec.Name)
		if i < 0 || !sameEntry(r.specs[i], spec) {
			i = len(next.specs)
			next.specs = append(next.specs, spec)
			come = append(come, i)
		} else {
			next.specs[i] = r.specs[i]
		}
		next.order = append(next.order, i)
	}
	for i := range r.all() {
		if next.specs[i] == nil {
			gone = append(gone, i)
		}
	}
	return next, come, gone
}

// sameEntry reports whether two readings of a server's entry say the same. (An
// error names the place in the file, so it may differ where nothing else does; but
// such a server has no connection to lose.)
func sameEntry(a, b *upstream.Spec) bool {
	x, y := *a, *b
	x.Err, y.Err = nil, nil
	return fmt.Sprint(a.Err) == fmt.Sprint(b.Err) && reflect.DeepEqual(x, y)
}
