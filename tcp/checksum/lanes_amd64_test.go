package checksum

import "testing"

// TestLanes is the other tests as a processor runs them that has no registers of 512 bits.
func TestLanes(t *testing.T) {
	defer func(was bool) { wide = was }(wide)
	wide = false
	t.Run("Sum", TestSum)
	t.Run("CopySum", TestCopySum)
	t.Run("CopyMarked", TestCopyMarked)
	t.Run("Prefetch", TestPrefetch)
}
