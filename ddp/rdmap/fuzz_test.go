package rdmap

import (
	"bytes"
	"encoding/binary"
	"testing"

	"xwarp/ddp"
	"xwarp/engine/testkit/havoc"
	"xwarp/mpa/ulpdu"
)

const guard = 0xA5

// arena is memory with regions in it and guard bytes between them.
type arena struct {
	mem     []byte
	regions [][2]int
}

func (a *arena) carve(off, n int) []byte {
	a.regions = append(a.regions, [2]int{off, off + n})
	return a.mem[off : off+n : off+n]
}

// intact reports whether every byte outside of the regions is unchanged.
func (a *arena) intact() bool {
	for i, x := range a.mem {
		inside := false
		for _, r := range a.regions {
			inside = inside || (i >= r[0] && i < r[1])
		}
		if !inside && x != guard {
			return false
		}
	}
	return true
}

// fuzzTarget has a writable region 0x100 at base 0x1000, a readable one 0x101, receives in 0x102
// and an outstanding Read and FetchAdd into 0x103.
func fuzzTarget(t testing.TB, private bool) (*host, *arena) {
	a := &arena{mem: bytes.Repeat([]byte{guard}, 2048)}
	h := newHost(t, 1).open(nil, Params{Version: ddp.IETF, IRD: 2, ORD: 2, Private: private})
	h.register(a.carve(64, 256), ddp.Attr{STag: 0x100, Base: 0x1000,
		Access: ddp.RemoteWrite | ddp.RemoteAtomic})
	h.register(bytes.Repeat([]byte{7}, 256), ddp.Attr{STag: 0x101, Access: ddp.RemoteRead,
		Stream: 1})
	h.register(a.carve(512, 200), ddp.Attr{STag: 0x102, Access: ddp.LocalWrite})
	h.register(a.carve(1024, 72), ddp.Attr{STag: 0x103, Access: ddp.LocalWrite})
	h.recv(1, SGE{0x102, 0, 50}, SGE{0x102, 60, 0}, SGE{0x102, 60, 14})
	h.recv(2, SGE{0x102, 100, 100})
	h.send(SendWR{ID: 1, Op: WRRead, SGL: []SGE{{0x103, 0, 64}}, RemoteSTag: 9})
	h.send(SendWR{ID: 2, Op: WRFetchAdd, SGL: []SGE{{0x103, 64, 8}}, RemoteSTag: 9})
	h.pullAll(1500)
	return h, a
}

// program packs ULPDUs for the fuzzer: a control byte and a length before each. Bits of the control byte: 1 places the
// ULPDU ahead of its turn first, 2 delivers it twice, 4 does not deliver it after that placement. 8, in the first one,
// allows private messages.
func program(control byte, ulpdus ...[]byte) (b []byte) {
	for _, u := range ulpdus {
		b = append(b, control)
		b = binary.BigEndian.AppendUint16(b, uint16(len(u)))
		b = append(b, u...)
	}
	return b
}

// FuzzPlaceDeliver gives a queue pair arbitrary ULPDUs. It must not panic or touch a byte outside of its regions. After
// Abort, each work request has completed once, and no region is held.
//
//req:rfc5041-7.1-4 rfc5041-8.3.1-1 rfc5040-7.1-3 rfc5040-8.1.1-3
func FuzzPlaceDeliver(f *testing.F) {
	seeds := [][]byte{
		unhex(f, write(0x100, 0x1000, 200)), unhex(f, write(0x100, 0x10f0, 17)),
		unhex(f, write(0x103, 0, 8)),
		unhex(f, untagged(3, 0, 1, 0, 64)), unhex(f, untagged(4, 0, 1, 0, 10)),
		unhex(f, untagged(8, 0, 1, 0, 8)), unhex(f, untagged(3, 0, 2, 0, 100)),
		unhex(f, readRequest(0x101, 0, 256)), unhex(f, readRequest(0, 0, 0)),
		unhex(f, fetchAdd(0, 0x100, 0x1008)), unhex(f, fetchAdd(2, 0x100, 0x1004)),
		unhex(f, "c142 00000103 0000000000000000"+zeros(64)),
		unhex(f, "8142 00000103 0000000000000000"+zeros(32)),
		unhex(f, "c142 00000103 0000000000000020"+zeros(32)),
		unhex(f, untagged(11, 3, 1, 0, 0)+"00000001 0000000000000029"),
		unhex(f, untagged(7, 2, 1, 0, 0)+"0101c000 00d6 c140 00000100 0000000000001000"),
		unhex(f, untagged(15, 0, 1, 0, 0)),
		unhex(f, untagged(12, 0, 1, 0, 50)), unhex(f, untagged(13, 0, 1, 0, 0)),
		unhex(f, "415e 00010000 00000004 00000002 00000000"),
		unhex(f, "415e 8001001f 00000004 00000000 00000000"),
	}
	for _, s := range seeds {
		for control := range byte(3) {
			f.Add(program(control, s))
			f.Add(program(control|8, s)) // private messages
		}
	}
	f.Add(program(0, seeds...))
	f.Add(program(1, seeds[11], seeds[14], seeds[3], seeds[0], seeds[7], seeds[15]))
	havoc.Fuzz(f, func(t *testing.T, prog []byte) {
		h, a := fuzzTarget(t, len(prog) > 0 && prog[0]&8 != 0)
		for len(prog) >= 3 {
			control, n := prog[0], int(binary.BigEndian.Uint16(prog[1:]))
			n = min(n, len(prog)-3)
			u := prog[3 : 3+n]
			prog = prog[3+n:]
			feed(h, control, u)
			for fr := h.pull(MinULPDU + int(control)); fr != nil; fr = h.pull(MinULPDU) {
				h.qp.ReleaseULPDU(fr.ref)
			}
		}
		if !a.intact() {
			t.Fatal("bytes outside of the regions were touched")
		}
		h.qp.Abort()
		seen := map[[2]uint64]int{}
		for _, c := range h.cqes {
			seen[[2]uint64{uint64(c.Op) / 0xff, c.ID}]++
		}
		for _, id := range []uint64{1, 2} {
			// Requests of the send queue were never acknowledged, so all four are here.
			if seen[[2]uint64{0, id}] != 1 || seen[[2]uint64{1, id}] != 1 {
				t.Fatalf("completions %v", brief(h.cqes))
			}
		}
		for _, s := range []ddp.STag{0x100, 0x102, 0x103} {
			if m := h.table.Lookup(s); m != nil && m.Holds() != 0 {
				t.Fatalf("%v is still held", m)
			}
		}
	})
}

func feed(h *host, control byte, u []byte) {
	pieces := ulpdu.ViewOf(u[:len(u)/3], u[len(u)/3:])
	if control&1 != 0 {
		if err := h.qp.Place(&pieces, false); err == nil && control&4 != 0 {
			return // placed, and what is before it never comes
		}
	}
	err := h.qp.Place(&pieces, true)
	for i := 0; i < 1+int(control>>1&1) && err == nil; i++ {
		err = h.qp.Deliver(u[:min(len(u), 18)], len(u))
	}
	h.qp.Fail(err)
}

//req:rfc5040-4.8-2
func FuzzTerminate(f *testing.F) {
	for _, c := range badSegments {
		for _, row := range Rows() {
			var hdr []byte
			if c.header != "" {
				hdr = unhex(f, c.header)
			}
			t := makeTerminate(row.Cause, hdr, c.n, c.read)
			f.Add(AppendTerminate(nil, &t))
		}
	}
	havoc.Fuzz(f, func(t *testing.T, b []byte) {
		got, err := ParseTerminate(b)
		if err != nil {
			return
		}
		_ = got.String()
		again, err := ParseTerminate(AppendTerminate(nil, &got))
		if got.Swapped || again.Swapped {
			return // the bits of headers decide that, and bits of missing headers are not written again
		}
		if err != nil || again.Cause != got.Cause || again.HasDDP != got.HasDDP ||
			again.Read != got.Read {
			t.Fatalf("%+v became %+v", got, again)
		}
	})
}
