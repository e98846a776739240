//go:build !linux

package main

import (
	"errors"
	"time"
)

// Processor time, memory and open files of another process are read from
// Linux's /proc. Elsewhere these rows are missing.

func cpuTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

func memory(int) (now, peak float64, err error) { return 0, 0, errors.ErrUnsupported }

func descriptors(int) (int, error) { return 0, errors.ErrUnsupported }
