package checksum

import "testing"

// TestLanes runs the other tests without folding, as on a processor without 512-bit registers.
func TestLanes(t *testing.T) {
	defer func(was bool) { wide = was }(wide)
	wide = false
	t.Run("Sum", TestSum)
	t.Run("CopySum", TestCopySum)
	t.Run("CopyMarked", TestCopyMarked)
	t.Run("Prefetch", TestPrefetch)
}
