package siblings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// patience is how long a sibling may take to answer: it writes a document
	// that it has at hand. One that was stopped never does.
	patience = 3 * time.Second
	// longestAnswer bounds a document, in bytes.
	longestAnswer = 16 << 20
	// givenUp is the age from which a socket that was never finished counts as
	// left behind: to finish it takes microseconds.
	givenUp = time.Minute
)

// Answer is what one coffer said.
type Answer struct {
	PID  int    // of the coffer, as its socket's name has it; 0: it has none
	Path string // its socket
	Text []byte // its document; nil if Err is set
	Err  error  // why there is none although somebody listens
}

// Ask asks every coffer that has its socket in one of the folders, all at once,
// and removes the sockets on which nobody listens any more. The answers come
// in no order. The error is about folders that cannot be used; there may be
// answers even so.
func Ask(ctx context.Context, folders []string) ([]Answer, error) {
	var failed []error
	var known []os.FileInfo
	var paths []string
	for _, folder := range folders {
		info, err := os.Stat(folder)
		if errors.Is(err, fs.ErrNotExist) || slices.ContainsFunc(known, func(k os.FileInfo) bool { return os.SameFile(k, info) }) {
			continue
		}
		if err == nil {
			err = private(folder) // another's folder may hold anything
		}
		var found []string
		if err == nil {
			known = append(known, info)
			found, err = sockets(folder)
		}
		paths = append(paths, found...)
		if err != nil {
			failed = append(failed, err)
		}
	}
	answers := make([]Answer, len(paths))
	var all sync.WaitGroup
	for i, path := range paths {
		all.Go(func() { answers[i] = ask(ctx, path) })
	}
	all.Wait()
	answers = slices.DeleteFunc(answers, func(a Answer) bool { return a.Text == nil && a.Err == nil })
	return answers, errors.Join(failed...)
}

// sockets returns the paths of the sockets in folder.
func sockets(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		switch filepath.Ext(path) {
		case extension:
			paths = append(paths, path)
		case unfinished:
			if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > givenUp {
				os.Remove(path)
			}
		}
	}
	return paths, nil
}

// ask asks on one socket. The answer is empty if the coffer has gone.
func ask(ctx context.Context, path string) Answer {
	pid, _, _ := strings.Cut(filepath.Base(path), "-")
	a := Answer{Path: path}
	a.PID, _ = strconv.Atoi(pid)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it does not answer within %v", patience))
	defer cancel()
	// One that hangs up without a word is just leaving, or was just killed: a
	// second look tells.
	for range 2 {
		text, err := read(ctx, path)
		switch {
		case len(text) > 0 && err == nil:
			a.Text = text
			return a
		case errors.Is(err, fs.ErrNotExist):
			return Answer{}
		case refused(err):
			os.Remove(path)
			return Answer{}
		case ctx.Err() != nil:
			a.Err = context.Cause(ctx)
			return a
		}
		a.Err = err
	}
	return a
}

// read reads the document of one coffer.
func read(ctx context.Context, path string) ([]byte, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Now()) })
	defer stop()
	return io.ReadAll(io.LimitReader(c, longestAnswer))
}
