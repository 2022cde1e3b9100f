// Package live transmits frames as XDP live frames: BPF_PROG_RUN with BPF_F_TEST_XDP_LIVE_FRAMES makes the kernel run a
// program on pages of a page pool, which fills each with the next frame of the writer and redirects it to the device.
// This needs no socket buffer, and a veth does not copy the frame again for the headroom of its XDP program. A few
// frames, for which a run costs too much, and all received frames use the Port below.
//
// A call is synchronous: when Flush returns, the frames were copied and their slots are free. It creates and frees a
// page pool, some 20 us, which pays off from MinRun frames on. A frame must fit in one page: see Room. The device must
// have ndo_xdp_xmit, which a veth has only while its peer has an XDP program or GRO (netdev's NDO_XMIT feature):
// otherwise frames are lost silently. While the device accepts none, the Port works like the Port below, with the size
// of its slots.
//
// The program must be attached to some interface, in any mode. Otherwise each call adds it to the kernel's dispatcher
// of XDP programs and removes it again, and waits for RCU twice: 44 ms were measured on a busy machine.
package live

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/ring"
)

const (
	// Room is the maximum frame length in bytes.
	Room = 3360
	// MinRun is the minimum number of frames for which a run saves time.
	MinRun = 16
	// BestRun is the number of frames beyond which longer runs are not faster. Measured on veth: 256 are 1.2 times as
	// fast as 64.
	BestRun = 256
	// tries limits the calls of one Flush: a signal ends a call early.
	tries = 64
)

// Slot holds one frame for the program: struct live_slot of bpf/live.h.
type Slot struct {
	length uint32 // of the frame; 0: none
	_      uint32
	frame  [Room]byte
}

// State is struct live_state of bpf/live.h.
type State struct {
	next, end uint32
	_         [14]uint32
}

// Runner makes a call: it makes the program take n slots from State.next on. Program implements it; tests have others.
type Runner interface {
	Run(n int) unix.Errno
}

// Port adds live frames to a ring.Port.
type Port struct {
	ring.Port
	run   Runner
	on    *atomic.Bool
	down  bool // live frames are off: the slots are those of the Port below
	slots []Slot
	first uint32 // number of slots[0] among those of all workers
	state *State
	n     int // slots allocated since all were last free
	head  int // earlier slots have been sent
	open  int // slots of either kind that the writer owns
	stats ring.LiveStats
}

var _ ring.Port = (*Port)(nil)

// Memory is the memory shared by a Port and the program.
type Memory struct {
	Slots []Slot
	First uint32 // number of Slots[0] for the program
	State *State
}

// MemoryOf converts the bytes of the program's maps, which have at least one slot and one state for a writer. first is
// the number of the first slot.
func MemoryOf(slots []byte, first uint32, state []byte) Memory {
	return Memory{
		Slots: unsafe.Slice((*Slot)(unsafe.Pointer(&slots[0])),
			len(slots)/int(unsafe.Sizeof(Slot{}))),
		First: first, State: (*State)(unsafe.Pointer(&state[0])),
	}
}

// Wrap returns p with live frames while on is set, which means that the device accepts them. The returned Port owns the
// memory and p.
func Wrap(p ring.Port, r Runner, m Memory, on *atomic.Bool) *Port {
	m.State.end = m.First + uint32(len(m.Slots))
	return &Port{Port: p, run: r, on: on, down: !on.Load(), slots: m.Slots, first: m.First,
		state: m.State}
}

// Info is Port.Info with the size of the slots that AllocTx returns, which changes only in Flush.
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

// Flush is Port.Flush. Frames are sent in the order in which their slots were allocated.
func (p *Port) Flush() ring.State {
	if p.n-p.head >= MinRun && p.on.Load() && p.Port.Flush() == ring.StateOK { // the frames below are older
		p.transmit()
	}
	st := p.copyDown()
	if p.head == p.n && p.open == 0 {
		p.head, p.n = 0, 0
		p.down = !p.on.Load()
	}
	return st
}

// transmit makes runs take the slots from head on.
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
