package prefs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/mattn/go-sqlite3"
)

// What can be wrong with the file. Every error about it is an *Error that wraps
// one of these, save those that SQLite alone knows words for.
var (
	// ErrBusy: another process holds the file locked. It passes.
	ErrBusy = errors.New("locked by another program")
	// ErrReadOnly: the file or its folder cannot be written.
	ErrReadOnly = errors.New("cannot be written")
	// ErrUnreadable: the file or its folder cannot be read.
	ErrUnreadable = errors.New("cannot be read")
	// ErrFull: the disk, or what this user may store on it, is used up.
	ErrFull = errors.New("no space left to write it")
	// ErrCorrupt: there is a file, and it is not a sound preference database.
	ErrCorrupt = errors.New("damaged, or not a preference file")
	// ErrNewerSchema: a newer coffer wrote the file.
	ErrNewerSchema = errors.New("written by a newer coffer")
	// ErrGone: the file was deleted, or emptied, while this store had it open.
	ErrGone = errors.New("deleted while in use")
	// ErrLocks: the file system cannot do the locking that SQLite needs.
	ErrLocks = errors.New("its file system cannot lock files as SQLite needs")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("already closed")
)

// Error is trouble with the preference file, in words for a person.
type Error struct {
	Path string // the file
	Kind error  // one of the sentinels; nil: see Detail
	// Detail says more, often in SQLite's words; nil if Kind says all.
	Detail error
}

// Error says which file is in trouble and what it is. Equal trouble has equal text.
func (e *Error) Error() string {
	switch {
	case e.Kind == nil:
		return fmt.Sprintf("preferences %s: %v", e.Path, e.Detail)
	case e.Detail == nil:
		return fmt.Sprintf("preferences %s: %v", e.Path, e.Kind)
	default:
		return fmt.Sprintf("preferences %s: %v: %v", e.Path, e.Kind, e.Detail)
	}
}

// Unwrap lets errors.Is see the kind and the detail.
func (e *Error) Unwrap() []error {
	var all []error
	for _, err := range []error{e.Kind, e.Detail} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// Hint says what a person can do about it; empty if coffer knows nothing.
func (e *Error) Hint() string {
	folder := filepath.Dir(e.Path)
	switch e.Kind {
	case ErrBusy:
		return "close the program that has the file open, or try again"
	case ErrReadOnly:
		return "make the file and its folder " + folder + " writable for you, or name another file with --db"
	case ErrUnreadable:
		return "make the file and its folder " + folder + " readable for you, or name another file with --db"
	case ErrFull:
		return "free some space where " + folder + " is, then try again"
	case ErrCorrupt:
		return "nothing was changed; put a sound copy in its place, or move it and its -wal file away to start afresh"
	case ErrNewerSchema:
		return "update this coffer, or name another file with --db; nothing was changed"
	case ErrGone:
		return "put the file back; or run a coffer command that sets a preference, or start a client anew, to begin a new file"
	case ErrLocks:
		return "put the file on a local disk: name it with --db"
	default:
		return ""
	}
}

// mayPass reports whether trouble at opening can end without a person who
// replaces the file or the program.
func mayPass(err error) bool {
	return !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerSchema)
}

// explain turns what SQLite or the operating system says about the file at path
// into an *Error. It leaves nil and an *Error as they are.
func explain(path string, err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	kind := kindOfErrno(err)
	if sqlite, ok := errors.AsType[sqlite3.Error](err); ok {
		kind = kindOfSQLite(sqlite)
	}
	if kind == ErrBusy || kind == ErrFull {
		err = nil // SQLite's words would only repeat ours
	}
	return &Error{Path: path, Kind: kind, Detail: err}
}

// kindOfSQLite sorts a result code of SQLite into the sentinels.
func kindOfSQLite(err sqlite3.Error) error {
	switch err.ExtendedCode {
	case sqlite3.ErrIoErrLock, sqlite3.ErrIoErrUnlock, sqlite3.ErrIoErrRDlock, sqlite3.ErrIoErrCheckReservedLock,
		sqlite3.ErrIoErrSHMOpen, sqlite3.ErrIoErrSHMLock, sqlite3.ErrIoErrSHMMap, sqlite3.ErrIoErrSHMSize:
		if kind := kindOfErrno(err.SystemErrno); kind != nil {
			return kind
		}
		return ErrLocks
	case sqlite3.ErrIoErrShortRead:
		return ErrCorrupt
	}
	switch err.Code {
	case sqlite3.ErrBusy, sqlite3.ErrLocked:
		return ErrBusy
	case sqlite3.ErrReadonly:
		return ErrReadOnly
	case sqlite3.ErrFull:
		return ErrFull
	case sqlite3.ErrCorrupt, sqlite3.ErrNotADB:
		return ErrCorrupt
	case sqlite3.ErrProtocol, sqlite3.ErrNoLFS:
		return ErrLocks
	case sqlite3.ErrPerm, sqlite3.ErrAuth:
		return ErrUnreadable
	default:
		return kindOfErrno(err.SystemErrno)
	}
}

// kindOfErrno sorts an error of the operating system into the sentinels; nil if
// it has no place there.
func kindOfErrno(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return ErrFull
	case errors.Is(err, syscall.EROFS):
		return ErrReadOnly
	case errors.Is(err, syscall.ENOLCK):
		return ErrLocks
	case errors.Is(err, fs.ErrPermission):
		return ErrUnreadable
	default:
		return nil
	}
}
