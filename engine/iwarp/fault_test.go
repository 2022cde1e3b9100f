package iwarp

import (
	"bytes"
	"math/rand/v2"
	"runtime/debug"
	"syscall"
	"testing"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/tcp/seq"
)

// faulty is a responder with a region of two pages. lose makes the second page inaccessible.
type faulty struct {
	*side
	mem []byte
}

const page = 4096

// newFaulty returns an initiator and a responder in full operation, and the initiator's memory. The responder has
// received two RDMA Reads: each asks for three quarters of a page, one on each side of the border between its pages.
func newFaulty(t *testing.T) (i *side, f *faulty, sink []byte) {
	debug.SetPanicOnFault(true) // for this goroutine
	cfg := startup.Config{IRD: 4, ORD: 4, RTRs: startup.RTRRead}
	mem, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(mem) })
	for n := range mem {
		mem[n] = byte(n) | 1
	}
	var mrs [2]*ddp.MR
	i, f = newSide(t, false, cfg), &faulty{side: newSide(t, true, cfg), mem: mem}
	f.tr = f
	for n, d := range []*side{i, f.side} {
		table := ddp.NewTable(rand.New(rand.NewPCG(1, 2)))
		pd, err := table.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			mem = bytes.Repeat([]byte{0xee}, len(mem))
		} else {
			mem = f.mem
		}
		mrs[n], err = table.Register(pd, mem, ddp.Attr{Access: ddp.LocalWrite | ddp.RemoteRead |
			ddp.RemoteWrite})
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			sink = mem
		}
		if err := d.qp.Init(rdmap.Config{Table: table, PD: pd, Stream: 1, SendDepth: 4,
			RecvDepth: 4, MaxSGE: 1, MaxIRD: 4, MaxORD: 4, Completer: d}); err != nil {
			t.Fatal(err)
		}
		d.cfg.Pack = true
	}
	meet(t, i, f.side, 1<<16, nil)
	for n, at := range []ddp.TO{page / 4, page} {
		if err := i.qp.PostSend(&rdmap.SendWR{ID: uint64(n), Op: rdmap.WRRead,
			SGL:        []rdmap.SGE{{STag: mrs[0].STag(), TO: at, Len: 3 * page / 4}},
			RemoteSTag: mrs[1].STag(), RemoteTO: at}); err != nil {
			t.Fatal(err)
		}
	}
	f.receive(t, i.transmit(), 1<<16)
	return i, f, sink
}

// lose makes the second page inaccessible.
func (f *faulty) lose(t *testing.T) {
	if err := syscall.Mprotect(f.mem[page:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
}

// fill lets f write its data in blocks of up to most segments of 1448 bytes. It returns the blocks that f could write.
func (f *faulty) fill(most int) (blocks [][]byte) {
	f.Settle(0)
	for {
		r := seq.Of(f.sndNxt, 0)
		for range most {
			n, _ := f.Next(1448)
			r.End = r.End.Add(n)
		}
		if r.Empty() {
			return blocks
		}
		v := mpa.Vector{Room: make([]byte, r.Len())}
		if f.Gather(r, &v) {
			blocks = append(blocks, v.Room)
		}
	}
}

// TestFaultInFill makes memory inaccessible in the middle of Read Responses that share segments. The peer must get the
// segments written before, then a Terminate in place of the unreadable bytes, and nothing else. Zeros in place of these
// bytes would be silent corruption. If all segments are written as one block, none of them is sent, and the peer gets
// the Terminate only.
func TestFaultInFill(t *testing.T) {
	for _, block := range []bool{false, true} {
		i, f, sink := newFaulty(t)
		f.lose(t)
		most := 1
		if block {
			most = 100
		}
		got := f.fill(most)
		for _, b := range got {
			i.receive(t, b, 1<<16)
		}
		term, ok := i.qp.PeerTerminate()
		if _, own := i.qp.OwnTerminate(); !ok || term.Cause != rdmap.CauseCatastrophic || own ||
			f.rst {
			t.Errorf("block %v: the peer sent %v (%v), own Terminate %v, RST %v; error %v", block,
				term, ok, own, f.rst, i.Err())
		}
		if n := len(got); block && n != 1 || !block && n < 3 {
			t.Errorf("block %v: %d segments", block, n)
		}
		placed := 0
		for n, o := range sink {
			if o != 0xee && (n >= page || o != byte(n)|1) {
				t.Fatalf("block %v: byte %d is %#x", block, n, o)
			} else if o != 0xee {
				placed++
			}
		}
		if block != (placed == 0) || !block && placed < page/2 {
			t.Errorf("block %v: %d bytes are there", block, placed)
		}
	}
}

// TestFaultInFillAgain makes memory inaccessible whose bytes were sent. They cannot be retransmitted, so the connection
// ends by RST.
func TestFaultInFillAgain(t *testing.T) {
	_, f, _ := newFaulty(t)
	at := f.sndNxt
	segments := f.fill(1)
	f.lose(t)
	for _, b := range segments {
		again := mpa.Vector{Room: make([]byte, len(b))}
		if f.Gather(seq.Of(at, len(b)), &again); f.rst {
			break
		}
		if !bytes.Equal(again.Room, b) {
			t.Fatal("sent again with other bytes")
		}
		at = at.Add(len(b))
	}
	if n, _ := f.Next(1448); !f.rst || n != 0 && f.sndNxt.Less(at) {
		t.Errorf("RST %v", f.rst)
	}
}
