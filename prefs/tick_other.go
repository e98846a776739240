//go:build !linux

package prefs

import (
	"context"
	"time"
)

// ticker is a time.Ticker: only Linux has a cheaper one.
type ticker struct{ plain *time.Ticker }

func newTicker(every time.Duration) *ticker { return &ticker{time.NewTicker(every)} }

// wait waits for the next tick; it reports false once ctx has ended.
func (t *ticker) wait(ctx context.Context) bool {
	select {
	case <-t.plain.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// interrupt ends the waits of a ticker whose ctx has ended, which wait sees.
func (t *ticker) interrupt() {}

func (t *ticker) stop() { t.plain.Stop() }
