package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// subject is something that is measured.
type subject string

const (
	relay      subject = "relay"       // the floor: bytes through a process between two pipes
	fiveRelays subject = "five relays" // such a relay and such a server for each of five
	direct     subject = "direct"      // the server without anything between
	coffer     subject = "coffer"      // coffer in front of five servers
	impatient  subject = "no wait"     // coffer with instructions_wait 0
	httpDirect subject = "HTTP direct" // a streamable HTTP server without anything between
	httpCoffer subject = "HTTP coffer" // coffer in front of it
)

// limit is what a figure must keep to.
type limit struct {
	AtMost  float64 `json:"at_most,omitempty"`
	AtLeast float64 `json:"at_least,omitempty"`
}

// figure is one row: a number for each subject and round.
type figure struct {
	Name  string
	Unit  string
	Of    subject // whose number the row is about
	Base  subject // what it is divided by; "": the number itself counts
	Limit limit

	rounds map[subject][]float64
}

func (f *figure) add(s subject, value float64) {
	if f.rounds == nil {
		f.rounds = map[subject][]float64{}
	}
	f.rounds[s] = append(f.rounds[s], value)
}

// row is a figure as it is reported.
type row struct {
	Name    string              `json:"name"`
	Unit    string              `json:"unit"`
	Medians map[subject]float64 `json:"medians"`
	Of      subject             `json:"of"`
	Base    subject             `json:"base,omitempty"`
	Value   float64             `json:"value"` // median of the ratios, or of Of's numbers
	Low     float64             `json:"low"`   // its quartiles over the rounds
	High    float64             `json:"high"`
	Limit   *limit              `json:"limit,omitempty"`
	Met     *bool               `json:"met,omitempty"`
}

// row sums the rounds up. Ratios are taken within each round, where both
// numbers were measured within moments of each other, so drift cancels.
func (f *figure) row() row {
	r := row{Name: f.Name, Unit: f.Unit, Of: f.Of, Base: f.Base, Medians: map[subject]float64{}}
	for s, values := range f.rounds {
		r.Medians[s] = quantile(values, 0.5)
	}
	values := slices.Clone(f.rounds[f.Of])
	if f.Base != "" {
		for i, base := range f.rounds[f.Base] {
			values[i] /= base
		}
	}
	r.Value, r.Low, r.High = quantile(values, 0.5), quantile(values, 0.25), quantile(values, 0.75)
	if f.Limit != (limit{}) {
		met := (f.Limit.AtMost == 0 || r.Value <= f.Limit.AtMost) && r.Value >= f.Limit.AtLeast
		r.Limit, r.Met = &f.Limit, &met
	}
	return r
}

// quantile returns the value below which that part of values lies; NaN if
// there are none.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := part * float64(len(sorted)-1)
	low := int(at)
	if low == len(sorted)-1 {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// micros is a duration in microseconds.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// text writes a number with three digits that count.
func text(value float64) string {
	switch abs := math.Abs(value); {
	case math.IsNaN(value):
		return ""
	case abs >= 100:
		return fmt.Sprintf("%.0f", value)
	case abs >= 10:
		return fmt.Sprintf("%.1f", value)
	default:
		return fmt.Sprintf("%.2f", value)
	}
}
