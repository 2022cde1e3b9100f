//go:build amd64 || arm64

package wire

// sumBlocks returns the sum of the 32-bit words of n bytes at p; n is a multiple of sumBlock and at least minWide.
//
//go:noescape
func sumBlocks(p *byte, n int) uint64

// sumWide adds the whole blocks of b to acc, and returns the rest of b and the sum. b has at least minWide bytes, and
// wide must be true.
func sumWide(b []byte, acc uint64) ([]byte, uint64) {
	n := len(b) &^ (sumBlock - 1)
	sum := sumBlocks(&b[0], n)
	acc += sum
	if acc < sum {
		acc++
	}
	return b[n:], acc
}
