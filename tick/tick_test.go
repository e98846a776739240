package tick

import (
	"context"
	"testing"
	"time"
)

func TestTicker(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	fast := New(ctx, time.Millisecond)
	begun := time.Now()
	for range 10 {
		if !fast.Wait() {
			t.Fatal("no tick")
		}
	}
	if took := time.Since(begun); took < 5*time.Millisecond { // the first one may come at once
		t.Errorf("ten ticks of a millisecond took %v", took)
	}

	slow := New(ctx, time.Hour)
	ended := make(chan bool)
	go func() { ended <- slow.Wait() }()
	cancel()
	if <-ended {
		t.Error("a tick came after an hour that was none")
	}
	if fast.Wait() {
		t.Error("a ticker ticks although its context has ended")
	}
	slow.Stop()
	fast.Stop()
}
