package esp

import (
	"bytes"
	"testing"

	"xwarp/engine/testkit/havoc"
)

// FuzzOpen gives an SA packets with a valid ICV and any trailer, some of which are modified afterwards. The input has,
// for each packet, a step of the sequence number, a mask for one of its bytes, the position of that byte, and a length
// of plain text, followed by its bytes. No packet may be accepted twice or after a modification, and each must be
// either accepted or counted in Drops.
func FuzzOpen(f *testing.F) {
	f.Add([]byte{1, 0, 0, 6, 1, 2, 3, 4, 0, 6})
	f.Add([]byte{1, 0, 0, 2, 0, 6, 0, 0, 0, 2, 0, 6})           // a repetition
	f.Add([]byte{1, 0x80, 20, 2, 0, 6})                         // a changed byte
	f.Add([]byte{200, 0, 0, 2, 0, 59, 129, 0, 0, 3, 9, 200, 6}) // a dummy, an old one, bad padding
	f.Add([]byte{255, 0, 0, 2, 0, 4, 255, 0, 0, 2, 0, 41})
	havoc.Fuzz(f, checkOpen)
}

func checkOpen(t *testing.T, ops []byte) {
	for _, sa := range []SA{{}, {ESN: true}, {Mode: Tunnel, ESN: true}} {
		first := uint64(1<<32 - 300)
		out, in := pair(t, sa, 64, first)
		accepted := map[uint64]bool{}
		packets := uint64(0)
		for b := ops; len(b) >= 4; {
			step, mask, at, n := int8(b[0]), b[1], int(b[2]), min(int(b[3]), len(b)-4)
			plain := b[4 : 4+n]
			b = b[4+n:]
			if out.last += uint64(int64(step)); !sa.ESN {
				out.last = min(out.last, 1<<32-1)
			}
			packet := sealRaw(out, plain)
			if mask != 0 {
				packet[at%len(packet)] ^= mask
			}
			packets++
			payload, _, err := in.Open(packet)
			if err != nil {
				continue
			}
			if n < 2 || mask != 0 || accepted[out.last] ||
				!bytes.HasPrefix(plain, payload) {
				t.Fatalf("%+v: number %#x, %x accepted as %x", sa, out.last, plain, payload)
			}
			accepted[out.last] = true
		}
		d := in.Drops
		if sum := d.Short + d.Replayed + d.Forged + d.Payload + d.Dummy + d.Expired; sum+
			uint64(len(accepted)) != packets {
			t.Fatalf("%d packets: %d accepted, %+v", packets, len(accepted), d)
		}
	}
}

// sealRaw returns a packet with the plain text plain, including its trailer, and the sequence number out.last, possibly
// a repeated one.
func sealRaw(out *Out, plain []byte) []byte {
	b := make([]byte, HeaderLen, HeaderLen+len(plain)+ICVLen)
	for i := range 4 {
		b[i] = byte(out.spi >> (24 - 8*i))
		b[4+i] = byte(out.last >> (24 - 8*i))
	}
	copy(out.key.nonce[4:], b[8:])
	return out.key.aead.Seal(b, out.key.nonce[:], plain, out.key.associated(out.last))
}
