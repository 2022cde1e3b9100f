package stack

import (
	"errors"
	"testing"

	"xwarp/ring"
	"xwarp/ring/gso"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// flawed is an Upper that panics at the n-th and each later call of one of its methods.
type flawed struct {
	endless
	method string
	n      int
	due    tick.Time // result of Deadline; 0: never
	lost   error     // argument of Abandon
}

func (f *flawed) at(method string) {
	if method == f.method {
		if f.n--; f.n <= 0 {
			panic("made to fail in " + method)
		}
	}
}

func (f *flawed) Next(room int) (int, bool) { f.at("Next"); return f.endless.Next(room) }
func (f *flawed) Acked(to seq.Num)          { f.at("Acked"); f.endless.Acked(to) }
func (f *flawed) Advance(to seq.Num)        { f.at("Advance"); f.endless.Advance(to) }
func (f *flawed) Space() int                { f.at("Space"); return f.endless.Space() }
func (f *flawed) Settle(now tick.Time)      { f.at("Settle"); f.endless.Settle(now) }
func (f *flawed) Expire(now tick.Time)      { f.at("Expire"); f.endless.Expire(now) }

func (f *flawed) Deadline() tick.Time {
	f.at("Deadline")
	if f.due > 0 {
		return f.due
	}
	return tick.Never
}

func (f *flawed) Event(e tcp.Events, n tick.Time) { f.at("Event"); f.endless.Event(e, n) }
func (f *flawed) Abandon(why error)               { f.lost = why }

func (f *flawed) Fill(r seq.Range, dst []byte) (uint64, bool) {
	f.at("Fill")
	return f.endless.Fill(r, dst)
}

func (f *flawed) Offer(at seq.Num, pieces [][]byte, n int, _ checksum.Known) int {
	f.at("Offer")
	return f.endless.Offer(at, pieces, n, checksum.Known{})
}

func (f *flawed) Start(e *Endpoint, snd, rcv seq.Num, now tick.Time) {
	f.at("Start")
	f.endless.Start(e, snd, rcv, now)
}

// TestDefect: the upper layer of one connection panics in each of its methods, at the start and later. That connection
// ends with RST, the one beside it continues, the tables are consistent, and every frame has one owner.
func TestDefect(t *testing.T) {
	for _, blocks := range []bool{false, true} {
		for _, method := range []string{"Next", "Fill", "Acked", "Offer", "Advance", "Space",
			"Settle", "Event", "Expire", "Deadline", "Start"} {
			for _, n := range []int{1, 30} {
				if n > 1 && (method == "Start" || method == "Event" || method == "Expire") {
					continue // happens once, or not at all
				}
				p := newPair(t, 0, false, tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20},
					[2]Upper{&endless{}, &endless{}})
				sock := p.s[0].port.(*ring.Socket)
				if s := p.s[0]; blocks {
					below := plainPort{sock}
					s.port, s.blocks = gso.Wrap(below, &cutter{below, new(int)}), true
				}
				var defects []*Defect
				for _, s := range p.s {
					s.cfg.Defect = func(d *Defect) { defects = append(defects, d) }
				}
				f := &flawed{method: method, n: n}
				tuple := tcp.Tuple{Local: pairAddr(false, 0), Remote: pairAddr(false, 1),
					LocalPort: 1025, RemotePort: 7}
				e, err := p.s[0].Connect(tuple, &tcp.Config{RcvSpace: 1 << 20,
					RcvSpaceMax: 1 << 20}, f, p.now)
				if err != nil {
					t.Fatal(err)
				}
				before := p.e.conn.SndUna()
				for range 400 {
					p.turn()
					if method == "Event" && e.started {
						e.Abort(p.now)
					}
					if method == "Expire" && e.started && !e.abandoned {
						f.due = p.now
						p.s[0].mark(e)
					}
				}
				name := method
				if len(defects) != 1 || defects[0].Tuple != tuple || len(defects[0].Trace) == 0 ||
					!errors.Is(f.lost, defects[0]) {
					t.Errorf("%s: %d defects, the error of the layer above is %v", name,
						len(defects), f.lost)
				}
				if p.s[0].Len() != 1 || p.s[1].Len() != 1 || p.s[0].Stats().Panics != 1 {
					t.Errorf(
						"%s: %d connections here, %d there, want the other one only; %d panics",
						name, p.s[0].Len(), p.s[1].Len(), p.s[0].Stats().Panics)
				}
				if p.e.conn.SndUna() == before || p.e.conn.State() != tcp.Established {
					t.Errorf("%s: the other connection is stuck, %v", name, p.e.conn.State())
				}
				for i, s := range p.s {
					if err := s.Check(); err != nil {
						t.Errorf("%s: stack %d: %v", name, i, err)
					}
				}
				// The frames after the panic in the same batch are received too.
				if got, want := p.s[0].Stats().RxFrames, sock.Stats().RxPackets; got != want {
					t.Errorf("%s: %d of %d frames were received", name, got, want)
				}
				if n := sock.Census()[ring.OwnerTx]; n != 0 {
					t.Errorf("%s: %d chunks of slots have no owner", name, n)
				}
			}
		}
	}
}
