package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"coffer/clients"
	"coffer/upstream"
)

// A backup of a client's file stands beside it, called like it with the time and a
// suffix. It is never removed: it is the person's file.
const (
	backupSuffix = ".coffer-backup"
	// replacedSuffix marks a backup with servers that were moved out, for
	// uninstall to put back. It has the other suffix from then on.
	replacedSuffix = ".coffer-replaced"
	backupTime     = "20060102T150405Z"
)

// backUp keeps text, which is that of the file at path, and returns where; nil is a
// file that is not there, and has no backup.
func backUp(path string, text []byte, suffix string) (backup string, err error) {
	if text == nil {
		return "", nil
	}
	stamp := time.Now().UTC().Format(backupTime)
	for n := 1; ; n++ {
		backup = fmt.Sprintf("%s.%s%s", path, stamp, suffix)
		if n > 1 {
			backup = fmt.Sprintf("%s.%s-%d%s", path, stamp, n, suffix)
		}
		// Whole or not there, for it is what uninstall reads; and for its owner
		// alone, for it may hold secrets.
		err := upstream.ReplaceFile(backup, nil, text)
		if errors.Is(err, upstream.ErrChanged) { // there is one of that name
			continue
		}
		if err != nil {
			return "", fmt.Errorf("keeping a backup: %w", err)
		}
		return backup, nil
	}
}

// settleBackups is settleBackup for several.
func settleBackups(backups []string) error {
	for _, backup := range backups {
		if err := settleBackup(backup); err != nil {
			return err
		}
	}
	return nil
}

// settleBackup gives a backup whose servers are back the suffix of the others, and
// a number if there is one of that name already.
func settleBackup(backup string) error {
	base := strings.TrimSuffix(backup, replacedSuffix)
	settled := base + backupSuffix
	for n := 2; ; n++ {
		if _, err := os.Lstat(settled); err != nil {
			return os.Rename(backup, settled) // what is wrong with it, this says too
		}
		settled = fmt.Sprintf("%s-%d%s", base, n, backupSuffix)
	}
}

// removeBackup takes a backup back that was made for an edit that was not.
func removeBackup(backup string) error {
	if backup == "" {
		return nil
	}
	return os.Remove(backup)
}

// replacedBackups are the backups of file whose servers uninstall puts back, the
// newest first.
func replacedBackups(file clients.File) ([]string, error) {
	backups, err := filepath.Glob(globbed(file.Path) + ".*" + replacedSuffix)
	slices.Sort(backups)
	slices.Reverse(backups)
	return backups, err
}

// findStale notes the backups from which there is nothing to put back, for file has
// servers of all the names in them: a coffer was killed after it made the backup
// and before it moved them out, or after it put them back. Else a later uninstall
// would put back what a person takes out until then.
func (e *clientEdit) findStale(file clients.File, servers []clients.Server) error {
	backups, err := replacedBackups(file)
	if err != nil {
		return err
	}
	for _, backup := range backups {
		text, err := upstream.ReadFile(backup)
		if err != nil {
			return err
		}
		old, err := file.Servers(text)
		missing := slices.ContainsFunc(old, func(s clients.Server) bool {
			return !clients.IsCoffer(s.Entry) && !hasServer(servers, s.Raw.Name)
		})
		if err == nil && !missing { // of one that cannot be read, uninstall speaks
			e.stale = append(e.stale, backup)
		}
	}
	return nil
}

func hasServer(servers []clients.Server, name string) bool {
	return slices.ContainsFunc(servers, func(s clients.Server) bool { return s.Raw.Name == name })
}

// restore puts the servers back that install took out of file, whose text was that
// when this edit began.
func (e *clientEdit) restore(file clients.File, was []byte) error {
	backups, err := replacedBackups(file)
	if err != nil {
		return err
	}
	var back []string
	for _, backup := range backups {
		text, err := upstream.ReadFile(backup)
		if err != nil {
			return err
		}
		// The backup's name does not say its form, but the file's does.
		old, err := file.Servers(text)
		if err != nil {
			return fmt.Errorf("the backup %s: %w", backup, err)
		}
		now, err := file.Servers(e.text)
		if err != nil {
			return err
		}
		for _, server := range old {
			if hasServer(now, server.Raw.Name) || clients.IsCoffer(server.Entry) {
				continue
			}
			if e.text, err = file.Add(e.text, server.Raw); err != nil {
				return err
			}
			back = append(back, server.Raw.Name)
		}
		e.restored = append(e.restored, backup)
	}
	if len(backups) == 1 {
		if whole, err := upstream.ReadFile(backups[0]); err == nil && asInstalled(file, whole, was) {
			e.text = whole
		}
	}
	if len(back) > 0 {
		e.say("puts %s back", strings.Join(back, ", "))
	}
	return nil
}

// asInstalled reports whether text, a file with coffer in it, is to the byte what
// install made of before: then before is what uninstall has to leave, with its
// layout and its comments.
func asInstalled(file clients.File, before, text []byte) bool {
	servers, err := file.Servers(text)
	own := ownEntry(servers)
	if err != nil || own == nil {
		return false
	}
	old, err := file.Servers(before)
	if err != nil || ownEntry(old) != nil {
		return false
	}
	made, err := file.Add(before, own.Raw)
	for _, server := range old {
		if err == nil && !hasServer(servers, server.Raw.Name) {
			made, err = file.Remove(made, server.Raw.Name)
		}
	}
	return err == nil && bytes.Equal(made, text)
}

// globbed writes a path as a pattern for itself.
func globbed(path string) string {
	return strings.NewReplacer("[", "[[]", "*", "[*]", "?", "[?]").Replace(path)
}
