package daemon

import (
	"errors"
	"strings"
	"testing"
	"time"

	"xwarp/engine/verbs"
)

// TestLateConfirmation: a confirmation is refused before the start has finished, and after the deadline.
func TestLateConfirmation(t *testing.T) {
	var c confirmation
	if _, err := c.confirm(); err == nil || !strings.Contains(err.Error(), "still starting") {
		t.Errorf("before the start has finished: %v", err)
	}
	due := make(chan time.Time, 1)
	c.start(time.Minute, func(time.Duration) <-chan time.Time { return due })
	due <- time.Time{}
	if err := c.waitForDeadline(t.Context()); !errors.Is(err, ErrUnconfirmed) {
		t.Error(err)
	}
	if _, err := c.confirm(); !errors.Is(err, verbs.ErrClosed) ||
		!strings.Contains(err.Error(), "too late: not confirmed within 1m0s") {
		t.Errorf("afterwards: %v", err)
	}
	if left := c.timeLeft(); left != 0 {
		t.Errorf("%v left", left)
	}
}
