package esp

import (
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"slices"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hasVAES reports whether the CPU encrypts and multiplies four blocks in a 512-bit register, and the operating system
// saves such registers. GODEBUG=cpu.avx512vaes=off makes it false.
var hasVAES = cpu.X86.HasAES && cpu.X86.HasBMI2 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW &&
	cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VAES &&
	cpu.X86.HasAVX512VPCLMULQDQ

const (
	gcmNonceLen = 12
	// maxPower is the power of H for the first of 16 blocks that the block of lengths follows.
	maxPower = 17
)

// wideGCM is AES-GCM (NIST SP 800-38D) with nonces of 12 bytes and tags of 16, by gcm_amd64.s. Its run time depends on
// lengths only.
type wideGCM struct {
	// keys are the round keys (FIPS 197, 5.2). The last is keys[14] also of AES-128, which has no keys[10:14].
	keys [15][16]byte
	// powers begin with H^17, H^16, ..., H, each divided by x; zeros follow. gcmCrypt reads 16 elements, from the power
	// of its first block on.
	powers [maxPower + 15]element
	rounds uint64
}

// element is of GF(2^128). The highest bit of hi is the coefficient of x^0, the lowest of lo that of x^127.
type element struct{ lo, hi uint64 }

// times returns a*b (SP 800-38D, 6.3).
func (a element) times(b element) (z element) {
	for i := range 128 {
		word := a.hi
		if i >= 64 {
			word = a.lo
		}
		mask := -(word >> (63 - i%64) & 1)
		z.hi ^= b.hi & mask
		z.lo ^= b.lo & mask
		carry := -(b.lo & 1)
		b.lo = b.lo>>1 | b.hi<<63
		b.hi = b.hi>>1 ^ carry&(0xe1<<56)
	}
	return z
}

// overX returns a divided by x. A product of two registers has 255 bits, one less than the 256 that crypt reduces:
// it comes out multiplied by x.
func (a element) overX() element {
	carry := -(a.hi >> 63)
	return element{lo: a.lo<<1 ^ carry&1, hi: (a.hi<<1 | a.lo>>63) ^ carry&(0xc2<<56)}
}

// newWideGCM requires hasVAES. block is AES with the same key.
func newWideGCM(key []byte, block cipher.Block) cipher.AEAD {
	g := &wideGCM{rounds: uint64(len(key)/4 + 6)}
	g.expand(key)
	var zero [16]byte
	block.Encrypt(zero[:], zero[:])
	h := element{hi: binary.BigEndian.Uint64(zero[:]), lo: binary.BigEndian.Uint64(zero[8:])}
	for i, power := maxPower-1, h; i >= 0; i-- {
		g.powers[i] = power.overX()
		power = power.times(h)
	}
	return g
}

// wipe overwrites everything derived from the key.
func (g *wideGCM) wipe() { *g = wideGCM{} }

// expand computes the round keys (FIPS 197, 5.2).
func (g *wideGCM) expand(key []byte) {
	var w [60]uint32
	words := len(key) / 4
	for i := range words {
		w[i] = binary.BigEndian.Uint32(key[4*i:])
	}
	last := int(g.rounds)
	rcon := uint32(1)
	for i := words; i < 4*(last+1); i++ {
		t := w[i-1]
		switch {
		case i%words == 0:
			t = subWord(t<<8|t>>24) ^ rcon<<24
			rcon = rcon<<1 ^ rcon>>7*0x11b
		case words == 8 && i%words == 4:
			t = subWord(t)
		}
		w[i] = w[i-words] ^ t
	}
	for r := range last + 1 {
		to := &g.keys[r]
		if r == last {
			to = &g.keys[len(g.keys)-1]
		}
		for i := range 4 {
			binary.BigEndian.PutUint32(to[4*i:], w[4*r+i])
		}
	}
}

func (g *wideGCM) NonceSize() int { return gcmNonceLen }
func (g *wideGCM) Overhead() int  { return ICVLen }

// Seal implements cipher.AEAD.
func (g *wideGCM) Seal(dst, nonce, plain, aad []byte) []byte {
	n := len(plain)
	dst = slices.Grow(dst, n+ICVLen)
	out := dst[len(dst) : len(dst)+n+ICVLen]
	g.crypt(out[:n], nonce, plain, aad, 0, (*[ICVLen]byte)(out[n:]))
	return dst[:len(dst)+n+ICVLen]
}

// Open implements cipher.AEAD. It decrypts before it has verified the tag, and wipes its output if the tag is wrong.
func (g *wideGCM) Open(dst, nonce, sealed, aad []byte) ([]byte, error) {
	n := len(sealed) - ICVLen
	if n < 0 {
		return nil, ErrIntegrity
	}
	dst = slices.Grow(dst, n)
	out := dst[len(dst) : len(dst)+n]
	var tag [ICVLen]byte
	g.crypt(out, nonce, sealed[:n], aad, ^uint64(0), &tag)
	if subtle.ConstantTimeCompare(tag[:], sealed[n:]) != 1 {
		clear(out)
		return nil, ErrIntegrity
	}
	return dst[:len(dst)+n], nil
}

// crypt encrypts or decrypts in to out and writes the tag. in and out may be the same memory, but must not overlap
// otherwise.
func (g *wideGCM) crypt(out, nonce, in, aad []byte, open uint64, tag *[ICVLen]byte) {
	if len(nonce) != gcmNonceLen || len(aad) > maxAAD {
		panic("esp: AES-GCM with a nonce or associated data of a wrong length")
	}
	le := binary.LittleEndian
	// Load words, because the nonce was just written in parts: a longer load would stall.
	low := uint64(le.Uint32(nonce)) | uint64(le.Uint32(nonce[4:]))<<32
	gcmCrypt(g, low, uint64(le.Uint32(nonce[8:]))|1<<56, unsafe.SliceData(aad), len(aad),
		unsafe.SliceData(out), unsafe.SliceData(in), len(in), open, tag)
}

// gcmCrypt encrypts n bytes at src to dst, and writes the tag. The counter block before the first (SP 800-38D, 7.1,
// J0) is low and high in little-endian order. With all bits of open set it decrypts; otherwise open is 0.
//
//go:noescape
func gcmCrypt(k *wideGCM, low, high uint64, aad *byte, aadLen int, dst, src *byte, n int,
	open uint64, tag *[ICVLen]byte)

// subWord is SubWord of FIPS 197, 5.2, without a table.
func subWord(w uint32) uint32
