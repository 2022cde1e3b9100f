package core

import (
	"crypto/rand"
	"encoding/binary"
)

// osRandom draws STags, ports and keys from the operating system.
type osRandom struct{}

// Uint32 implements ddp.Random.
func (osRandom) Uint32() uint32 {
	var b [4]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint32(b[:])
}

// RandomKey returns a random key of 128 bits.
func RandomKey() (k [16]byte) {
	rand.Read(k[:])
	return k
}

// RandomSeed returns a random seed of 64 bits.
func RandomSeed() uint64 {
	k := RandomKey()
	return binary.LittleEndian.Uint64(k[:])
}
