//go:build !linux

// Package tick wakes a goroutine at regular times.
package tick

import (
	"context"
	"time"
)

// Ticker is a time.Ticker: only Linux has a cheaper one.
type Ticker struct {
	ctx   context.Context
	plain *time.Ticker
}

// New returns a Ticker that ticks until ctx ends. The caller stops it.
func New(ctx context.Context, every time.Duration) *Ticker {
	return &Ticker{ctx, time.NewTicker(every)}
}

// Wait waits for the next tick; it reports false once ctx has ended. Ticks that
// nobody waited for are lost.
func (t *Ticker) Wait() bool {
	select {
	case <-t.plain.C:
	case <-t.ctx.Done():
	}
	return t.ctx.Err() == nil
}

// Stop ends the Ticker. No Wait may be under way.
func (t *Ticker) Stop() { t.plain.Stop() }
