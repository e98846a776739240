package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"text/tabwriter"
)

// report is the whole run, as JSON.
type report struct {
	GOOS   string `json:"goos"`
	GOARCH string `json:"goarch"`
	CPUs   int    `json:"cpus"`
	Go     string `json:"go"`
	Rows   []row  `json:"rows"`
}

func (b *bench) writeJSON(w io.Writer) error {
	r := report{GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	for _, f := range b.figures {
		if row := f.row(); !math.IsNaN(row.Value) {
			r.Rows = append(r.Rows, row)
		}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// writeTable writes the rows in Markdown's form, so that they can be read as
// they are and pasted.
func (b *bench) writeTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| \t| floor \t| direct \t| coffer \t| ratio \t| quartiles \t| target \t|")
	fmt.Fprintln(t, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, f := range b.figures {
		r := f.row()
		if math.IsNaN(r.Value) {
			continue
		}
		floor, ratio := r.Base, text(r.Value)+"×"
		if r.Base == "" {
			floor, ratio = relay, ""
		}
		fmt.Fprintf(t, "| %s \t| %s \t| %s \t| %s %s \t| %s \t| %s–%s \t| %s \t|\n",
			r.Name, median(r, floor), median(r, direct), median(r, r.Of), r.Unit, ratio, text(r.Low), text(r.High), target(r))
	}
	return t.Flush()
}

func median(r row, s subject) string {
	value, measured := r.Medians[s]
	if !measured {
		return ""
	}
	return text(value)
}

// target says what the number had to be, and whether it is not.
func target(r row) string {
	if r.Limit == nil {
		return ""
	}
	var parts []string
	if r.Limit.AtMost > 0 {
		parts = append(parts, fmt.Sprintf("≤ %v", r.Limit.AtMost))
	}
	if r.Limit.AtLeast > 0 {
		parts = append(parts, fmt.Sprintf("≥ %v", r.Limit.AtLeast))
	}
	if !*r.Met {
		parts = append(parts, "missed")
	}
	return strings.Join(parts, " ")
}
