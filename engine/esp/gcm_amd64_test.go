package esp

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/fips140"
	"encoding/binary"
	"testing"
)

// TestGCMOfGo runs the tests that seal and open as on a CPU without VAES.
func TestGCMOfGo(t *testing.T) {
	defer func(was bool) { hasVAES = was }(hasVAES)
	hasVAES = false
	if ours, _ := bothGCMs(t, random(16)); isWide(ours) {
		t.Error("AES-GCM by VAES without VAES")
	}
	t.Run("GCMMatchesGoAtEveryAlignment", TestGCMMatchesGoAtEveryAlignment)
	t.Run("OpenReturnsWhatSealTook", TestOpenReturnsWhatSealTook)
	t.Run("SealMakesTheDraftsPackets", TestSealMakesTheDraftsPackets)
	t.Run("OpenReadsTheDraftsPackets", TestOpenReadsTheDraftsPackets)
}

func isWide(a cipher.AEAD) bool {
	_, ok := a.(*wideGCM)
	return ok
}

func TestVAESIsUsedWherePresent(t *testing.T) {
	for _, size := range []int{16, 32} {
		ours, _ := bothGCMs(t, random(size))
		if isWide(ours) != (hasVAES && !fips140.Enabled()) {
			t.Errorf("key of %d bytes: %T, and the processor has VAES: %v", size, ours, hasVAES)
		}
	}
}

// TestGCMCounterWraps: the 32-bit counter wraps, which with a nonce of 12 bytes takes 64 GiB from its start. It must
// not carry into the nonce (SP 800-38D, 6.2).
func TestWipe(t *testing.T) {
	for _, bits := range []int{128, 256} {
		sa := SA{SPI: 1, ESN: true, Keymat: random(bits/8 + 4)}
		out, in := pair(t, sa, 64, 1)
		b := sealed(t, out, random(100), 6)
		keys := []*key{&out.key, &in.key}
		var wide []*wideGCM
		for _, k := range keys {
			if g, ok := k.aead.(*wideGCM); ok {
				wide = append(wide, g)
			}
		}
		if hasVAES && !fips140.Enabled() && len(wide) != len(keys) {
			t.Fatal("another implementation is in use")
		}
		out.Wipe()
		in.Wipe()
		for _, g := range wide {
			if *g != (wideGCM{}) {
				t.Errorf("AES-%d: something of the key is left", bits)
			}
		}
		for _, k := range keys {
			if k.nonce != [12]byte{} {
				t.Errorf("AES-%d: the salt is left", bits)
			}
		}
		if _, err := out.Seal(make([]byte, 256), 100, 6); err != ErrExpired {
			t.Errorf("Seal: %v", err)
		}
		if _, _, err := in.Open(b); err != ErrIntegrity {
			t.Errorf("Open: %v", err)
		}
	}
}

func TestGCMCounterWraps(t *testing.T) {
	if !hasVAES {
		return // Go's AES-GCM has no entry for that
	}
	key, nonce, aad := random(16), random(12), random(12)
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	g := newWideGCM(key, block).(*wideGCM)
	std, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	encrypted := func(count uint32) []byte {
		b := binary.BigEndian.AppendUint32(bytes.Clone(nonce), count)
		block.Encrypt(b, b)
		return b
	}
	text := random(16 * 60)
	for first := ^uint32(0) - 61; first != 1; first++ {
		want := bytes.Clone(text)
		for i := range 60 {
			at := want[16*i : 16*i+16]
			xorInto(at, encrypted(first+1+uint32(i)))
		}
		// Go's tag of the same cipher text is the hash, encrypted by the block with counter 1.
		stream := std.Seal(nil, nonce, make([]byte, len(want)), aad)[:len(want)]
		xorInto(stream, want)
		tag := std.Seal(nil, nonce, stream, aad)[len(want):]
		xorInto(tag, encrypted(1))
		xorInto(tag, encrypted(first))

		got, gotTag := bytes.Clone(text), [ICVLen]byte{}
		low := binary.LittleEndian.Uint64(nonce)
		high := uint64(binary.LittleEndian.Uint32(nonce[8:])) |
			uint64(binary.LittleEndian.Uint32(binary.BigEndian.AppendUint32(nil, first)))<<32
		gcmCrypt(g, low, high, &aad[0], len(aad), &got[0], &got[0], len(got), 0, &gotTag)
		if !bytes.Equal(got, want) || !bytes.Equal(gotTag[:], tag) {
			t.Fatalf("from counter %#x: %x, tag %x, want %x, tag %x", first, got, gotTag, want, tag)
		}
	}
}

func xorInto(dst, b []byte) {
	for i := range dst {
		dst[i] ^= b[i]
	}
}
