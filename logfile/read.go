package logfile

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
)

// Reader reads a log from the oldest line on, and goes on from there when more
// was written, whatever was renamed meanwhile. It keeps no file open, which on
// Windows could not be renamed then.
type Reader struct {
	file *File
	read []progress // of the files that were there at the last look
}

// progress is how far a file has been read.
type progress struct {
	info   os.FileInfo // which file it is, under whatever name
	offset int64       // bytes, up to the end of a line
}

// NewReader returns a Reader of the log at path, which need not exist yet.
func NewReader(path string) *Reader { return &Reader{file: New(path)} }

// Next gives take every line, without its end, that was written since the last
// call. A line that has no end yet is left for later. What take is given it may
// not keep.
func (r *Reader) Next(take func(line []byte)) error {
	files, err := r.open()
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return err
	}
	var now []progress
	for i := len(files) - 1; i >= 0; i-- { // the oldest first
		info, err := files[i].Stat()
		if err != nil {
			return err
		}
		p := progress{info: info, offset: r.offset(info)}
		if p.offset, err = readLines(files[i], p.offset, take); err != nil {
			return err
		}
		now = append(now, p)
	}
	r.read = now
	return nil
}

// open opens all files there are, the newest first: one that is renamed in the
// meantime is met twice then, and none is missed.
func (r *Reader) open() ([]*os.File, error) {
	var files []*os.File
	var infos []os.FileInfo
	for n := range r.file.kept + 1 {
		f, err := os.Open(r.file.older(n))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return files, err
		}
		files = append(files, f)
		info, err := f.Stat()
		if err != nil {
			return files, err
		}
		if slices.ContainsFunc(infos, func(known os.FileInfo) bool { return os.SameFile(known, info) }) {
			files = files[:len(files)-1]
			f.Close()
			continue
		}
		infos = append(infos, info)
	}
	return files, nil
}

// offset returns how far the file has been read. One that is shorter than that
// was emptied by somebody, and begins anew.
func (r *Reader) offset(info os.FileInfo) int64 {
	for _, p := range r.read {
		if os.SameFile(p.info, info) && p.offset <= info.Size() {
			return p.offset
		}
	}
	return 0
}

// readLines gives take the whole lines behind offset and returns where they
// end.
func readLines(f *os.File, offset int64, take func(line []byte)) (int64, error) {
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return offset, err
	}
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadBytes('\n')
		switch {
		case err == io.EOF:
			return offset, nil
		case err != nil:
			return offset, err
		}
		offset += int64(len(line))
		take(line[:len(line)-1])
	}
}
