package upstream

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tailscale/hujson"
)

// duration returns v as a duration of at least least: a string as Go writes
// durations, or a number of seconds.
func (v jsonValue) duration(least time.Duration) (time.Duration, error) {
	var d time.Duration
	switch v.tree.Kind() {
	case '"':
		var err error
		if d, err = time.ParseDuration(v.tree.(hujson.Literal).String()); err != nil {
			return 0, &HintError{
				Err:  v.errorf("is not a duration"),
				Hint: `write it like "30s" or "1m30s", or as a number of seconds`,
			}
		}
	case '0':
		// Out of range is ±Inf, which the comparison below refuses.
		seconds, _ := strconv.ParseFloat(string(v.tree.(hujson.Literal)), 64)
		nanos := math.Round(seconds * float64(time.Second))
		if nanos >= math.MaxInt64 {
			return 0, v.errorf("is longer than %v", time.Duration(math.MaxInt64))
		}
		d = time.Duration(max(nanos, -1))
	default:
		return 0, v.mismatch("a duration")
	}
	switch {
	case d < 0:
		return 0, v.errorf("is negative")
	case d < least:
		return 0, v.errorf("is less than %v", least)
	}
	return d, nil
}

// integer returns v as a whole number of at least least.
func (v jsonValue) integer(least int) (int, error) {
	if v.tree.Kind() != '0' {
		return 0, v.mismatch("a whole number")
	}
	n, err := strconv.Atoi(string(v.tree.(hujson.Literal)))
	if err != nil {
		return 0, v.errorf("is not a whole number, or too large")
	}
	if n < least {
		return 0, v.errorf("is less than %d", least)
	}
	return n, nil
}

// size returns v as a number of bytes of at least least: a number, or a string
// with a unit such as "64 MiB".
func (v jsonValue) size(least int) (int, error) {
	if v.tree.Kind() != '"' {
		return v.integer(least)
	}
	text := v.tree.(hujson.Literal).String()
	digits := strings.TrimRight(text, "KMGiB ")
	unit, known := map[string]int{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[strings.TrimSpace(text[len(digits):])]
	n, err := strconv.Atoi(digits)
	if err != nil || !known || n < 0 || n > math.MaxInt/unit {
		return 0, &HintError{
			Err:  v.errorf("is not a size"),
			Hint: `write a number of bytes, or one with B, KiB, MiB or GiB, like "64 MiB"`,
		}
	}
	if n*unit < least {
		return 0, v.errorf("is less than %d", least)
	}
	return n * unit, nil
}
