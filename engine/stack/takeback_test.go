package stack

import (
	"bytes"
	"testing"

	"xwarp/ring"
	"xwarp/ring/gso"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// fickle is an Upper whose n-th Fill panics: it takes back the bytes to write, and then returns ones instead of zeros.
type fickle struct {
	endless
	e     *Endpoint
	n     int
	at    seq.Num // start of the bytes of the current Fill
	from  seq.Num // start of the bytes taken back
	says  byte
	fresh int // bytes that Next returns after the panic
}

func (f *fickle) Attach(e *Endpoint) { f.e = e }

func (f *fickle) Next(room int) (int, bool) {
	if f.says == 0 {
		return room, true
	}
	n := min(room, f.fresh)
	f.fresh -= n
	return n, f.fresh > 0
}

func (f *fickle) Fill(r seq.Range, dst []byte) (uint64, bool) {
	f.at = r.Start
	if f.n--; f.n == 0 {
		panic("gone")
	}
	for i := range dst[:r.Len()] {
		dst[i] = f.says
	}
	return 0, false
}

func (f *fickle) Recover(v any) bool {
	f.from = f.at
	f.e.TakeBack(f.at)
	f.says = 1
	return v == "gone"
}

// keeper is an Upper that keeps in-order data, and refuses the rest.
type keeper struct {
	endless
	got []byte
	end seq.Num
}

func (k *keeper) Start(_ *Endpoint, _, rcv seq.Num, _ tick.Time) { k.end = rcv }

func (k *keeper) Offer(at seq.Num, pieces [][]byte, n int, _ checksum.Known) int {
	if at != k.end {
		return 0
	}
	k.got = append(k.got, bytes.Join(pieces, nil)[:n]...)
	k.end = k.end.Add(n)
	return n
}

// TestTakeBack: the upper layer takes back bytes that it cannot write, at the start and in the middle of a window,
// alone and within a block. The peer must get the bytes written before and, immediately after them, the replacement,
// without a retransmission.
func TestTakeBack(t *testing.T) {
	for _, blocks := range []bool{false, true} {
		for _, n := range []int{1, 2, 7, 15} {
			f, k := &fickle{n: n, fresh: 5000}, &keeper{endless: endless{idle: true}}
			p := newPair(t, 0, false, tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20},
				[2]Upper{&endless{idle: true}, &endless{idle: true}})
			s := p.s[0]
			sock := s.port.(*ring.Socket)
			if blocks {
				below := plainPort{sock}
				s.port, s.blocks = gso.Wrap(below, &cutter{below, new(int)}), true
			}
			s.cfg.Defect = func(d *Defect) { t.Errorf("%d, blocks %v: %v", n, blocks, d) }
			if _, err := p.s[1].Listen(pairAddr(false, 1), 8, &ListenConfig{
				Conn:   tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20},
				Accept: func(*tcp.Tuple) (Upper, error) { return k, nil }}, p.now); err != nil {
				t.Fatal(err)
			}
			e, err := s.Connect(tcp.Tuple{Local: pairAddr(false, 0), Remote: pairAddr(false, 1),
				LocalPort: 1025, RemotePort: 8}, &tcp.Config{}, f, p.now)
			if err != nil {
				t.Fatal(err)
			}
			for range 100 {
				p.turn()
			}
			first, _ := e.conn.DataStart()
			before := f.from.Diff(first)
			if f.says == 0 || len(k.got) != before+5000 {
				t.Fatalf("%d, blocks %v: %d bytes arrived, want %d", n, blocks, len(k.got),
					before+5000)
			}
			if bytes.Count(k.got[:before], []byte{0}) != before ||
				bytes.Count(k.got[before:], []byte{1}) != 5000 {
				t.Errorf("%d, blocks %v: bytes of the wrong kind arrived", n, blocks)
			}
			i := e.conn.Info(p.now)
			l, armed := i.Loss.Counters, e.conn.Deadline() < p.now.Add(tick.Second)
			if l.Retransmitted+l.Timeouts+l.Probes > 0 || armed != (i.Unacked > 0) ||
				e.conn.Counters().BytesOut != uint64(len(k.got)) {
				t.Errorf("%d, blocks %v: %+v; %d bytes out, deadline %v", n, blocks, i,
					e.conn.Counters().BytesOut, e.conn.Deadline())
			}
			if err := s.Check(); err != nil {
				t.Errorf("%d, blocks %v: %v", n, blocks, err)
			}
			if c := sock.Census()[ring.OwnerTx]; c != 0 {
				t.Errorf("%d, blocks %v: %d chunks of slots have no owner", n, blocks, c)
			}
		}
	}
}
