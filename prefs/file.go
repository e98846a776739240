package prefs

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mattn/go-sqlite3"
)

// lockWait is how long one statement waits for another process's lock. Whoever
// may wait longer tries again: SQLite's own wait cannot be interrupted.
const lockWait = 50 * time.Millisecond

// file is one open database file. Once open, nothing touches it but through
// SQLite and os.Stat: its locks are POSIX locks, which a process loses when it
// closes any descriptor of the file.
type file struct {
	path string

	// db has two connections: conn, and one for everything else.
	db *sql.DB
	// conn is pinned for checks. data_version does not count the commits of the
	// connection that it is asked on, so nothing is written here once it is open.
	conn *sql.Conn

	version driver.Stmt     // PRAGMA data_version, prepared on conn
	value   [1]driver.Value // where its answer lands
	seen    int64           // its answer at the last load; -1: nothing loaded

	index     []byte      // the header of the WAL index, mapped; nil: cannot be
	seenIndex indexHeader // what stood there before seen was asked for
	loaded    bool        // seenIndex is set

	// frozen: opened as a file that does not change, because it or its folder
	// cannot be written. Should it change after all, moved tells.
	frozen bool

	main     os.FileInfo // what path led to at opening
	wal, shm os.FileInfo // likewise its side files; nil: were not there
}

// errLogAlone: what the log holds could be choices, and SQLite would delete it.
var errLogAlone = errors.New("the database is empty, but its -wal file is not")

// opener is what one attempt at opening a file needs to know.
type opener struct {
	path, schema string
	create       bool   // make a missing or empty file a new database
	vfs          string // see Options
	locked       bool   // this process holds the lock beside the file
}

// open makes one attempt, and brings the database up to date where it is behind.
func (o opener) open(ctx context.Context) (*file, error) {
	blank, err := o.blank()
	switch {
	case err != nil:
		return nil, err
	case blank && !o.create:
		return nil, &Error{Path: o.path, Kind: ErrGone}
	case blank:
		return o.begin(ctx)
	}
	// Asked to write a file marked read-only, SQLite would begin by making side
	// files that nobody may write either.
	if info, err := os.Stat(o.path); err == nil && info.Mode().Perm()&0o222 == 0 && quiet(o.path) {
		return o.connect(ctx, true)
	}
	f, err := o.connect(ctx, false)
	switch {
	case !cannotMakeSides(err):
		return f, err
	case quiet(o.path):
		return o.connect(ctx, true)
	default:
		return nil, &Error{Path: o.path, Kind: ErrReadOnly, Detail: errors.New("its -wal file cannot be read without a -shm file")}
	}
}

// blank reports whether there is no file yet, or an empty one. It is an error if
// what is there is no file.
func (o opener) blank() (bool, error) {
	info, err := os.Stat(o.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, &Error{Path: o.path, Kind: ErrUnreadable, Detail: reason(err)}
	case !info.Mode().IsRegular():
		return false, &Error{Path: o.path, Kind: ErrCorrupt, Detail: errors.New("not a regular file")}
	default:
		return info.Size() == 0, nil
	}
}

// begin makes a blank file a database. It holds the lock throughout: coffers that
// had a database here which was deleted may just be letting go of it.
func (o opener) begin(ctx context.Context) (f *file, err error) {
	if err := makeFolder(o.path); err != nil {
		return nil, err
	}
	err = exclusively(o.path, func() error {
		switch blank, err := o.blank(); {
		case err != nil:
			return err
		case !blank: // a sibling was faster: open what it made
			return &Error{Path: o.path, Kind: ErrBusy}
		case !quiet(o.path):
			return &Error{Path: o.path, Kind: ErrCorrupt, Detail: errLogAlone}
		}
		// Side files left here are a deleted database's, and hold nothing; but
		// somebody may have them open, and we must not share them.
		if err := removeSides(o.path); err != nil {
			return err
		}
		if err := makeFile(o.path); err != nil {
			return err
		}
		o.locked = true
		f, err = o.connect(ctx, false)
		return err
	})
	return f, err
}

// cannotMakeSides reports whether err is what SQLite says of a sound WAL database
// in a folder where it can make no side files.
func cannotMakeSides(err error) bool {
	sqlite, ok := errors.AsType[sqlite3.Error](err)
	return ok && (sqlite.Code == sqlite3.ErrReadonly || sqlite.Code == sqlite3.ErrCantOpen && sqlite.SystemErrno != syscall.EACCES)
}

// quiet reports whether nobody can be writing the database at path: then there
// would be a log. It can be read as it stands.
func quiet(path string) bool {
	log, err := os.Stat(path + "-wal")
	return err != nil || log.Size() == 0
}

// makeFolder makes the folders that path needs, for their owner alone.
func makeFolder(path string) error {
	return writing(path, os.MkdirAll(filepath.Dir(path), 0o700))
}

// makeFile makes an empty file at path, for its owner alone, if there is none.
func makeFile(path string) error {
	made, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = made.Close()
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return writing(path, err)
}

// removeSides deletes the side files of a database that is not there.
func removeSides(path string) error {
	for _, side := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + side); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return writing(path, err)
		}
	}
	return nil
}

// writing explains an error of an attempt to write at path or beside it.
func writing(path string, err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return &Error{Path: path, Kind: ErrReadOnly, Detail: reason(err)}
	}
	return explain(path, err)
}

// reason strips the operation and path from an error of package os; the *Error
// around it names the file.
func reason(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// connect opens the database, which is there. A frozen one is opened as a file
// that does not change, and without side files.
func (o opener) connect(ctx context.Context, frozen bool) (*file, error) {
	f := &file{path: o.path, frozen: frozen, seen: -1}
	var err error
	if f.main, err = os.Stat(o.path); err != nil {
		return nil, explain(o.path, err)
	}
	if f.db, err = sql.Open("sqlite3", dsn(o.path, o.vfs, frozen)); err != nil {
		return nil, explain(o.path, err)
	}
	f.db.SetMaxOpenConns(2)
	if err := f.start(ctx, o); err != nil {
		f.close()
		return nil, explain(o.path, err)
	}
	f.wal, _ = os.Stat(o.path + "-wal")
	f.shm, _ = os.Stat(o.path + "-shm")
	if f.moved() { // between the first Stat and SQLite's open: which of the two is it?
		f.close()
		return nil, &Error{Path: o.path, Kind: ErrBusy}
	}
	f.index = f.mapIndex()
	return f, nil
}

// start readies a new file's connections.
func (f *file) start(ctx context.Context, o opener) (err error) {
	if f.conn, err = f.db.Conn(ctx); err != nil {
		return err
	}
	if err := f.upgrade(ctx, o); err != nil {
		return err
	}
	return f.conn.Raw(func(conn any) error {
		f.version, err = conn.(driver.ConnPrepareContext).PrepareContext(ctx, "PRAGMA data_version")
		return err
	})
}

// dsn returns the data source name of path. journal_mode has no place in it: the
// switch to WAL does not wait for locks, whatever busy_timeout says.
func dsn(path, vfs string, frozen bool) string {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // C:/…
	}
	q := url.Values{
		"mode":          {"rw"}, // never create: begin does that, with the right mode
		"_busy_timeout": {strconv.FormatInt(lockWait.Milliseconds(), 10)},
		"_foreign_keys": {"on"},
		"_synchronous":  {"NORMAL"},
		"_txlock":       {"immediate"},
	}
	if frozen {
		q.Set("mode", "ro")
		q.Set("immutable", "1")
	}
	if vfs != "" {
		q.Set("vfs", vfs)
	}
	return (&url.URL{Scheme: "file", Path: slashed, RawQuery: q.Encode()}).String()
}

// dataVersion returns a number that moves when anyone but conn has committed.
func (f *file) dataVersion(ctx context.Context) (int64, error) {
	// Straight to the driver: half the time and a tenth of the garbage of a
	// QueryRow, and this runs before every request.
	err := f.conn.Raw(func(any) error {
		rows, err := f.version.(driver.StmtQueryContext).QueryContext(ctx, nil)
		if err != nil {
			return err
		}
		return errors.Join(rows.Next(f.value[:]), rows.Close())
	})
	if err != nil {
		return 0, err
	}
	return f.value[0].(int64), nil
}

// close ends every connection. A transaction still running ends by itself.
func (f *file) close() error {
	unmapIndex(f.index)
	f.index = nil
	var errs []error
	if f.version != nil {
		errs = append(errs, f.conn.Raw(func(any) error { return f.version.Close() }))
	}
	if f.conn != nil {
		errs = append(errs, f.conn.Close())
	}
	return errors.Join(append(errs, f.db.Close())...)
}
