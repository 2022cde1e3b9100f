// Package stack is the engine of one worker without its thread: frames in, frames out, connections and
// their timers. It has no goroutine, no lock and no clock; whoever owns a Stack calls it with the time.
// The same code runs on AF_XDP, and in the simulator on a fake kernel.
package stack

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"xwarp/engine/budget"
	"xwarp/engine/fair"
	"xwarp/engine/tally"
	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// Resolver finds the link-layer address of the next hop to dst. The answer, now or later, and whatever
// changes until Forget, is a call of Stack.SetHop on the thread that owns the Stack. Neither method blocks.
type Resolver interface {
	Request(dst ip.Addr)
	Forget(dst ip.Addr)
}

// Steering tells the host's packet filter which flows are the engine's. Both may be called for each
// connection; an error makes the connection fail.
type Steering interface {
	AddFlow(t *tcp.Tuple) error
	RemoveFlow(t *tcp.Tuple)
}

// Config is the configuration of a Stack.
type Config struct {
	Port     ring.Port
	MAC      [6]byte
	MTU      int    // of the link, bytes of an IP packet
	Run      int    // frames that the port takes best at a time; 0: no more than MaxFramesPerRound
	VLAN     uint16 // identifier of the network that frames are of, 0 for those without a tag
	Resolver Resolver
	Steering Steering
	IPsec    IPsec         // nil: all connections are in the clear
	Plain    PlainObserver // nil: none
	Peers    *budget.Peers // of all stacks of a device; nil: the stack's own, with defaults
	Secret   [16]byte      // random: keys ISNs, timestamp offsets and SYN cookies
	Seed     uint64        // random: the challenge ACK budget
	// Stray, when set, is shown what belongs to no connection here, for it may be another worker's; it returns true
	// when it took it. With receive-side scaling a frame comes on the queue that the device chooses.
	Stray func(x *Stray) bool
	// TrustPartialChecksum accepts a TCP checksum that is only the pseudo header's sum: what a kernel on the
	// other end of a veth sends with transmit checksum offload on. Such a frame was never on a wire.
	TrustPartialChecksum bool
	// Defect, when set, learns of each panic that was contained. Without it a panic goes on, as tests want it.
	Defect func(d *Defect)
}

// Stack owns a Port and every connection on it.
type Stack struct {
	cfg        Config
	port       ring.Port
	budget     tcp.Budget
	conns      map[tcp.Tuple]*Endpoint
	listeners  map[listenKey]*Listener
	listening  []*Listener
	hops       map[ip.Addr]*hop
	idle       idleHops
	held       int // segments that wait for a hop
	local      local
	inbound    map[uint32]inbound // by SPI
	outbound   map[quotedSA]*Flow
	via        *Flow     // by which the segment that is being processed arrived; nil: in the clear
	now        tick.Time // of the last round of transmission
	begun      uint64    // connections so far
	timers     timers
	flush      flush
	room       int                   // bytes of the longest frame that the port takes
	starved    bool                  // the last round of transmission ended without a slot
	starving   int                   // such rounds in a row, in which nothing was sent
	fetched    int                   // frames in batch that Receive has not seen
	released   bool                  // chunks were released since the last Refill
	queued     bool                  // replies were given to the port since the last Flush
	dirty      fair.Queue[*Endpoint] // want to transmit
	common     Class                 // of those that SetClass was not called for
	stats      Stats
	last       *Endpoint   // found last: segments come in runs
	forgetting []*Endpoint // ended, to be forgotten after the callbacks
	totals     tally.Sum[TCPCounters]
	listened   tcp.ListenCounters // by listeners that were closed

	current atomic.Pointer[Endpoint] // the connection that the worker serves; nil: none
	at      int                      // the next frame of batch
	holding int                      // the frame of batch that is being received, and 1; 0: none
	slot    uint32                   // that is being filled, if filling
	filling bool
	round   round // of transmission

	batch   [MaxBatch]ring.Packet
	pieces  [ring.MaxFrags + 1][]byte
	seg     tcp.Segment
	out     tcp.Out
	blocks  bool  // the port takes them
	block   block // of the burst that is being sent
	eth     ip.Ethernet
	ip      ip.Header
	scratch []byte
	shown   []byte    // see showReceived
	tuple   tcp.Tuple // of the segment being processed
	strayed Stray
	frags   ip.Reassembler
}

// ErrConfig is wrapped by New's errors.
var ErrConfig = errors.New("stack configuration")

// New returns a Stack on cfg.Port, which it owns from then on.
func New(cfg Config) (*Stack, error) {
	switch {
	case cfg.Port == nil:
		return nil, fmt.Errorf("%w: no port", ErrConfig)
	case cfg.MTU < MinMTU || cfg.MTU > MaxMTU:
		return nil, fmt.Errorf("%w: MTU %d, want %d to %d", ErrConfig, cfg.MTU, MinMTU, MaxMTU)
	case cfg.Resolver == nil:
		return nil, fmt.Errorf("%w: no resolver", ErrConfig)
	}
	s := &Stack{
		cfg: cfg, port: cfg.Port,
		conns:     map[tcp.Tuple]*Endpoint{},
		listeners: map[listenKey]*Listener{},
		hops:      map[ip.Addr]*hop{},
	}
	if s.cfg.Peers == nil {
		s.cfg.Peers = budget.NewPeers(nil)
	}
	info := cfg.Port.Info()
	s.blocks, s.room = info.Blocks, info.TxRoom
	s.block.slots = make([]ring.TxBuf, 0, MinBlockShort)
	s.flush.at = tick.Never
	s.budget.Init(ChallengesPerSecond, cfg.Seed)
	s.frags.Init(ip.MaxDatagrams)
	return s, nil
}

// Step receives one batch, runs the timers that are due and transmits the segments that are ready. It reports whether
// anything happened; when not, nothing will before the port is readable or Deadline comes.
func (s *Stack) Step(now tick.Time) bool {
	worked := s.Receive(now)
	return s.Transmit(now) || worked
}

// Fetch takes a batch of frames from the port for Receive and reports whether there is one. It needs no time, so that a
// caller that spins has to read its clock only when something came.
func (s *Stack) Fetch() bool {
	if s.fetched == 0 {
		s.fetched = s.port.Recv(s.batch[:])
	}
	return s.fetched > 0
}

// Receive is the first half of Step. Between the halves, consumers may answer the received data, so that the answer and
// the acknowledgement leave together.
func (s *Stack) Receive(now tick.Time) bool {
	if !s.Fetch() {
		return false
	}
	for s.at = 0; s.at < s.fetched; {
		s.receive(now) // once, or once more after each panic
	}
	s.fetched, s.released = 0, true
	return true
}

// ahead is how many bytes of the next frame, of its first chunk, are fetched while one is worked on. Another processor
// has just written them, and MPA reads the markers before it copies the payload.
const ahead = 4096

// receive takes the frames of the batch that are left.
func (s *Stack) receive(now tick.Time) {
	defer s.contain(now)
	for s.at < s.fetched {
		p := &s.batch[s.at]
		s.at++
		s.holding = s.at
		if s.at < s.fetched {
			next := s.batch[s.at].Frag(0)
			checksum.Prefetch(next[:min(len(next), ahead)])
		}
		s.input(p, now)
		s.holding = 0
		s.port.Release(p)
	}
}

// Quiet reports whether Transmit has nothing to send and nothing to tidy. Timers, and what the device does by
// itself, still want it now and then: by Deadline at the latest.
func (s *Stack) Quiet() bool {
	return s.dirty.Len() == 0 && s.fetched == 0 && !s.queued && !s.released &&
		len(s.forgetting) == 0 && s.flush.at == tick.Never
}

// Transmit is the second half of Step. What nobody waits for comes after the frames have left.
func (s *Stack) Transmit(now tick.Time) bool {
	s.now = now
	worked := s.expire(now)
	worked = s.transmit(now) || worked
	if s.released {
		s.released = false
		s.port.Refill()
	}
	s.port.Reap()
	return worked
}

// Deadline returns when Step must be called even if no frame arrives.
func (s *Stack) Deadline() tick.Time {
	d := min(s.timers.next(), s.flush.at, s.idle.deadline())
	for _, l := range s.listening {
		d = min(d, l.deadline())
	}
	return d
}

// Blocked reports whether Step has more to do at once: frames wait to be received, for room in the transmit ring, or
// for their turn. While the kernel takes nothing, as on a link that is down, frames to be sent wait for Deadline.
func (s *Stack) Blocked() bool {
	return s.fetched > 0 || s.dirty.Len() > 0 && !(s.starved && s.flush.at != tick.Never)
}

func (s *Stack) expire(now tick.Time) bool {
	worked := false
	for s.timers.next() <= now {
		worked = s.expireSome(now) || worked
	}
	due := s.idle.deadline() <= now
	for _, l := range s.listening {
		due = due || l.deadline() <= now
	}
	if due {
		worked = s.expireOthers(now) || worked
	}
	return worked
}

// expireOthers runs the timers that are of no connection.
func (s *Stack) expireOthers(now tick.Time) (worked bool) {
	s.setCurrent(nil)
	defer s.contain(now)
	for _, l := range s.listening {
		worked = l.expire(now) || worked
	}
	s.expireHops(now)
	return worked
}

// expireSome runs the timers that are due, up to the first panic.
func (s *Stack) expireSome(now tick.Time) (worked bool) {
	defer s.contain(now)
	for e := s.timers.pop(now); e != nil; e = s.timers.pop(now) {
		s.setCurrent(e)
		if at := e.deadline(); at > now {
			s.timers.set(e, at)
			continue
		}
		worked = true
		e.expire(now)
	}
	return worked
}

// Class is the connections of one owner: owners take turns at transmitting, however many connections each has.
type Class = fair.Class[*Endpoint]

// round is one round of transmission.
type round struct {
	visits             int         // that may still be made: as many as connections were waiting
	visited            []*Endpoint // in their order; visited[:tidied] are done with
	tidied             int
	sent               int
	maxFrames, maxEach int // frames, of all connections and of one
}

// startRound sets the bounds of a round for the connections that wait: where the port wants long runs, a connection
// that is alone sends one in a visit.
func (r *round) startRound(waiting, run int) {
	*r = round{visits: waiting, visited: r.visited[:0], maxFrames: max(MaxFramesPerRound, run),
		maxEach: MaxFramesPerVisit}
	if waiting > 0 {
		r.maxEach = max(r.maxEach, run/waiting)
	}
}

// transmit visits the endpoints that want to, each for a bounded number of frames and all together for
// another, and kicks the port.
func (s *Stack) transmit(now tick.Time) bool {
	r := &s.round
	r.startRound(s.dirty.Len(), s.cfg.Run)
	s.starved = false
	for !s.visit(now) { // until it comes to its end without a panic
	}
	s.queued = false
	s.flush.note(s.port.Flush(), now)
	s.followRoom(now)
	for !s.tidy(now) {
	}
	clear(r.visited)
	sent := r.sent
	if !s.starved || sent > 0 {
		s.starving = 0
	} else if s.starving++; s.starving >= StarvedRounds && s.flush.at == tick.Never {
		// A NIC driver that polls does not report frames that it leaves in the transmit ring.
		s.flush = flush{now.Add(StarvedRetry), StarvedRetry}
	}
	for i, e := range s.forgetting {
		s.forget(e, now)
		s.forgetting[i] = nil
	}
	s.forgetting = s.forgetting[:0]
	return sent > 0
}

// visit lets connections send, until all had their turn or enough has left, and reports whether it came to that.
func (s *Stack) visit(now tick.Time) bool {
	defer s.contain(now)
	r := &s.round
	for r.visits > 0 && r.sent < r.maxFrames {
		r.visits--
		e, ok := s.dirty.Next()
		if !ok {
			break
		}
		r.visited = append(r.visited, e)
		e.dirty = false
		if !e.ended {
			s.setCurrent(e)
			r.sent += e.output(now)
		}
	}
	return true
}

// tidy does the work of those connections that can wait until the frames have left, and reports whether it is complete.
func (s *Stack) tidy(now tick.Time) bool {
	defer s.contain(now)
	r := &s.round
	for r.tidied < len(r.visited) {
		e := r.visited[r.tidied]
		r.tidied++
		s.setCurrent(e)
		e.tidy(now)
	}
	return true
}

// flush is when frames that the kernel did not take are to be shown to it again.
type flush struct {
	at    tick.Time // Never: everything left
	pause tick.Duration
}

func (f *flush) note(st ring.State, now tick.Time) {
	switch {
	case st == ring.StateOK:
		*f = flush{at: tick.Never}
	case f.at == tick.Never:
		*f = flush{now.Add(FlushRetry), FlushRetry}
	case f.at <= now:
		f.pause = min(2*f.pause, FlushRetryMax)
		f.at = now.Add(f.pause)
	}
}

// mark puts e in line for transmission.
func (s *Stack) mark(e *Endpoint) {
	if !e.dirty && !e.ended {
		e.dirty = true
		s.dirty.Push(e.class, e)
	}
}

// Endpoints calls f for each connection, in no order.
func (s *Stack) Endpoints(f func(*Endpoint)) {
	for _, e := range s.conns {
		f(e)
	}
}

// byAge returns the connections that want holds for in the order of their beginning, so that the same
// calls give the same frames.
func (s *Stack) byAge(want func(e *Endpoint) bool) []*Endpoint {
	var v []*Endpoint
	for _, e := range s.conns {
		if want(e) {
			v = append(v, e)
		}
	}
	slices.SortFunc(v, func(a, b *Endpoint) int { return cmp.Compare(a.serial, b.serial) })
	return v
}

// Len returns the number of connections.
func (s *Stack) Len() int { return len(s.conns) }

// Audit checks that every frame of the port has exactly one owner.
func (s *Stack) Audit() error { return s.port.Audit() }

// Close ends every connection with RST and closes the port.
func (s *Stack) Close(now tick.Time) error {
	for _, e := range s.byAge(func(*Endpoint) bool { return true }) {
		e.Abort(now)
	}
	for range closeRounds {
		if !s.transmit(now) && !s.Blocked() {
			break
		}
		s.port.Reap()
	}
	for _, e := range s.conns {
		s.forget(e, now)
	}
	for _, l := range s.listening {
		l.close(now)
	}
	return s.port.Close()
}
