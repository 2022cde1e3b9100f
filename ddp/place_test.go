package ddp

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"xwarp/mpa/ulpdu"
)

//req:rfc5041-4.3-4
func TestBufferIndex(t *testing.T) {
	for _, c := range []struct {
		name      string
		msn, next MSN
		n, want   int
		cause     Cause
	}{
		{"first", 1, 1, 1, 0, CauseNone},
		{"third of three", 3, 1, 3, 2, CauseNone},
		{"fourth of three", 4, 1, 3, 0, CauseNoBuffer},
		{"no buffers", 1, 1, 0, 0, CauseNoBuffer},
		{"before", 1, 2, 3, 0, CauseMSNRange},
		{"0 follows ffffffff", 0, 0xffffffff, 2, 1, CauseNone},
		{"before across 0", 0xffffffff, 0, 2, 0, CauseMSNRange},
		{"half the space away", 0x80000001, 1, 3, 0, CauseMSNRange},
		{"just less than half", 0x80000000, 1, 3, 0, CauseNoBuffer},
	} {
		if got, cause := BufferIndex(c.msn, c.next, c.n); got != c.want || cause != c.cause {
			t.Errorf("%s: %d %v", c.name, got, cause)
		}
	}
}

//req:rfc5041-7.1-1
func TestCheckUntagged(t *testing.T) {
	for _, c := range []struct {
		mo   MO
		n    int
		size uint64
		want Cause
	}{
		{0, 0, 0, CauseNone},
		{0, 16, 16, CauseNone},
		{16, 0, 16, CauseNone},
		{15, 1, 16, CauseNone},
		{17, 0, 16, CauseMO},
		{0xffffffff, 1, 16, CauseMO},
		{0, 17, 16, CauseTooLong},
		{16, 1, 16, CauseTooLong},
		{0xfffffffe, 1, 1 << 32, CauseNone},
		{0xffffffff, 0, 1 << 32, CauseNone},
		{0xffffffff, 1, 1 << 32, CauseTooLong}, // a message of 2^32 bytes
		{0xffffffff, 1, 1 << 40, CauseTooLong},
	} {
		if got := CheckUntagged(c.mo, c.n, c.size); got != c.want {
			t.Errorf("MO %d, %d bytes, buffer %d: %v, want %v", c.mo, c.n, c.size, got, c.want)
		}
	}
}

// TestScatterGather compares Scatter and Gather with copies between contiguous buffers. The pieces of destination and
// source are random.
//
//req:rfc5041-5.2-3
func TestScatterGather(t *testing.T) {
	const seed = 3
	rng := rand.New(rand.NewPCG(seed, 0))
	pieces := func(b []byte) (p [][]byte) {
		for len(b) > 0 {
			n := rng.IntN(min(len(b), 40) + 1)
			p, b = append(p, b[:n:n]), b[n:]
		}
		return p
	}
	for range 2000 {
		dst, want := make([]byte, 200), make([]byte, 200)
		src := make([]byte, rng.IntN(100))
		for i := range src {
			src[i] = byte(i + 1)
		}
		off := rng.IntN(len(src) + 1)
		at := rng.IntN(len(dst) - len(src) + off + 1)
		v := ulpdu.ViewOf(pieces(src)...)
		Scatter(pieces(dst), uint64(at), &v, off)
		copy(want[at:], src[off:])
		if !bytes.Equal(dst, want) {
			t.Fatalf("seed %d: scatter %d bytes from %d to %d", seed, len(src), off, at)
		}
		got := make([]byte, rng.IntN(120))
		n := Gather(got, pieces(dst), uint64(at))
		if m := min(len(got), len(dst)-at); n != m || !bytes.Equal(got[:n], dst[at:at+n]) {
			t.Fatalf("seed %d: gather %d bytes from %d: %d", seed, len(got), at, n)
		}
	}
}

// TestPlaceTagged: the payload is written where TO says and nowhere else; a refused segment writes nothing.
//
//req:rfc5041-5.2-3 rfc5041-7.1-3
func TestPlaceTagged(t *testing.T) {
	tab, pd := newTable(t)
	mem := bytes.Repeat([]byte{0xaa}, 128)
	for _, c := range []struct {
		to     TO
		n      int
		access Access
		want   Cause
	}{
		{0x1000, 64, RemoteWrite, CauseNone},
		{0x103f, 1, RemoteWrite, CauseNone},
		{0x1000, 65, RemoteWrite, CauseBounds},
		{0xfff, 2, RemoteWrite, CauseBounds},
		{^TO(0), 2, RemoteWrite, CauseWrap},
		{0x1000, 4, RemoteRead, CauseSTag},
		{0x9999, 0, RemoteWrite, CauseNone},
	} {
		for i := range mem {
			mem[i] = 0xaa
		}
		want := bytes.Clone(mem)
		m, err := tab.Register(pd, mem[32:96:96], Attr{Base: 0x1000, Access: c.access})
		if err != nil {
			t.Fatal(err)
		}
		h := Tagged{Control: MakeControl(true, true, IETF), STag: m.STag(), TO: c.to}
		payload := bytes.Repeat([]byte{0x55}, c.n)
		v := ulpdu.ViewOf(append(AppendTagged(nil, h), payload...))
		if got := tab.PlaceTagged(&LookupCache{}, pd, 1, h, &v); got != c.want {
			t.Errorf("%d bytes at %#x: %v, want %v", c.n, c.to, got, c.want)
		}
		if c.want == CauseNone {
			copy(want[min(32+int(c.to-0x1000), len(want)):], payload)
		}
		if !bytes.Equal(mem, want) {
			t.Errorf("%d bytes at %#x: memory is wrong", c.n, c.to)
		}
	}
}
