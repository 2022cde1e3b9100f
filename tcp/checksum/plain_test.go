//go:build amd64 || arm64

package checksum

import "testing"

// TestPlain runs TestSum and TestCopySum as on a processor without CRC32 instructions. CopyMarked makes no blocks
// there.
func TestPlain(t *testing.T) {
	defer func(was bool) { fast = was }(fast)
	fast = false
	t.Run("Sum", TestSum)
	t.Run("CopySum", TestCopySum)
	n, crc, sum := CopyMarked(make([]byte, 3*blockLen), make([]byte, 4+MinMarked), 4, 0, 5, 6, 0)
	if n != 0 || crc != 5 || sum != 6 {
		t.Errorf("%d bytes of blocks, CRC %d, sum %d", n, crc, sum)
	}
}
