package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/rs/zerolog"

	"coffer/tick"
	"coffer/upstream"
)

// configEvery is how often a running session looks whether its config file has
// been edited. A look is one stat: too little to need a watch.
const configEvery = time.Second

// configFollower notices edits of a config file.
type configFollower struct {
	path string
	log  zerolog.Logger
	seen fs.FileInfo // the file as it was read last; nil: it was not there
	gone bool        // it was not there at the newest look
}

// followConfig returns a follower of the file, which is about to be read for the
// first time.
func followConfig(path string, log zerolog.Logger) *configFollower {
	f := &configFollower{path: path, log: log}
	f.seen, _ = lookAt(path)
	return f
}

// run gives changed each new reading of the file until ctx ends. An edit that
// cannot be used is said once, and what was read before stays; so it does if the
// file goes, as it may for a moment while an editor saves it.
func (f *configFollower) run(ctx context.Context, changed func(*upstream.Config)) {
	ticker := tick.New(ctx, configEvery)
	defer ticker.Stop()
	for ticker.Wait() {
		f.look(changed)
	}
}

// look is one look at the file.
func (f *configFollower) look(changed func(*upstream.Config)) {
	found, err := lookAt(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if f.seen != nil && !f.gone {
			f.log.Warn().Str("config", f.path).Msg("the config file is gone: what it said stays")
		}
		f.gone = true
		return
	case err != nil:
		return
	}
	f.gone = false
	if f.seen != nil && untouched(f.seen, found) {
		return
	}
	f.seen = found
	config, err := upstream.ReadConfig(f.path, true, os.LookupEnv)
	if err != nil {
		f.log.Warn().Err(err).Str("hint", hintOf(err)).Msg("the edited config cannot be used: what it said before stays")
		return
	}
	f.log.Info().Str("config", f.path).Msg("the config was edited")
	changed(config)
}

// lookAt is os.Stat of a file or folder. A pipe and the like is not there for a
// follower: it was read once, at the start, and to open it again may wait for good.
func lookAt(path string) (fs.FileInfo, error) {
	found, err := os.Stat(path)
	if err == nil && found.Mode()&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeDevice) != 0 {
		return nil, fs.ErrNotExist
	}
	return found, err
}

// untouched reports whether nothing has been done to a file between two looks.
func untouched(before, after fs.FileInfo) bool {
	return os.SameFile(before, after) && before.Size() == after.Size() && before.ModTime().Equal(after.ModTime())
}
