// Package siblings lets the coffers of one user find each other and ask what
// they are doing. Each listens on a socket of its own in a private folder;
// who connects is sent one document and hung up on. There is no registry: the
// sockets in the folder are the list, and one on which nobody answers, because
// its process was killed, is removed by whoever finds it.
package siblings

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// extension is what a socket's name ends with once somebody answers on it.
	extension = ".sock"
	// unfinished is what it ends with until then.
	unfinished = ".new"
	// sending bounds the sending of one document: who asks reads at once, but a
	// busy machine may let it wait.
	sending = patience
	// shortage is the pause after a connection could not be accepted, for want
	// of file descriptors.
	shortage = time.Second
)

// Serve answers on a socket in the first of the folders that can hold one,
// making the folder (mode 0700) if need be, until ctx ends. Each who connects
// is sent what describe returns. No goroutine and no file is left when Serve
// returns. It returns an error, at once, if there can be no socket.
func Serve(ctx context.Context, folders []string, describe func() []byte) error {
	listener, path, err := listen(folders)
	if err != nil {
		return err
	}
	closed := make(chan struct{}) // closed when ctx's end has been dealt with
	release := context.AfterFunc(ctx, func() {
		defer close(closed)
		os.Remove(path) // first, so that nobody finds it closed
		listener.Close()
	})
	for ctx.Err() == nil {
		c, err := listener.Accept()
		switch {
		case err == nil:
			c.SetDeadline(time.Now().Add(sending))
			c.Write(describe()) // whoever has gone meanwhile does not need it
			c.Close()
		case ctx.Err() == nil:
			select {
			case <-time.After(shortage):
			case <-ctx.Done():
			}
		}
	}
	release()
	<-closed
	return nil
}

// listen opens a socket and returns it with its path.
func listen(folders []string) (net.Listener, string, error) {
	var failed []error
	for _, folder := range folders {
		err := prepare(folder)
		if err == nil {
			path := filepath.Join(folder, fmt.Sprintf("%d-%s%s", os.Getpid(), rand.Text()[:8], extension))
			var listener net.Listener
			if listener, err = listenAt(path); err == nil {
				return listener, path, nil
			}
		}
		failed = append(failed, err)
	}
	if failed == nil {
		return nil, "", errors.New("no folder for the socket")
	}
	return nil, "", errors.Join(failed...)
}

// listenAt opens a socket at path. It is there only when it can be connected
// to: a socket that exists and refuses is a dead one, and removed.
func listenAt(path string) (net.Listener, error) {
	bound := path
	if canRename {
		bound = strings.TrimSuffix(path, extension) + unfinished
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: bound, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // the name will be another
	if err = os.Chmod(bound, 0o600); err == nil && bound != path {
		err = os.Rename(bound, path)
	}
	if err != nil {
		listener.Close()
		os.Remove(bound)
		return nil, err
	}
	return listener, nil
}

// prepare makes the folder, or checks that nobody but its owner, who must be
// us, can reach what is in it.
func prepare(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	return private(folder)
}
