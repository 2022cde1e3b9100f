package demo

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// ErrOctets is wrapped when memory at the target is not what the source had.
var ErrOctets = errors.New("the target's octets differ from the source's")

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// differ says where two regions of the same length differ.
func differ(src, dst []byte) error {
	const step = 1 << 16
	first, wrong, zero := -1, 0, 0
	for off := 0; off < len(src); off += step {
		s, d := src[off:min(off+step, len(src))], dst[off:min(off+step, len(src))]
		if bytes.Equal(s, d) {
			continue
		}
		for i := range s {
			if s[i] == d[i] {
				continue
			}
			if first < 0 {
				first = off + i
			}
			wrong++
			if d[i] == 0 {
				zero++
			}
		}
	}
	if first < 0 {
		return fmt.Errorf("%w by SHA-256, but no more when compared: they were still being written",
			ErrOctets)
	}
	return fmt.Errorf(
		"%w: %d of %d, first at offset %d; %d of them are zero, so perhaps never written",
		ErrOctets, wrong, len(src), first, zero)
}
