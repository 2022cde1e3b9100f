// Package stack is the engine of one worker without its thread: frames in, frames out, connections and their timers. It
// has no goroutine, lock or clock; the owner of a Stack passes the time. The same code runs on AF_XDP and, in the
// simulator, on a fake kernel.
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

// Resolver finds the MAC address of the next hop to dst. It answers a Request, now or later, by calling Stack.SetHop on
// the thread that owns the Stack, and again after each change until Forget. The methods do not block.
type Resolver interface {
	Request(dst ip.Addr)
	Forget(dst ip.Addr)
}

// Steering tells the host's packet filter which flows belong to the engine. Both methods may be called for each
// connection. An error makes the connection fail.
type Steering interface {
	AddFlow(t *tcp.Tuple) error
	RemoveFlow(t *tcp.Tuple)
}

// Config configures a Stack.
type Config struct {
	Port ring.Port
	MAC  [6]byte
	MTU  int    // of the link, in bytes of an IP packet
	VLAN uint16 // VLAN identifier; 0: untagged
	// TOS is the DSCP, in the upper six bits, of connections that this host opens, until Endpoint.SetTOS, and of
	// answers without connection or listener. ListenConfig.TOS applies to all others.
	TOS uint8
	// HopLimit is the TTL or hop limit of packets. Zero means DefaultHopLimit.
	HopLimit uint8
	Resolver Resolver
	Steering Steering
	IPsec    IPsec         // nil: no connection is protected
	Plain    PlainObserver // nil: no observer
	Peers    *budget.Peers // limits of peers for all stacks of a device; nil: own ones, with the defaults
	Secret   [16]byte      // random key of ISNs, timestamp offsets and SYN cookies
	Seed     uint64        // random seed of the challenge ACK budget
	// Stray, if set, is called with segments, ICMP errors and ESP packets for which this stack has no connection or SA.
	// They may belong to another worker, because with RSS the device chooses the queue of a frame. Stray returns true
	// if it took x over.
	Stray func(x *Stray) bool
	// Veth says that the link is a veth: no frame was on a wire, so all may have a TCP checksum of the pseudo-header
	// only. On other links only frames longer than the MTU may.
	Veth bool
	// Defect, if set, is called with each contained panic. If nil, panics propagate, for tests.
	Defect func(d *Defect)
}

// Stack owns a Port and every connection on it. Its worker owns all fields, except current.
type Stack struct {
	cfg     Config
	port    ring.Port
	current atomic.Pointer[Endpoint] // connection served now or last; nil: none. Any goroutine may read it

	// Connections, listeners and their timers.
	conns      map[tcp.Tuple]*Endpoint
	last       *Endpoint   // connection of the last segment: segments come in runs
	begun      uint64      // number of connections so far
	forgetting []*Endpoint // connections that have ended, to be forgotten after the callbacks
	timers     timers
	listeners  map[listenKey]*Listener
	listening  []*Listener
	budget     tcp.ChallengeBudget
	local      local

	// Next hops.
	hops map[ip.Addr]*hop
	idle idleHops
	held int // number of segments waiting for a hop

	// IPsec.
	inbound  map[saKey]inbound
	outbound map[saKey]*Flow // the flows that send, by the SA that they send with
	via      *Flow           // flow whose SA decrypted the segment being processed; nil: it was not protected

	// Receiving: the batch, and the frame and segment being processed.
	batch    [MaxBatch]ring.Packet
	fetched  int // number of frames in batch; 0: Receive has processed them all
	at       int // index in batch of the next frame to process
	holding  int // index in batch of the frame being received, plus 1; 0: none
	rxLen    int // length of the frame being received, in bytes
	pieces   [ring.MaxFrags + 1][]byte
	eth      ip.Ethernet
	ip       ip.Header
	seg      tcp.Segment
	tuple    tcp.Tuple
	scratch  []byte
	shown    []byte // see showReceived
	strayed  Stray
	frags    ip.Reassembler
	released bool // frames were released since the last Refill of the port

	// Transmitting.
	dirty    fair.Queue[*Endpoint] // connections that want to transmit
	common   Class                 // connections without SetClass
	round    round
	now      tick.Time // time of the last round
	out      tcp.Out
	room     int    // maximum frame length of the port
	blocks   bool   // the port accepts blocks
	pending  block  // of the burst being sent
	slot     uint32 // slot being filled, if filling
	filling  bool
	starved  bool // in the last round a slot was missing
	starving int  // number of consecutive rounds in which a slot was missing and nothing was sent
	queued   bool // replies were passed to the port since the last Flush
	flush    flush

	// Counters.
	stats    Stats
	totals   tally.Sum[tcp.AllCounters]
	listened tcp.ListenCounters // of closed listeners
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
	s.cfg.HopLimit = cmp.Or(s.cfg.HopLimit, DefaultHopLimit)
	if s.cfg.Peers == nil {
		s.cfg.Peers = budget.NewPeers(nil)
	}
	info := cfg.Port.Info()
	s.blocks, s.room = info.Blocks, info.TxRoom
	s.pending.slots = make([]ring.TxBuf, 0, MinBlockShort)
	s.flush.at = tick.Never
	s.budget.Init(ChallengesPerSecond, cfg.Seed)
	s.frags.Init(ip.MaxDatagrams)
	return s, nil
}

// Step receives one batch, runs due timers and transmits ready segments. It reports whether it received a frame, sent
// one or ran a timer. If not, it need not be called again until the port is readable or Deadline has come, unless
// Blocked returns true.
func (s *Stack) Step(now tick.Time) bool {
	worked := s.Receive(now)
	return s.Transmit(now) || worked
}

// Fetch fetches a batch of frames from the port for Receive and reports whether there is one. A caller that spins need
// not read its clock before Fetch returns true.
func (s *Stack) Fetch() bool {
	if s.fetched == 0 {
		s.fetched = s.port.Recv(s.batch[:])
	}
	return s.fetched > 0
}

// Receive is the first half of Step. It reports whether it received a frame. Consumers may answer the received data
// between the halves, so that the answer and the acknowledgement are sent together.
func (s *Stack) Receive(now tick.Time) bool {
	if !s.Fetch() {
		return false
	}
	for s.at = 0; s.at < s.fetched; {
		s.receive(now) // again after each panic
	}
	s.fetched, s.released = 0, true
	return true
}

// ahead is the number of bytes of the next frame's first chunk to prefetch while a frame is processed. Another CPU has
// just written them, and MPA reads the markers before it copies the payload.
const ahead = 4096

// receive processes the remaining frames of the batch.
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

// Quiet reports whether Transmit has nothing to send or tidy. It must still be called for timers and completions of the
// device: by Deadline at the latest.
func (s *Stack) Quiet() bool {
	return s.dirty.Len() == 0 && s.fetched == 0 && !s.queued && !s.released &&
		len(s.forgetting) == 0 && s.flush.at == tick.Never
}

// Transmit is the second half of Step. It reports whether it ran a timer or sent a frame. It defers work that the peer
// does not wait for until the frames have been sent.
func (s *Stack) Transmit(now tick.Time) bool {
	s.now = now
	worked := s.expire(now)
	worked = s.transmit(now) || worked
	if p := s.cfg.IPsec; p != nil && p.Deadline() <= now {
		s.expireIPsec(now)
		worked = true
	}
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
	if s.cfg.IPsec != nil {
		d = min(d, s.cfg.IPsec.Deadline())
	}
	return d
}

// Blocked reports whether Step must be called again at once: received frames wait, or connections wait for their turn
// or for room in the transmit ring. While the kernel accepts nothing, as when the link is down, sending waits for
// Deadline.
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

// expireOthers runs timers that do not belong to a connection.
func (s *Stack) expireOthers(now tick.Time) (worked bool) {
	s.setCurrent(nil)
	defer s.contain(now)
	for _, l := range s.listening {
		worked = l.expire(now) || worked
	}
	s.expireHops(now)
	return worked
}

func (s *Stack) expireIPsec(now tick.Time) {
	s.setCurrent(nil)
	defer s.contain(now)
	s.cfg.IPsec.Expire(now)
}

// expireSome runs due timers, up to the first panic.
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

// Class has the connections of one owner. Owners take turns at transmitting, however many connections each has.
type Class = fair.Class[*Endpoint]

// round is one round of transmission.
type round struct {
	visits  int         // number of visits left; initially that of waiting connections
	visited []*Endpoint // in order of their visits; visited[:tidied] have been tidied
	tidied  int
	sent    int
}

// transmit visits the connections that want to send, with a limit of frames for each and one for all, and flushes the
// port. It reports whether frames were sent.
func (s *Stack) transmit(now tick.Time) bool {
	r := &s.round
	*r = round{visits: s.dirty.Len(), visited: r.visited[:0]}
	s.starved = false
	for !s.visit(now) { // until a round ends without a panic
	}
	s.queued = false
	s.flush.note(s.port.Flush(), now)
	for !s.tidy(now) {
	}
	clear(r.visited)
	sent := r.sent
	if !s.starved || sent > 0 {
		s.starving = 0
	} else if s.starving++; s.starving >= StarvedRounds && s.flush.at == tick.Never {
		// A polling NIC driver may leave frames in the transmit ring without reporting it: flush again later.
		s.flush = flush{now.Add(StarvedRetry), StarvedRetry}
	}
	for i, e := range s.forgetting {
		s.forget(e, now)
		s.forgetting[i] = nil
	}
	s.forgetting = s.forgetting[:0]
	return sent > 0
}

// visit lets connections send until all had their turn or the limit is reached, and returns true then. A panic makes it
// return false.
func (s *Stack) visit(now tick.Time) bool {
	defer s.contain(now)
	r := &s.round
	for r.visits > 0 && r.sent < MaxFramesPerRound {
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

// tidy does the deferred work of connections after the frames have been sent. Like visit, it returns false after a
// panic.
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

// flush says when to flush the port again after the kernel did not accept all frames.
type flush struct {
	at    tick.Time // Never: all frames were accepted
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

// mark queues e for transmission.
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

// byAge returns the connections for which want returns true, in order of creation: a fixed order makes test runs
// repeatable.
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

// Close resets every connection and closes the port.
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
