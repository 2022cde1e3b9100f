package esp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/fips140"
)

// newGCM returns AES-GCM with a key of 16 or 32 bytes. On CPUs that hasVAES accepts it is the package's own, which
// takes at most maxAAD bytes of associated data. Otherwise, and in FIPS mode, it is Go's, whose module is certified.
func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil || !hasVAES || fips140.Enabled() {
		return aead, err
	}
	return newWideGCM(key, block), nil
}

// maxAAD is the longest associated data of a wideGCM: one block. ESP has 8 or 12 bytes.
const maxAAD = 16
