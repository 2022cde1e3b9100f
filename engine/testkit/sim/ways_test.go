package sim

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"xwarp/ring"
	"xwarp/ring/live"
)

// waysSeen counts, over all scenarios, frames not sent one by one, and frames received on second queues.
var waysSeen seen

type seen struct {
	segments                   atomic.Uint64 // of blocks
	runs, single, failed, lost atomic.Uint64 // of live frames
	relayed                    atomic.Uint64
}

type waysTried struct{ Segments, Runs, Single, Failed, Lost, Relayed uint64 }

func (s *seen) read() waysTried {
	return waysTried{s.segments.Load(), s.runs.Load(), s.single.Load(), s.failed.Load(),
		s.lost.Load(), s.relayed.Load()}
}

// way is a transmit mode of a host: blocks (segmentation offload) or live frames.
type way struct {
	wide  *wide
	host  int
	rnd   *rand.Rand
	slots int // of live frames; 0: blocks

	on    atomic.Bool // the driver reports that it accepts live frames
	deaf  bool        // it does not accept them
	port  *live.Port  // since the host booted
	mem   []byte      // the slots, as the program of bpf/live.h reads them
	state []byte
	taken uint64 // frames that runs took
}

// The program's side of the memory: struct live_slot and struct live_state of bpf/live.h.
const (
	liveSlot  = 8 + live.Room
	liveFrame = 8 // bytes before the frame; the first four are its length
	liveState = 64
	liveFirst = 4096 // the number of our first slot: lower slots belong to other workers
)

// transmit draws the transmit mode of a host, and sets it in cfg.
func (w *wide) transmit(cfg *HostConfig, i int) {
	drawn := w.rnd
	defer func() { w.rnd = drawn }()
	w.draws("transmission of " + cfg.Name)
	k := w.rnd.IntN(4)
	y := &way{wide: w, host: i, rnd: rand.New(rand.NewPCG(w.seed, uint64(i)+400)),
		slots: pick(w.rnd, 20, 64, 512)}
	y.on.Store(true)
	switch {
	case k == 0 && !w.off("blocks of "+cfg.Name):
		y.slots = 0
		w.blocks(cfg, y.rnd, &waysSeen.segments)
	case k == 1 && !w.off("live frames of "+cfg.Name):
		cfg.Wrap, cfg.Run = y.live, live.BestRun
		cfg.Kernel.Poller = false                        // devices with live frames have no zero-copy
		cfg.Latency = pick(w.rnd, cfg.Latency, ms, 5*ms) // a busy worker sends more at a time
		y.gap()
	default:
		y = nil
	}
	w.ways = append(w.ways, y)
	w.draws("second queue of " + cfg.Name)
	cfg.SecondQueue = w.one(5) && !w.off("second queue of "+cfg.Name)
}

// liveFrames reports whether a host sends live frames.
func (w *wide) liveFrames() bool {
	return slices.ContainsFunc(w.ways, func(y *way) bool { return y != nil && y.slots > 0 })
}

func (y *way) live(p ring.Port) (ring.Port, error) {
	y.mem, y.state = make([]byte, y.slots*liveSlot), make([]byte, liveState)
	y.taken = 0
	y.port = live.Wrap(p, y, live.MemoryOf(y.mem, liveFirst, y.state), &y.on)
	return y.port, nil
}

// gap draws a period in which the peer has no program attached: the driver drops the frames of runs, and some time
// later reports that it accepts none.
func (y *way) gap() {
	if !y.wide.one(4) || y.wide.off("live frames refused") {
		return
	}
	if y.wide.mtu > live.Room { // segments become longer, and shorter again
		y.wide.cuts, y.wide.judge.cuts = true, true
	}
	at, silent := y.wide.sometime(), pick(y.wide.rnd, 0, ms, 200*ms)
	after := y.wide.sometime()
	y.wide.say("live frames of host %d are lost at %v, %v before it is known, for %v", y.host, at,
		silent, after)
	y.wide.world.After(at, func() { y.deaf = true })
	y.wide.world.After(at+silent, func() { y.on.Store(false) })
	y.wide.world.After(at+silent+after, func() { y.deaf = false; y.on.Store(true) })
}

// Run implements live.Runner as the kernel and the program do: the frames of the next n slots leave at once. The memory
// after state.next belongs to the writer again, which must not rely on its old content.
func (y *way) Run(n int) unix.Errno {
	errno := unix.Errno(0)
	switch y.rnd.IntN(20) {
	case 0:
		n, errno = y.rnd.IntN(n+1), unix.EINTR
	case 1:
		n, errno = 0, unix.ENOMEM
		waysSeen.failed.Add(1)
	}
	h := y.wide.hosts[y.host]
	waysSeen.runs.Add(1)
	for range n {
		next, end := binary.NativeEndian.Uint32(y.state), binary.NativeEndian.Uint32(y.state[4:])
		if next >= end || next < liveFirst {
			y.wide.world.Fail(fmt.Errorf("a run at slot %d, behind the last one, %d", next, end-1))
			return errno
		}
		binary.NativeEndian.PutUint32(y.state, next+1)
		slot := y.mem[int(next-liveFirst)*liveSlot:][:liveSlot]
		length := binary.NativeEndian.Uint32(slot)
		if length == 0 {
			continue
		}
		frame := slot[liveFrame:][:length]
		y.taken++
		if y.deaf {
			waysSeen.lost.Add(1)
		} else {
			h.Emit(frame)
		}
		clear(frame)
	}
	return errno
}

// tidy checks, after the end, that the frames of runs were counted and that each slot is free.
func (y *way) tidy(h *Host) error {
	if y == nil || y.port == nil {
		return nil
	}
	waysSeen.single.Add(y.port.Live().Single)
	if s := y.port.Live(); s.Frames != y.taken || s.Invalid > 0 {
		return fmt.Errorf("the simulator's account: %d live frames left, counted are %+v", y.taken,
			*s)
	}
	y.on.Store(true) // otherwise the slots are those of the port below
	h.kernel.SetState(ring.StateOK)
	for range 1000 { // frames that wait below for a slot
		h.forwardOutput()
		y.port.Reap()
		if y.port.Flush() == ring.StateOK {
			break
		}
	}
	var all []ring.TxBuf
	for b, ok := y.port.AllocTx(); ok; b, ok = y.port.AllocTx() {
		all = append(all, b)
	}
	if len(all) != y.slots {
		return fmt.Errorf("the simulator's account: %d of %d slots of live frames are free after "+
			"the end", len(all), y.slots)
	}
	for i := range all {
		y.port.CancelTx(all[len(all)-1-i])
	}
	return nil
}
