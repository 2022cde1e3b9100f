//go:build !amd64

package esp

import "crypto/cipher"

const hasVAES = false

func newWideGCM([]byte, cipher.Block) cipher.AEAD { panic("esp: no AES-GCM for this processor") }
