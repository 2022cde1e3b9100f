package core

import (
	"strings"
	"testing"
)

// TestClockIsMonotonic: a change of the host's clock affects no timer of the engine.
func TestClockIsMonotonic(t *testing.T) {
	if text := Epoch.String(); !strings.Contains(text, " m=") {
		t.Errorf("%s has no monotonic clock reading", text)
	}
}
