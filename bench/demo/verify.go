package demo

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// ErrBytes is wrapped by the error of Run if the target's bytes differ from the source's after a transfer.
var ErrBytes = errors.New("the target's bytes differ from the source's")

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// differ returns an error that says how many bytes of dst differ from src, and the offset of the first. Both have the
// same length.
func differ(src, dst []byte) error {
	first, wrong, zero := -1, 0, 0
	for i, want := range src {
		if dst[i] == want {
			continue
		}
		if first < 0 {
			first = i
		}
		wrong++
		if dst[i] == 0 {
			zero++
		}
	}
	if first < 0 {
		return fmt.Errorf("%w by SHA-256, but not when compared: they were still being written",
			ErrBytes)
	}
	return fmt.Errorf(
		"%w: %d of %d, first at offset %d; %d of them are zero, so perhaps never written",
		ErrBytes, wrong, len(src), first, zero)
}
