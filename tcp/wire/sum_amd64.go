package wire

// sumBlock is what sumAVX2 takes at a time.
const sumBlock = 128

// sumAVX2 returns the sum of the 32-bit words of n octets at p; n is a multiple of sumBlock and not 0.
//
//go:noescape
func sumAVX2(p *byte, n int) uint64

func hasAVX2() bool

// wide says that sumAVX2 may be called.
var wide = hasAVX2()

// sumWide adds the octets at the front of b that come in whole blocks, and returns the rest.
func sumWide(b []byte, acc uint64) ([]byte, uint64) {
	n := len(b) &^ (sumBlock - 1)
	if !wide || n == 0 {
		return b, acc
	}
	sum := sumAVX2(&b[0], n)
	acc += sum
	if acc < sum {
		acc++
	}
	return b[n:], acc
}
