//go:build !linux

package prefs

// mapIndex returns nil: the descriptor to map can be found on Linux only, and
// elsewhere SQLite is asked each time.
func (f *file) mapIndex() []byte { return nil }

func unmapIndex([]byte) {}
