package rdmap

import (
	"bytes"
	"fmt"
	"testing"

	"xwarp/ddp"
)

// TestReceiveChecksWrittenBytes posts receives with memory that may not be written, or only in part. They fail only if
// the message has a byte for that memory. The sender then learns that the operation failed.
//
//req:rfc5040-7.1-2
func TestReceiveChecksWrittenBytes(t *testing.T) {
	const size = 16 // of each region
	for _, c := range []struct {
		name string
		list func(good, readOnly *ddp.MR) []SGE
		fits int // bytes that a message may have
	}{
		{"all usable", func(m, _ *ddp.MR) []SGE { return []SGE{sge(m, 0, size)} }, size},
		{"unknown STag", func(_, _ *ddp.MR) []SGE { return []SGE{{STag: 0xbad, Len: size}} }, 0},
		{"STag 0", func(_, _ *ddp.MR) []SGE { return []SGE{{Len: size}} }, 0},
		{"no LocalWrite", func(_, m *ddp.MR) []SGE { return []SGE{sge(m, 0, size)} }, 0},
		{"beyond the region", func(m, _ *ddp.MR) []SGE { return []SGE{sge(m, 6, size)} }, size - 6},
		{"before the region", func(m, _ *ddp.MR) []SGE { return []SGE{sge(m, -1, size)} }, 0},
		{"behind the region", func(m, _ *ddp.MR) []SGE { return []SGE{sge(m, size, size)} }, 0},
		{"TO wrap", func(m, _ *ddp.MR) []SGE { return []SGE{{m.STag(), 1<<64 - 1, size}} }, 0},
		{"second piece", func(m, r *ddp.MR) []SGE { return []SGE{sge(m, 3, 5), sge(r, 0, 4)} }, 5},
		{"usable piece behind others", func(m, r *ddp.MR) []SGE {
			return []SGE{sge(m, 10, size), sge(m, 0, 4)}
		}, 6},
		{"empty pieces", func(m, r *ddp.MR) []SGE {
			return []SGE{{STag: 0xbad}, sge(m, 0, 5), sge(r, 0, 0), sge(m, 8, 2)}
		}, 7},
	} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, SRQ %v", c.name, shared), func(t *testing.T) {
				for n := range 2*size + 1 {
					checkWrittenBytes(t, c.list, c.fits, n, shared)
				}
			})
		}
	}
}

// checkWrittenBytes sends n bytes to a receive of list, of which only the first fits bytes may be written.
func checkWrittenBytes(t *testing.T, list func(good, readOnly *ddp.MR) []SGE, fits, n int,
	shared bool) {
	const size = 16
	h := newHost(t, 5)
	var srq *SRQ
	if shared {
		srq, _ = NewSRQ(SRQConfig{Table: h.table, PD: h.pd, Depth: 2, MaxSGE: 4})
	}
	b := h.open(func(c *Config) { c.SRQ = srq }, Params{Version: ddp.IETF})
	a := newHost(t, 1).open(nil, Params{Version: ddp.IETF})
	good := b.region(size, ddp.Attr{Access: ddp.LocalWrite, Base: 0x1000})
	readOnly := b.region(size, ddp.Attr{Base: 0x2000})
	before := bytes.Clone(b.held(readOnly))
	wr := RecvWR{ID: 1, SGL: list(good, readOnly)}
	total := 0
	for _, e := range wr.SGL {
		total += int(e.Len)
	}
	if n > total {
		return
	}
	post := b.qp.PostRecv
	if shared {
		post = srq.PostRecv
	}
	if err := post(&wr); err != nil {
		t.Fatal(err)
	}
	a.send(SendWR{ID: 2, Op: WRSend, Flags: Signaled, Inline: bytes.Repeat([]byte{0xee}, n)})
	a.send(SendWR{ID: 3, Op: WRSend})
	err := b.push(a, a.pull(1500))
	if !bytes.Equal(b.held(readOnly), before) {
		t.Fatal("memory without LocalWrite was written to")
	}
	if n <= fits {
		if err != nil {
			t.Errorf("%d bytes, of which %d fit: %v", n, fits, err)
		}
		wantCQEs(t, b, "1 recv SUCCESS")
		return
	}
	wantError(t, err, CauseOpUnspecified)
	a.push(b, b.pullAll(1500)...)
	wantCQEs(t, a, "2 send REM_OP_ERR", "3 send WR_FLUSH_ERR")
	wantCQEs(t, b, "1 recv LOC_PROT_ERR")
	if good.Holds() != 0 {
		t.Errorf("the region is held %d times after the end", good.Holds())
	}
}

// TestFlushOfUnusableReceive flushes a receive that no message reached: what is wrong with its memory does not matter.
func TestFlushOfUnusableReceive(t *testing.T) {
	_, b := twins(t, nil, Params{})
	b.recv(1, SGE{STag: 0xbad, Len: 4})
	b.qp.Abort()
	wantCQEs(t, b, "1 recv WR_FLUSH_ERR")
}
