package sim

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
)

var (
	hostileFrames = flag.Int("hostile", 20_000,
		"how many changed `frames` TestHostileFrames has engines receive")
	hostileSeed = flag.Uint64("hostile.seed", 1,
		"`seed` of its first conversation; the others count on")
)

// TestHostileFrames: whole engines talk to peers that start correctly and then send invalid data with valid CRCs and
// checksums: FPDUs with other opcodes, STags, offsets, lengths and queue numbers, cut, repeated, or out of order. After
// each conversation the checks of FuzzFrames must hold. It modifies many more frames than a fuzzer, which spends its
// time on coverage.
func TestHostileFrames(t *testing.T) {
	var records [][][]byte
	for _, mode := range fuzzModes {
		records = append(records, split(record(t, mode)))
	}
	changed, seed := 0, *hostileSeed
	defer func() {
		if t.Failed() {
			t.Logf("again: -hostile 1 -hostile.seed %d", seed)
		}
	}()
	for ; changed < *hostileFrames; seed++ {
		i := int(seed) % len(fuzzModes)
		changed += converse(t, fuzzModes[i], records[i], rand.New(rand.NewPCG(seed, 0)))
		if t.Failed() {
			return
		}
	}
	t.Logf("%d changed frames in %d conversations", changed, seed-*hostileSeed)
}

// split returns the frames of a record, each with its leading byte.
func split(in []byte) (frames [][]byte) {
	for len(in) > 0 {
		size := int(binary.BigEndian.Uint16(in[1:]))
		frames = append(frames, append([]byte{in[0]}, in[3:3+size]...))
		in = in[3+size:]
	}
	return frames
}

// converse replays a record with frames modified from some point on. It returns the number of modified frames.
func converse(t *testing.T, mode fuzzMode, frames [][]byte, r *rand.Rand) (changed int) {
	c := newConversation(mode)
	c.host.start(tcp.Tuple{})
	if c.mode.dials {
		c.host.dial()
	}
	honest := r.IntN(len(frames))
	for i := range frames {
		f := bytes.Clone(frames[i])
		c.run(t, c.w.Now().Add(pauses[f[0]>>pauseShift]))
		for more := true; more; more = i >= honest && r.IntN(3) > 0 {
			if i >= honest && r.IntN(4) > 0 {
				if r.IntN(8) == 0 {
					f = bytes.Clone(frames[r.IntN(len(frames))])
				}
				f = disfigure(r, f, frames)
				changed++
			}
			c.inject(f[0]&(keepSums|twice), f[1:])
			c.run(t, c.w.Now().Add(pauses[r.IntN(4)]))
			f = bytes.Clone(frames[i])
		}
	}
	c.run(t, c.w.Now().Add(20*tick.Minute))
	c.host.verdict(t)
	return changed
}

// disfigure modifies a frame, mostly in the headers of its first FPDU.
func disfigure(r *rand.Rand, f []byte, frames [][]byte) []byte {
	at, h := tcpOf(f[1:])
	if at < 0 {
		return f
	}
	body := 1 + at + h.Len()
	for range 1 + r.IntN(3) {
		room := min(len(f)-body, 34) // FPDU length, DDP, RDMAP
		switch k := r.IntN(8); {
		case k < 1 && room > 3: // RDMAP's opcode
			f[body+3] = 0x40 | byte(r.IntN(16))
		case k < 3 && room > 0: // any byte
			f[body+r.IntN(room)] = byte(r.Uint32())
		case k < 4 && room > 0: // one bit
			f[body+r.IntN(room)] ^= 1 << r.IntN(8)
		case k < 6 && room > 8: // a field of another frame, or an extreme value
			n := 1 << r.IntN(4)
			n = min(n, room)
			off := r.IntN(room - n + 1)
			other := frames[r.IntN(len(frames))]
			if body+off+n <= len(other) {
				copy(f[body+off:][:n], other[body+off:])
			} else {
				copy(f[body+off:][:n], "\xff\xff\xff\xff\xff\xff\xff\xff")
			}
		case k < 7 && room > 0: // its end is cut off, with the right IP length
			f = f[:body+r.IntN(len(f)-body)]
			cutIP(f[1:])
		default: // TCP's sequence number
			seq := f[1+at+4:]
			binary.BigEndian.PutUint32(seq, binary.BigEndian.Uint32(seq)+uint32(r.IntN(41)-20))
		}
	}
	f[0] = byte(r.IntN(8)) &^ raw
	if r.IntN(8) > 0 {
		f[0] &^= keepSums
	}
	return f
}

// cutIP sets the length in the IP header to that of the frame.
func cutIP(frame []byte) {
	const ethernet = 14
	switch b := frame[ethernet:]; b[0] >> 4 {
	case 4:
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	case 6:
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
	}
}
