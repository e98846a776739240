// Package tick wakes a goroutine at regular times at the least cost, so that an
// idle coffer may look around ten times a second.
package tick

import (
	"context"
	"time"
)

// Ticker ticks like a time.Ticker, where it can without the runtime's timers: one
// of those that fires while all else sleeps wakes three threads, and takes some
// 0.5 ms of processor time. A timer of the kernel's wakes the one that waits for it.
type Ticker struct {
	ctx    context.Context
	kernel *kernelTimer // nil: there was none to be had
	plain  *time.Ticker // instead
}

// New returns a Ticker that ticks until ctx ends. The caller stops it.
func New(ctx context.Context, every time.Duration) *Ticker {
	if kernel := newKernelTimer(ctx, every); kernel != nil {
		return &Ticker{ctx: ctx, kernel: kernel}
	}
	return &Ticker{ctx: ctx, plain: time.NewTicker(every)}
}

// Wait waits for the next tick; it reports false once ctx has ended. Ticks that
// nobody waited for are lost.
func (t *Ticker) Wait() bool {
	if t.kernel != nil {
		return t.kernel.wait() && t.ctx.Err() == nil
	}
	select {
	case <-t.plain.C:
	case <-t.ctx.Done():
	}
	return t.ctx.Err() == nil
}

// Stop ends the Ticker. No Wait may be under way.
func (t *Ticker) Stop() {
	if t.kernel != nil {
		t.kernel.stop()
		return
	}
	t.plain.Stop()
}
