package core

import (
	"strings"
	"testing"
)

// TestClockIsMonotonic: Epoch has a monotonic clock reading, so that a change of the host's clock affects no timer that
// is computed from it.
func TestClockIsMonotonic(t *testing.T) {
	if text := Epoch.String(); !strings.Contains(text, " m=") {
		t.Errorf("%s has no monotonic clock reading", text)
	}
}
