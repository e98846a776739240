package main

import (
	"coffer/clients"
	"coffer/upstream"
)

// imported is `coffer import --json`. Like all that import prints it has no values
// that may be secret.
type imported struct {
	Config   string          `json:"config"`
	DryRun   bool            `json:"dry_run"`
	Servers  []importRow     `json:"servers"`
	Warnings []importWarning `json:"warnings"` // of the servers that were added
	Errors   []unreadFile    `json:"errors"`
}

// importPlace is a file that servers are taken from.
type importPlace struct {
	Client *string `json:"client"` // null: a file that a person named
	Scope  *string `json:"scope"`
	Path   string  `json:"path"`
}

func importPlaceOf(file clients.File) importPlace {
	if file.Client == nil {
		return importPlace{Path: file.Path}
	}
	return importPlace{optional(file.Client.Name), optional(file.Scope.String()), file.Path}
}

// unreadFile is a file that could not be read.
type unreadFile struct {
	importPlace
	Error string `json:"error"`
}

// importResult is what becomes of a server.
type importResult string

const (
	importAdded   importResult = "added" // with --dry-run, would be
	importPresent importResult = "present"
	importSkipped importResult = "skipped"
)

// importRow is one server in one file.
type importRow struct {
	Server string `json:"server"` // the client's name for it
	importPlace
	What   string       `json:"what"`
	Result importResult `json:"result"`
	Name   *string      `json:"name"`   // in coffer's config
	Reason *string      `json:"reason"` // why it is skipped

	from string // the file's title
}

func (r *importRow) skip(reason string) { r.Result, r.Reason = importSkipped, &reason }

// becomes says for a person what becomes of the server.
func (r importRow) becomes() string {
	switch {
	case r.Result == importSkipped:
		return "skipped: " + *r.Reason
	case r.Result == importPresent && *r.Name == r.Server:
		return "already there"
	case r.Result == importPresent:
		return "same as " + *r.Name
	case *r.Name == r.Server:
		return "new"
	default:
		return "new, as " + *r.Name
	}
}

// importWarning is what a person is warned of in a server that was added.
type importWarning struct {
	Server  string  `json:"server"` // its name in coffer's config
	Message string  `json:"message"`
	Hint    *string `json:"hint"`
}

// importWarnings are the warnings of an import, as a person gets them.
func importWarnings(plan *importPlan, config *upstream.Config) []importWarning {
	all := []importWarning{}
	for _, e := range plan.added {
		for _, l := range literals(e) {
			message, hint := l.warning(e.Name)
			all = append(all, importWarning{e.Name, message, &hint})
		}
		for _, w := range config.Warnings {
			if w.Server == e.Name {
				all = append(all, importWarning{e.Name, w.Message, nil})
			}
		}
		if spec := specOf(config, e.Name); spec != nil && spec.Err != nil {
			all = append(all, importWarning{e.Name, "cannot be started yet: " + spec.Err.Error(), optional(hintOf(spec.Err))})
		}
	}
	return all
}
