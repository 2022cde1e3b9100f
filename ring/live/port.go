// Package live transmits frames as XDP live frames: BPF_PROG_RUN with BPF_F_TEST_XDP_LIVE_FRAMES has the
// kernel run a program over pages of a page pool, which fills each with the next frame of the writer and
// redirects it to the device. No socket buffer is made, and a veth does not copy the frame once more for the
// headroom that its XDP program needs. A few frames, for which a run costs too much, leave through the
// Port below. All frames arrive there.
//
// A call is synchronous: when Flush returns, the frames were copied and their slots are free. It makes and
// frees a page pool, some 20 us; from MinRun frames on it pays. A frame lies within one page: see Room. The
// device must have ndo_xdp_xmit, which a veth has only while its peer has an XDP program or GRO (netdev's
// NDO_XMIT feature): otherwise frames are lost silently. While the device takes none, the Port is the Port below, with
// the room of its slots.
//
// The program must be attached somewhere meanwhile, to any interface in any mode. Else each call takes it into the
// kernel's dispatcher of XDP programs and out again, and waits for RCU twice: 44 ms were measured on a busy machine.
package live

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/ring"
)

const (
	// Room is the length of the longest frame in bytes.
	Room = 3360
	// MinRun is the smallest number of frames for which a run saves time.
	MinRun = 16
	// BestRun is the number of frames beyond which longer runs are not faster. Measured on veth: 256 are 1.2 times as
	// fast as 64.
	BestRun = 256
	// tries bounds the calls of one Flush: a signal ends a call early.
	tries = 64
)

// Slot holds one frame for the program: struct live_slot of bpf/live.h.
type Slot struct {
	length uint32 // of the frame; 0: there is none
	_      uint32
	frame  [Room]byte
}

// State is struct live_state of bpf/live.h.
type State struct {
	next, end uint32
	_         [14]uint32
}

// Runner makes a call: it has the program take n slots from State.next on. Program is one; tests have others.
type Runner interface {
	Run(n int) unix.Errno
}

// Port adds live frames to a ring.Port.
type Port struct {
	ring.Port
	run   Runner
	on    *atomic.Bool
	down  bool // live frames are off: slots are those of the Port below
	slots []Slot
	first uint32 // number of slots[0] among those of all workers
	state *State
	n     int // slots that were allocated since the last time that all were free
	head  int // slots before it have left
	open  int // slots that the writer has, of either kind
	stats ring.LiveStats
}

var _ ring.Port = (*Port)(nil)

// Memory is the memory that a Port and the program share.
type Memory struct {
	Slots []Slot
	First uint32 // number of Slots[0] for the program
	State *State
}

// MemoryOf returns the bytes of the program's maps as what they hold. Both are as long as their maps have them for one
// writer, which is at least one slot and one state; first is the number of the first slot.
func MemoryOf(slots []byte, first uint32, state []byte) Memory {
	return Memory{
		Slots: unsafe.Slice((*Slot)(unsafe.Pointer(&slots[0])),
			len(slots)/int(unsafe.Sizeof(Slot{}))),
		First: first, State: (*State)(unsafe.Pointer(&state[0])),
	}
}

// Wrap returns p with live frames, while on is set: the device takes them. The memory is the Port's from then
// on, as p is.
func Wrap(p ring.Port, r Runner, m Memory, on *atomic.Bool) *Port {
	m.State.end = m.First + uint32(len(m.Slots))
	return &Port{Port: p, run: r, on: on, down: !on.Load(), slots: m.Slots, first: m.First,
		state: m.State}
}

// Info is Port.Info with the room of the slots that AllocTx returns, which changes in Flush only.
func (p *Port) Info() ring.Info {
	i := p.Port.Info()
	if !p.down {
		i.TxRoom = Room
	}
	return i
}

// Live is Port.Live.
func (p *Port) Live() *ring.LiveStats { return new(p.stats) }

// AllocTx is Port.AllocTx.
func (p *Port) AllocTx() (ring.TxBuf, bool) {
	if p.down {
		b, ok := p.Port.AllocTx()
		if ok {
			p.open++
		}
		return b, ok
	}
	if p.n == len(p.slots) {
		return ring.TxBuf{}, false
	}
	s := &p.slots[p.n]
	s.length = 0
	p.n++
	p.open++
	return ring.NewTxBuf(s.frame[:], uint32(p.n-1)), true
}

// Send is Port.Send.
func (p *Port) Send(b ring.TxBuf, n int) {
	p.open--
	if p.down {
		p.stats.Single++
		p.Port.Send(b, n)
		return
	}
	if n > 0 && n <= Room {
		p.slots[b.Slot()].length = uint32(n)
	} else {
		p.stats.Invalid++
	}
}

// CancelTx is Port.CancelTx.
func (p *Port) CancelTx(b ring.TxBuf) {
	p.open--
	if p.down {
		p.Port.CancelTx(b)
		return
	}
	if int(b.Slot()) == p.n-1 && p.n > p.head {
		p.n--
	}
}

// Flush is Port.Flush. Frames leave in the order in which their slots were allocated.
func (p *Port) Flush() ring.State {
	if p.n-p.head >= MinRun && p.on.Load() && p.Port.Flush() == ring.StateOK { // what is below was written before
		p.transmit()
	}
	st := p.copyDown()
	if p.head == p.n && p.open == 0 {
		p.head, p.n = 0, 0
		p.down = !p.on.Load()
	}
	return st
}

// transmit has runs take the slots from head on.
func (p *Port) transmit() {
	for range tries {
		n := p.n - p.head
		if n == 0 {
			return
		}
		atomic.StoreUint32(&p.state.next, p.first+uint32(p.head))
		errno := p.run.Run(n)
		done := int(atomic.LoadUint32(&p.state.next)-p.first) - p.head
		if done > 0 {
			p.stats.Runs++
			p.countSent(done)
		}
		if errno != 0 && errno != unix.EINTR || done <= 0 && errno == 0 {
			p.stats.Failed++
			return
		}
	}
}

// countSent counts the next n slots as sent.
func (p *Port) countSent(n int) {
	for i := range n {
		if p.slots[p.head+i].length > 0 {
			p.stats.Frames++
		}
	}
	p.head += n
}

// copyDown passes the frames from head on to the Port below. Frames for which it has no slot wait.
func (p *Port) copyDown() ring.State {
	for ; p.head < p.n; p.head++ {
		s := &p.slots[p.head]
		if s.length == 0 {
			continue
		}
		b, ok := p.Port.AllocTx()
		if !ok {
			p.Port.Flush()
			return ring.StateAgain
		}
		p.Port.Send(b, copy(b.Data, s.frame[:s.length]))
		p.stats.Single++
	}
	return p.Port.Flush()
}

// Stats is Port.Stats including the frames of runs.
func (p *Port) Stats() ring.Stats {
	s := p.Port.Stats()
	s.TxPackets += p.stats.Frames
	s.TxCompleted += p.stats.Frames
	s.TxInvalid += p.stats.Invalid
	return s
}
