//go:build !linux

package tick

import (
	"context"
	"time"
)

// kernelTimer is there on Linux only.
type kernelTimer struct{}

func newKernelTimer(context.Context, time.Duration) *kernelTimer { return nil }

func (*kernelTimer) wait() bool { return false }

func (*kernelTimer) stop() {}
