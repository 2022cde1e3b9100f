package counters_test

import (
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
	"xwarp/engine/stack"
	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// host is a stack that listens on port 7, and its peer, whose frames a test writes.
type host struct {
	*testing.T
	s    *stack.Stack
	sock *ring.Socket
	k    *ring.FakeKernel
	now  tick.Time
	mute bool            // the next hop is not resolved
	e    *stack.Endpoint // the accepted connection
	// the sequence numbers that the peer sends and expects next on the connection
	snd, rcv seq.Num
}

var (
	ownMAC, peerMAC = [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}
	own, peer       = ip.AddrFrom4([4]byte{192, 0, 2, 1}), ip.AddrFrom4([4]byte{192, 0, 2, 2})
)

func (h *host) Request(dst ip.Addr) {
	if !h.mute {
		h.s.SetHop(dst, peerMAC, nil)
	}
}
func (h *host) Forget(ip.Addr) {}

// sink is a stack.Upper that accepts all payload, unless it begins with refusedByte, and discards it.
type sink struct{}

func (sink) Next(int) (int, bool)                               { return 0, false }
func (sink) Fill(seq.Range, []byte) (uint64, bool)              { return 0, false }
func (sink) Attach(*stack.Endpoint)                             {}
func (sink) Start(*stack.Endpoint, seq.Num, seq.Num, tick.Time) {}
func (sink) Acked(seq.Num)                                      {}
func (sink) Offer(_ seq.Num, p [][]byte, n int, _ checksum.Known) int {
	if n > 0 && p[0][0] == refusedByte {
		return 0
	}
	return n
}
func (sink) Advance(seq.Num)             {}
func (sink) Space() int                  { return 1 << 16 }
func (sink) Settle(tick.Time)            {}
func (sink) Event(tcp.Events, tick.Time) {}
func (sink) Abandon(error)               {}

// refusedByte begins a payload that the upper layer does not keep.
const refusedByte = 0xee

// event is something that happens to a host.
type event struct {
	counter string // its table and key
	// also are other counters that count the same event on purpose. They have no metric, so that no two metrics count
	// one event. Only counters in incoming may have one.
	also    []string
	ring    ring.Config
	direct  bool // zero-copy
	listen  stack.ListenConfig
	stack   func(*stack.Config)
	prepare func(*host)
	run     func(*host)
}

func (e *event) host(t *testing.T) *host {
	h := &host{T: t, now: tick.Time(tick.Second)}
	k := ring.FakeConfig{Budget: 64}
	if e.direct {
		k.Refuse = func(bool, bool) unix.Errno { return 0 }
	}
	h.k = ring.NewFakeKernel(k)
	if e.ring.RxFrames == 0 {
		e.ring = ring.Config{RxFrames: 64, TxSlots: 64}
	}
	e.ring.TxSlot = ring.SlotFor(1522)
	var err error
	if h.sock, err = ring.OpenFake(e.ring, h.k); err != nil {
		t.Fatal(err)
	}
	cfg := stack.Config{Port: h.sock, MAC: ownMAC, MTU: 1500, Resolver: h, Seed: 1,
		Defect: func(*stack.Defect) {}}
	if e.stack != nil {
		e.stack(&cfg)
	}
	if h.s, err = stack.New(cfg); err != nil {
		t.Fatal(err)
	}
	l := e.listen
	if l.Accept == nil {
		l.Accept = func(*tcp.Tuple) (stack.Upper, error) { return sink{}, nil }
	}
	l.Accepted = func(e *stack.Endpoint) { h.e = e }
	if _, err = h.s.Listen(ip.AddrFrom4([4]byte{}), 7, &l, h.now); err != nil {
		t.Fatal(err)
	}
	h.s.SetLocal([]stack.Prefix{{Addr: own, Bits: 24}})
	return h
}

// give delivers frames to the stack, and returns the TCP headers of the segments that it sends then.
func (h *host) give(frames ...[]byte) (out []wire.Header) {
	for _, f := range frames {
		h.k.Inject(f)
	}
	for range 3 {
		h.s.Step(h.now)
		for b, ok := h.k.Take(nil); ok; b, ok = h.k.Take(nil) {
			var x wire.Header
			if _, err := x.Decode(b[ip.EthernetLen+ip.Len4:]); err != nil {
				h.Fatal(err)
			}
			out = append(out, x)
		}
	}
	return out
}

// segment returns a frame of the peer with the TCP header x. Ports of 0 are replaced by 4000 and 7. change, unless it
// is nil, alters the Ethernet and IP headers.
func segment(x wire.Header, payload string, change func(e *ip.Ethernet, h *ip.Header)) []byte {
	e := ip.Ethernet{Dst: ownMAC, Src: peerMAC, Type: ip.TypeIPv4}
	p := ip.Header{Src: peer, Dst: own, Proto: ip.ProtoTCP, TTL: 64,
		PayloadLen: x.Len() + len(payload)}
	if change != nil {
		change(&e, &p)
	}
	if x.SrcPort == 0 {
		x.SrcPort = 4000
	}
	if x.DstPort == 0 {
		x.DstPort = 7
	}
	b := make([]byte, 100)
	n := e.Put(b)
	n += p.Put(b[n:])
	at := n
	n += x.Put(b[n:])
	b = append(b[:n], payload...)
	wire.PutChecksum(b[at:], wire.Finish(wire.Sum(b[at:], p.PseudoSum(len(b)-at))))
	return b
}

const window = 60000

// connect opens a connection with timestamps and SACK.
func (h *host) connect() {
	h.halfOpen()
	h.ackFrom(4000)
	if h.s.Len() != 1 {
		h.Fatal("no connection")
	}
}

// send delivers a segment of the connection. seq is relative to the next sequence number of the peer, ack to the next
// one that the peer expects.
func (h *host) send(f wire.Flags, seq, ack int, payload string) []wire.Header {
	x := wire.Header{Seq: h.snd.Add(seq), Flags: f, Window: window}
	if f.Has(wire.ACK) {
		x.Ack = h.rcv.Add(ack)
	}
	h.timestamp(&x)
	return h.give(segment(x, payload, nil))
}

func (h *host) timestamp(x *wire.Header) {
	x.Opt.Present |= wire.HasTS
	x.Opt.TSVal = uint32(int64(h.now) / int64(tick.Millisecond))
}

// values returns all counters of the host by table and key.
func (h *host) values() counters.Values {
	all := counters.Values{}
	h.s.Endpoints(func(e *stack.Endpoint) { e.Count() })
	for table, v := range map[string]any{"stack": h.s.Stats(), "listen": h.s.Listened(),
		"ring": h.sock.Stats(), "tcp": h.s.Totals()} {
		for k, n := range control.Counters(v) {
			all[table+"."+k] = n
		}
	}
	return all
}

// traffic are the counters of all frames and segments received and sent. An event moves them besides its own counter.
var traffic = strings.Fields(`stack.rx_frames stack.rx_bytes stack.tx_frames stack.tx_bytes stack.tx_payload
	ring.rx_packets ring.rx_bytes ring.tx_packets ring.tx_bytes ring.tx_completed ring.kicks
	tcp.segs_in tcp.segs_out tcp.bytes_in tcp.pure_acks listen.syns listen.syn_acks`)

// incoming are counters of all arrivals, which count whatever the stack does with them.
var incoming = []string{"stack.fragments", "listen.accepted", "tcp.out_of_order"}

// to returns a function that delivers a SYN whose Ethernet or IP header change alters.
func to(change func(e *ip.Ethernet, h *ip.Header)) func(*host) {
	return func(h *host) { h.give(segment(wire.Header{Flags: wire.SYN}, "", change)) }
}

// one returns a function that delivers a segment with the header x and no payload.
func one(x wire.Header) func(*host) { return func(h *host) { h.give(segment(x, "", nil)) } }

// broken returns a function that delivers a SYN frame whose byte at the offset at is replaced by to.
func broken(at int, to byte) func(*host) {
	return func(h *host) {
		f := segment(wire.Header{Flags: wire.SYN}, "", nil)
		f[at] = to
		h.give(f)
	}
}

// onConn returns a function that calls host.send.
func onConn(f wire.Flags, seq, ack int, payload string) func(*host) {
	return func(h *host) { h.send(f, seq, ack, payload) }
}

const (
	firstIP  = ip.EthernetLen
	firstTCP = ip.EthernetLen + ip.Len4
)

// events are events that the test can cause, by the counter that each must move. Counters without one are in
// notInjected or checked by the tests of their packages.
var events = []event{
	{counter: "stack.drop_not_for_us", run: to(func(e *ip.Ethernet, _ *ip.Header) {
		e.Dst = peerMAC
	})},
	{counter: "stack.drop_malformed", run: broken(firstIP, 0x41)},
	{counter: "stack.drop_checksum", run: broken(firstTCP+wire.ChecksumAt, 0x5a)},
	{counter: "stack.drop_partial_sum", run: func(h *host) {
		f := segment(wire.Header{Flags: wire.SYN}, "", nil)
		p := ip.Header{Src: peer, Dst: own, Proto: ip.ProtoTCP}
		wire.PutChecksum(f[firstTCP:], wire.Fold(p.PseudoSum(len(f)-firstTCP)))
		h.give(f)
	}},
	{counter: "stack.drop_no_connection", run: one(wire.Header{Flags: wire.RST, DstPort: 8})},
	{counter: "stack.refused", listen: stack.ListenConfig{Accept: func(*tcp.Tuple) (stack.Upper,
		error) {
		return nil, stack.ErrTooMany
	}}, also: []string{"listen.accepted"}, prepare: (*host).halfOpen,
		run: onConn(wire.ACK, 0, 0, "")},
	{counter: "stack.evicted", listen: stack.ListenConfig{Startup: 1},
		also: []string{"listen.accepted", "tcp.resets_out"}, prepare: func(h *host) {
			h.connect()
			h.halfOpenFrom(4001)
		}, run: func(h *host) { h.ackFrom(4001) }},
	{counter: "stack.drop_source", run: to(func(_ *ip.Ethernet, p *ip.Header) { p.Src = own })},
	{counter: "stack.drop_not_local", run: to(func(_ *ip.Ethernet, p *ip.Header) {
		p.Dst = ip.AddrFrom4([4]byte{192, 0, 2, 77})
	})},
	{counter: "stack.drop_vlan", run: to(func(e *ip.Ethernet, _ *ip.Header) {
		e.VLAN[0], e.NVLAN = ip.VLANTag{TPID: ip.TypeVLAN, TCI: 100}, 1
	})},
	{counter: "stack.drop_icmp", run: func(h *host) { h.give(unreachable(4000)) }},
	{counter: "stack.icmp", also: []string{"tcp.icmp_ignored"}, prepare: (*host).connect,
		run: func(h *host) { h.give(unreachable(4000)) }},
	{counter: "stack.fragments", run: func(h *host) { h.give(fragment(16)) }},
	{counter: "stack.drop_fragments", also: []string{"stack.fragments"},
		run: func(h *host) { h.give(fragment(15)) }},
	{counter: "stack.drop_listener", also: []string{"listen.ignored"},
		run: one(wire.Header{Flags: wire.RST})},
	{counter: "stack.drop_syn", also: []string{"listen.overflows"},
		listen:  stack.ListenConfig{Backlog: 1, Cookies: tcp.CookiesNever},
		prepare: (*host).halfOpen, run: one(wire.Header{Flags: wire.SYN, SrcPort: 4001})},
	{counter: "stack.syn_cookies", also: []string{"listen.cookies_sent"},
		listen: stack.ListenConfig{Cookies: tcp.CookiesAlways},
		run:    one(wire.Header{Flags: wire.SYN})},
	{counter: "stack.half_open_timeouts", also: []string{"listen.timeouts"},
		prepare: (*host).halfOpen, run: func(h *host) {
			for range 40 {
				h.now = h.now.Add(60 * tick.Second)
				h.give()
			}
		}},
	{counter: "stack.handed_over", stack: func(c *stack.Config) {
		c.Stray = func(*stack.Stray) bool { return true }
	}, run: one(wire.Header{Flags: wire.SYN})},
	{counter: "stack.drop_backlog", run: func(h *host) { h.s.DropStray() }},
	{counter: "stack.no_slot", also: []string{"ring.tx_exhausted"},
		ring: ring.Config{RxFrames: 64, TxSlots: 1}, prepare: func(h *host) {
			h.k.SetState(ring.StateAgain)
			one(wire.Header{Flags: wire.SYN})(h)
		}, run: func(h *host) {
			h.k.Inject(segment(wire.Header{Flags: wire.SYN, SrcPort: 4001}, "", nil))
			h.s.Receive(h.now)
		}},
	{counter: "stack.no_hop", prepare: func(h *host) { h.mute = true },
		run: one(wire.Header{Flags: wire.SYN})},
	{counter: "listen.accepted", prepare: (*host).halfOpen, run: onConn(wire.ACK, 0, 0, "")},
	{counter: "listen.cookies_accepted", also: []string{"listen.accepted"},
		listen:  stack.ListenConfig{Cookies: tcp.CookiesAlways},
		prepare: (*host).halfOpen, run: onConn(wire.ACK, 0, 0, "")},
	{counter: "listen.resets", prepare: (*host).halfOpen, run: onConn(wire.RST, 0, 0, "")},
	{counter: "listen.bad_acks", prepare: (*host).halfOpen, run: onConn(wire.ACK, 0, 5, "")},
	{counter: "listen.old", prepare: (*host).halfOpen, run: onConn(wire.ACK, -5, 0, "")},
	{counter: "ring.kernel_fill_ring_empty", prepare: fill(4),
		ring: ring.Config{RxFrames: 4, RxSize: 8, TxSlots: 4}, run: inject},
	{counter: "ring.kernel_fill_ring_empty", prepare: fill(4),
		ring: ring.Config{RxFrames: 4, RxSize: 8, TxSlots: 4, MaxFrags: 2},
		run:  func(h *host) { h.k.Inject(make([]byte, 5000)) }},
	{counter: "ring.kernel_rx_ring_full", prepare: fill(16),
		ring: ring.Config{RxFrames: 32, RxSize: 16, TxSlots: 4, MaxFrags: 1}, run: inject},
	{counter: "ring.kernel_rx_dropped", direct: true,
		run: func(h *host) { h.k.Inject(make([]byte, 5000)) }},
	{counter: "ring.busy", run: sendIn(ring.StateBusy)},
	{counter: "ring.again", run: sendIn(ring.StateAgain)},
	{counter: "ring.no_buffers", run: sendIn(ring.StateNoBuffers)},
	{counter: "ring.down", run: sendIn(ring.StateDown)},
	{counter: "ring.gone", run: sendIn(ring.StateGone)},
	{counter: "tcp.out_of_order", prepare: (*host).connect,
		run: onConn(wire.ACK, 10, 0, "later")},
	{counter: "tcp.dup_bytes", also: []string{"tcp.dsacks_sent", "tcp.out_of_window"},
		prepare: func(h *host) {
			h.connect()
			h.send(wire.ACK|wire.PSH, 0, 0, "x")
		}, run: onConn(wire.ACK|wire.PSH, 0, 0, "x")},
	{counter: "tcp.not_kept", prepare: (*host).connect,
		run: onConn(wire.ACK, 0, 0, string([]byte{refusedByte}))},
	{counter: "tcp.out_of_window", also: []string{"tcp.challenge_acks"}, prepare: (*host).connect,
		run: onConn(wire.ACK, 1<<20, 0, "x")},
	{counter: "tcp.paws_drops", also: []string{"tcp.challenge_acks"}, prepare: (*host).connect,
		run: func(h *host) {
			h.now -= tick.Time(500 * tick.Millisecond)
			f := h.next(wire.ACK, "x")
			h.now += tick.Time(500 * tick.Millisecond)
			h.give(f)
		}},
	{counter: "tcp.no_timestamp", prepare: (*host).connect, run: func(h *host) {
		x := wire.Header{Seq: h.snd, Ack: h.rcv, Flags: wire.ACK, Window: window}
		h.give(segment(x, "x", nil))
	}},
	{counter: "tcp.no_ack", prepare: (*host).connect, run: onConn(0, 0, 0, "x")},
	{counter: "tcp.bad_ack", also: []string{"tcp.challenge_acks"}, prepare: (*host).connect,
		run: onConn(wire.ACK, 0, 1000, "x")},
	{counter: "tcp.challenge_acks", prepare: (*host).connect, run: onConn(wire.SYN, 0, 0, "")},
	{counter: "tcp.early_fins", prepare: func(h *host) {
		h.connect()
		h.send(wire.ACK, 20, 0, "later")
	}, run: onConn(wire.ACK|wire.FIN, 10, 0, "")},
	{counter: "tcp.probes_answered", also: []string{"tcp.out_of_window"}, prepare: (*host).connect,
		run: onConn(wire.ACK, -1, 0, "")},
	{counter: "tcp.window_shrunk", prepare: (*host).connect, run: func(h *host) {
		x := wire.Header{Seq: h.snd.Add(1), Ack: h.rcv, Flags: wire.ACK, Window: window / 2}
		h.timestamp(&x)
		h.send(wire.ACK, 0, 0, "x")
		h.give(segment(x, "", nil))
	}},
	{counter: "tcp.late_rst", prepare: func(h *host) {
		h.connect()
		h.e.Shutdown(h.now)
		h.give()
		h.send(wire.ACK|wire.FIN, 0, 1, "")
	}, run: onConn(wire.RST, 1, 0, "")},
	{counter: "tcp.no_syn", prepare: (*host).dial, run: onConn(wire.FIN, 0, 0, "")},
	{counter: "tcp.syn_retransmits", prepare: (*host).dial,
		run: func(h *host) {
			h.now = h.s.Deadline()
			h.give()
		}},
	{counter: "tcp.window_trimmed", also: []string{"tcp.out_of_order"}, prepare: (*host).connect,
		run: onConn(wire.ACK, 1<<16-100, 0, strings.Repeat("x", 200))},
}

// notInjected are the counters that neither an event here nor a test of their own package checks, by the reason.
var notInjected = map[string][]string{
	"a state": {"ring.last_errno"},
	"no event of the network: the worker sleeps, or the kernel looks at an empty ring": {
		"ring.waits", "ring.kernel_tx_ring_empty"},
	"only a bug of xwarp moves it": {"daemon.defects"},
	"the packet scripts and the simulator check the segments that it counts, not the number": {
		"tcp.window_updates", "tcp.refused_text", "tcp.window_probes", "tcp.mtu_raised",
		"tcp.splits", "rdma.reports_out", "rdma.reports_in", "mpa.marker_errors"},
	"needs the keys of an IKE daemon: make lab": {"stack.no_sa", "ipsec.taken", "ipsec.failures"},
	"tests of the daemon check that the program is refused or ends, not the number": {
		"daemon.sessions_ended", "daemon.sessions_refused"},
}

// owners are the directories below engine whose tests count as tests of a table: a test must name each of its counters.
var owners = map[string]string{
	"stack": "stack testkit xdp", "listen": "../tcp", "ring": "../ring",
	"contained": "sockets xdp internal testkit", "transfer": "transfer daemon",
	"watch": "host/netwatch",
	"link":  "xdp", "ipsec": "ipsec xdp testkit", "port_mapper": "daemon", "daemon": "daemon",
	"rdma": "../ddp", "mpa": "../mpa", "tcp": "../tcp",
}

// TestOneEventMovesOneCounter: an event moves its counter and those in also by one, and no others except those in
// traffic.
func TestOneEventMovesOneCounter(t *testing.T) {
	for _, e := range events {
		t.Run(e.counter, func(t *testing.T) {
			h := e.host(t)
			if e.prepare != nil {
				e.prepare(h)
			}
			before := h.values()
			e.run(h)
			moved := map[string]uint64{}
			for k, n := range h.values() {
				if n != before[k] && !slices.Contains(traffic, k) {
					moved[k] = n - before[k]
				}
			}
			want := map[string]uint64{e.counter: 1}
			for _, k := range e.also {
				want[k] = 1
			}
			if !maps.Equal(moved, want) {
				t.Errorf("moved %v, want %v", moved, want)
			}
		})
	}
}

// TestEveryCounterIsChecked: for each counter, an event of this file moves it, a test of its package names it, or
// notInjected gives the reason why not.
func TestEveryCounterIsChecked(t *testing.T) {
	here := map[string]bool{}
	for _, e := range events {
		here[e.counter] = true
		for _, k := range e.also {
			if c := find(t, k); c.Metric != "" && !slices.Contains(incoming, k) {
				t.Errorf("%s and %s are metrics that count the same event", e.counter, k)
			}
			here[k] = true
		}
	}
	for _, k := range traffic {
		find(t, k)
		here[k] = true
	}
	excused := map[string]bool{}
	for _, keys := range notInjected {
		for _, k := range keys {
			find(t, k)
			excused[k] = true
		}
	}
	for table, dirs := range owners {
		named := namesOfTests(t, dirs)
		for _, c := range tables[table] {
			k := table + "." + c.Key
			checked := here[k] || named[strings.ReplaceAll(c.Key, "_", "")]
			if checked == excused[k] {
				t.Errorf("%s: checked %v, has a reason not to be %v", k, checked, excused[k])
			}
		}
	}
}

var tables = map[string]counters.Table{"stack": counters.Stack, "listen": counters.Listen,
	"ring": counters.Ring, "contained": counters.Contained,
	"transfer": counters.Transfer, "watch": counters.Watch, "link": counters.Link,
	"ipsec": counters.IPsec, "port_mapper": counters.PortMap, "daemon": counters.Daemon,
	"rdma": counters.RDMA, "mpa": counters.MPA, "tcp": counters.TCP}

// find returns a counter by its table and key.
func find(t *testing.T, name string) *counters.Counter {
	t.Helper()
	table, key, _ := strings.Cut(name, ".")
	for i := range tables[table] {
		if c := &tables[table][i]; c.Key == key {
			return c
		}
	}
	t.Fatalf("there is no counter %s", name)
	return nil
}

var word = regexp.MustCompile(`\b[A-Z][A-Za-z]+\b|"[a-z_]+"`)

// namesOfTests returns the field names and keys in the tests of folders, in lower case without underscores.
func namesOfTests(t *testing.T, dirs string) map[string]bool {
	names := map[string]bool{}
	for dir := range strings.FieldsSeq(dirs) {
		err := filepath.WalkDir("../../"+dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") ||
				strings.HasSuffix(path, "counters/events_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			for _, w := range word.FindAllString(string(b), -1) {
				names[strings.ToLower(strings.NewReplacer("_", "", `"`, "").Replace(w))] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// halfOpen sends a SYN.
func (h *host) halfOpen() { h.halfOpenFrom(4000) }

func (h *host) halfOpenFrom(port uint16) {
	x := wire.Header{Seq: 999, Flags: wire.SYN, Window: window, SrcPort: port}
	x.Opt.MSS, x.Opt.Present = 1460, wire.HasMSS|wire.HasSACKPermitted
	h.timestamp(&x)
	out := h.give(segment(x, "", nil))
	if len(out) != 1 {
		h.Fatalf("%d answers to a SYN", len(out))
	}
	h.snd, h.rcv = 1000, out[0].Seq.Add(1)
}

// dial begins a connection to the peer.
func (h *host) dial() {
	t := tcp.Tuple{Local: own, Remote: peer, LocalPort: 7, RemotePort: 4000}
	if _, err := h.s.Connect(t, &tcp.Config{}, sink{}, h.now); err != nil {
		h.Fatal(err)
	}
	h.give()
}

// ackFrom completes the handshake of halfOpenFrom.
func (h *host) ackFrom(port uint16) {
	x := wire.Header{Seq: h.snd, Ack: h.rcv, Flags: wire.ACK, Window: window, SrcPort: port}
	h.timestamp(&x)
	h.give(segment(x, "", nil))
}

// next returns a frame with the next segment of the peer on the connection.
func (h *host) next(f wire.Flags, payload string) []byte {
	x := wire.Header{Seq: h.snd, Ack: h.rcv, Flags: f, Window: window}
	h.timestamp(&x)
	return segment(x, payload, nil)
}

// sendIn returns a function that makes the stack answer a SYN while the device is in state s.
func sendIn(s ring.State) func(*host) {
	return func(h *host) {
		h.k.Inject(segment(wire.Header{Flags: wire.SYN}, "", nil))
		h.k.SetState(s)
		h.s.Step(h.now)
		h.k.SetState(ring.StateOK)
	}
}

// fill returns a function that makes the kernel receive n frames that the stack does not take.
func fill(n int) func(*host) {
	return func(h *host) {
		for range n {
			inject(h)
		}
	}
}

// inject makes the kernel receive a frame, which moves no counter but the kernel's.
func inject(h *host) { h.k.Inject(segment(wire.Header{Flags: wire.RST, DstPort: 8}, "", nil)) }

// packet returns a frame with an IP packet of the peer.
func packet(proto uint8, payload []byte) []byte {
	e := ip.Ethernet{Dst: ownMAC, Src: peerMAC, Type: ip.TypeIPv4}
	p := ip.Header{Src: peer, Dst: own, Proto: proto, TTL: 64, PayloadLen: len(payload)}
	b := make([]byte, firstTCP)
	p.Put(b[e.Put(b):])
	return append(b, payload...)
}

// unreachable returns an ICMP error about a segment from port 7 to this port of the peer.
func unreachable(port uint16) []byte {
	b := make([]byte, 8+ip.Len4+8)
	b[0], b[1] = 3, 1
	p := ip.Header{Src: own, Dst: peer, Proto: ip.ProtoTCP, TTL: 64, PayloadLen: 20}
	p.Put(b[8:])
	binary.BigEndian.PutUint16(b[8+ip.Len4:], 7)
	binary.BigEndian.PutUint16(b[8+ip.Len4+2:], port)
	binary.BigEndian.PutUint16(b[2:], wire.Finish(wire.Sum(b, 0)))
	return packet(ip.ProtoICMP, b)
}

// fragment returns the first fragment of a TCP packet, with n bytes of payload.
func fragment(n int) []byte {
	const more = 1 << 13
	b := packet(ip.ProtoTCP, make([]byte, n))
	h := b[firstIP:firstTCP]
	binary.BigEndian.PutUint16(h[6:], more)
	binary.BigEndian.PutUint16(h[10:], 0)
	binary.BigEndian.PutUint16(h[10:], wire.Finish(wire.Sum(h, 0)))
	return b
}
