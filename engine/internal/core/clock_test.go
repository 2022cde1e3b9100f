package core

import (
	"strings"
	"testing"
)

// TestClockIsMonotonic: somebody who sets the host's clock changes no timer of the engine.
func TestClockIsMonotonic(t *testing.T) {
	if text := Epoch.String(); !strings.Contains(text, " m=") {
		t.Errorf("%s has no reading of the monotonic clock", text)
	}
}
