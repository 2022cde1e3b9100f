package stack

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/ring"
	"xwarp/ring/gso"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/wire"
)

// plainPort clears the fields that may differ: PSH, which only the last segment of a block keeps, and the IPv4
// identification, with which the kernel numbers the segments of a block.
type plainPort struct{ ring.Port }

func (p plainPort) Send(b ring.TxBuf, n int) {
	at := ip.EthernetLen
	if b.Data[12] == byte(ip.TypeVLAN>>8) {
		at += ip.VLANTagLen
	}
	if h := b.Data[at:]; h[0]>>4 == 4 {
		clear(h[4:6])
		clear(h[10:12])
		binary.BigEndian.PutUint16(h[10:], wire.Finish(wire.Sum(h[:ip.Len4], 0)))
		at += ip.Len4
	} else {
		at += ip.Len6
	}
	t := b.Data[at:n]
	word := t[wire.FlagsAt : wire.FlagsAt+2]
	if !wire.Flags(word[1]).Has(wire.PSH) {
		p.Port.Send(b, n)
		return
	}
	word[1] &^= byte(wire.PSH)
	sum := uint32(^binary.BigEndian.Uint16(t[wire.ChecksumAt:])) + uint32(^uint16(wire.PSH)) // RFC 1624
	wire.PutChecksum(t, 0)
	binary.BigEndian.PutUint16(t[wire.ChecksumAt:], ^uint16(sum+sum>>16))
	p.Port.Send(b, n)
}

// cutter is the kernel's side: it segments blocks.
type cutter struct {
	port plainPort
	cut  *int
}

func (c *cutter) Send(b gso.Block, n int, s *gso.Shape) unix.Errno {
	for i := range s.Segments(n) {
		buf, ok := c.port.AllocTx()
		if !ok {
			return unix.ENOBUFS
		}
		c.port.Send(buf, len(s.Segment(buf.Data[:0], b.Frame()[:n], i)))
		*c.cut++
	}
	c.port.Flush()
	return 0
}

func (c *cutter) Close() error { return nil }

// TestBlocks: the same frames leave in the same order with and without blocks, apart from the fields that plainPort
// clears. The window is smaller than MaxFramesPerVisit segments, because a visit that ends with a block may send more
// frames than one without blocks.
func TestBlocks(t *testing.T) {
	cut := 0
	inRuns = 0
	sameTraces(t, 40_000, func(s *Stack) { s.port = plainPort{s.port} }, func(s *Stack) {
		below := plainPort{s.port}
		s.port, s.blocks = gso.Wrap(below, &cutter{below, &cut}), true
	})
	t.Logf("%d frames were cut from blocks, %d polled in runs", cut, inRuns)
	if cut < 1000 || inRuns < 500 {
		t.Error("these are too few")
	}
}

// nothingSender accepts blocks and drops them.
type nothingSender struct{}

func (nothingSender) Send(gso.Block, int, *gso.Shape) unix.Errno { return 0 }
func (nothingSender) Close() error                               { return nil }

// TestBlockAllocations: a block allocates no memory.
func TestBlockAllocations(t *testing.T) {
	p := newPair(t, 0, false, tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20},
		[2]Upper{&endless{idle: true}, &endless{idle: true}})
	s := p.s[0]
	port := gso.Wrap(&nothingPort{Port: s.port, buf: make([]byte, 2048)}, nothingSender{})
	s.port, s.blocks = port, true
	o := tcp.Out{Run: tcp.RunFirst, Payload: seq.Of(1, 1448)}
	o.Flags = wire.ACK
	if n := testing.AllocsPerRun(100, func() {
		b := &s.pending
		b.mem = s.port.Block()
		b.start(p.e, &o)
		for next := o; b.canGrow(); {
			next.Run = tcp.RunNext
			b.join(&next)
		}
		p.e.sendBlock()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if st := port.GSOStats(); st.Segments != 45*st.Blocks || st.Blocks < 100 {
		t.Errorf("%+v", st)
	}
}
