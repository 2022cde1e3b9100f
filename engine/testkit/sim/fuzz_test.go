package sim

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"xwarp/engine/testkit/havoc"
	"xwarp/mpa/startup"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// The bits of the byte in front of each frame of FuzzFrames.
const (
	keepSums = 1 << iota // the checksums of IP and TCP and MPA's CRCs stay as they are
	raw                  // sequence numbers and the Ethernet address stay as they are
	twice                // the frame is sent twice
	// the upper bits: the delay after the previous frame
	pauseShift = 3
)

// pauses are the values of the upper bits.
var pauses = [32]tick.Duration{0, us, 20 * us, 100 * us, ms, 5 * ms, 40 * ms, 200 * ms, tick.Second,
	5 * tick.Second, 15 * tick.Second, tick.Minute}

// fuzzModes are the kinds of conversation.
var fuzzModes = []fuzzMode{
	{},
	{markers: true, noCRC: true},
	{dials: true},
	{dials: true, markers: true, noCRC: true, v6: true},
	{cookies: true, timestamps: true},
	{v6: true, revision: startup.RevIETF},
}

type fuzzMode struct {
	dials             bool // the host dials, the foreign peer accepts
	markers, noCRC    bool
	cookies           bool
	timestamps        bool
	v6                bool
	revision          startup.Revision
	recordsTheForeign bool // both ends are engines, and the frames of the foreign one are recorded
}

// foreignISS is the initial sequence number of the host's peers.
const foreignISS = seq.Num(0xfffffc00)

// conversation is a host and a peer, which is another host or a sequence of frames.
type conversation struct {
	mode   fuzzMode
	w      *World
	host   *fuzzEnd
	peer   *fuzzEnd // nil if frames play the peer
	iss    seq.Num  // the host's initial sequence number
	irs    seq.Num  // the peer's initial sequence number
	record []byte   // the frames of a peer that is a host
	last   tick.Time
}

// addrOf returns the address of the host or of the peer.
func (m *fuzzMode) addrOf(peer bool) ip.Addr {
	last := byte(1)
	if peer {
		last = 2
	}
	if m.v6 {
		return ip.Addr{0: 0xfd, 15: last}
	}
	return ip.AddrFrom4([4]byte{10, 0, 0, last})
}

// newConversation sets up the host, and the peer if it is a host.
func newConversation(mode fuzzMode) *conversation {
	c := &conversation{mode: mode, w: NewWorld(5), irs: foreignISS, last: Epoch}
	c.host = newFuzzEnd(c, false)
	if mode.recordsTheForeign {
		c.peer = newFuzzEnd(c, true)
	} else {
		c.w.hosts = append(c.w.hosts, &Host{world: c.w, mac: [6]byte{2, 0, 0, 0, 0, 2},
			wakeAt: tick.Never, timeAt: tick.Never,
			cfg: HostConfig{Name: "nobody", Addrs: []ip.Addr{mode.addrOf(true)}, Down: nowhere{}}})
	}
	c.w.Tap = c.see
	return c
}

// nowhere is a path that drops all frames.
type nowhere struct{}

func (nowhere) Push([]byte, tick.Time) {}
func (nowhere) Pop(tick.Time) []byte   { return nil }
func (nowhere) Reply() []byte          { return nil }
func (nowhere) Deadline() tick.Time    { return tick.Never }

// see learns the initial sequence numbers, and records the frames of the peer.
func (c *conversation) see(h *Host, d Direction, frame []byte, now tick.Time) {
	if d != Out {
		return
	}
	at, t := tcpOf(frame)
	if t.Flags&wire.SYN != 0 {
		if h == c.host.host {
			c.iss = t.Seq
		} else {
			c.irs = t.Seq
		}
	}
	if h == c.host.host || at < 0 {
		return
	}
	b := bytes.Clone(frame)
	shift(b, at, seq.Num(0)-c.irs, seq.Num(0)-c.iss)
	pause := 0
	for pause+1 < len(pauses) && pauses[pause+1] > 0 && pauses[pause+1] <= now.Sub(c.last) {
		pause++
	}
	c.last = now
	c.record = append(c.record, byte(pause<<pauseShift))
	c.record = binary.BigEndian.AppendUint16(c.record, uint16(len(b)))
	c.record = append(c.record, b...)
}

// tcpOf returns the offset of a frame's TCP header, or -1.
func tcpOf(frame []byte) (at int, t wire.Header) {
	var e ip.Ethernet
	off, err := e.Decode(frame)
	if err != nil {
		return -1, t
	}
	var h ip.Header
	n, err := h.Decode(frame[off:])
	if err != nil || h.Proto != ip.ProtoTCP || h.Fragment {
		return -1, t
	}
	if _, err := t.Decode(frame[off+n:][:h.PayloadLen]); err != nil {
		return -1, t
	}
	return off + n, t
}

// shift adds seqBy and ackBy to the numbers of the TCP header at offset at.
func shift(b []byte, at int, seqBy, ackBy seq.Num) {
	for i, by := range []seq.Num{seqBy, ackBy} {
		f := b[at+4+4*i:]
		binary.BigEndian.PutUint32(f, binary.BigEndian.Uint32(f)+uint32(by))
	}
}

// inject lets the host receive a frame of the foreign peer, with the fields corrected that op selects.
func (c *conversation) inject(op byte, frame []byte) {
	if op&raw == 0 && len(frame) >= 14 {
		mac := c.host.host.MAC()
		copy(frame, mac[:])
		if at, _ := tcpOf(frame); at >= 0 {
			shift(frame, at, c.irs, c.iss)
		}
	}
	if op&keepSums == 0 {
		repair(frame, !c.mode.noCRC)
	}
	c.host.host.Inject(frame)
	if op&twice != 0 {
		c.host.host.Inject(frame)
	}
}

// repair corrects the checks of a frame: the CRCs of FPDUs that start with its payload, and the checksums of TCP, ICMP
// and IPv4.
func repair(frame []byte, crc bool) {
	var e ip.Ethernet
	off, err := e.Decode(frame)
	if err != nil {
		return
	}
	b := frame[off:]
	if len(b) >= 20 && b[0]>>4 == 4 && b[0]&15 >= 5 && len(b) >= int(b[0]&15)*4 {
		head := b[:int(b[0]&15)*4]
		head[10], head[11] = 0, 0
		binary.BigEndian.PutUint16(head[10:], wire.Finish(wire.Sum(head, 0)))
	}
	var h ip.Header
	n, err := h.Decode(b)
	if err != nil || h.Fragment || n+h.PayloadLen > len(b) {
		return
	}
	p := b[n:][:h.PayloadLen]
	switch {
	case h.Proto == ip.ProtoTCP && len(p) >= 20:
		var t wire.Header
		if m, err := t.Decode(p); err == nil && crc {
			repairFPDUs(p[m:])
		}
		p[16], p[17] = 0, 0
		wire.PutChecksum(p, wire.Finish(wire.Sum(p, h.PseudoSum(len(p)))))
	case h.Proto == 1 && len(p) >= 8, h.Proto == 58 && len(p) >= 8:
		sum := uint64(0)
		if h.V6 {
			sum = h.PseudoSum(len(p))
		}
		p[2], p[3] = 0, 0
		binary.BigEndian.PutUint16(p[2:], wire.Finish(wire.Sum(p, sum)))
	}
}

// repairFPDUs computes CRCs along the length chain, without markers. Start-up frames start with letters; read as a
// length, these exceed any frame.
func repairFPDUs(p []byte) {
	for len(p) >= 8 {
		n := (2+int(binary.BigEndian.Uint16(p))+3)&^3 + 4
		if n > len(p) {
			return
		}
		binary.LittleEndian.PutUint32(p[n-4:], crc32.Checksum(p[:n-4], castagnoli))
		p = p[n:]
	}
}

// FuzzFrames lets a host with a listener and a dialled connection receive arbitrary frames. Their checks are corrected
// unless the input says otherwise. The frames reach Ethernet, IP, fragments, ICMP, the handshake and its cookies, MPA's
// start-up, FPDUs and RDMA. Only memory that the peer was given may change, every chunk must have an owner, and each
// posted request must complete. After a long silence of the peer, no state may remain.
func FuzzFrames(f *testing.F) {
	for i := range fuzzModes {
		f.Add(append([]byte{byte(i)}, record(f, fuzzModes[i])...))
	}
	havoc.Fuzz(f, func(t *testing.T, in []byte) {
		if len(in) == 0 {
			return
		}
		c := newConversation(fuzzModes[int(in[0])%len(fuzzModes)])
		c.host.start(tcp.Tuple{})
		if c.mode.dials {
			c.host.dial()
		}
		in = in[1:]
		for n := 0; len(in) >= 3 && n < 200; n++ {
			op := in[0]
			size := min(int(binary.BigEndian.Uint16(in[1:])), len(in)-3)
			c.run(t, c.w.Now().Add(pauses[op>>pauseShift]))
			c.inject(op, bytes.Clone(in[3:][:size]))
			in = in[3+size:]
		}
		c.run(t, c.w.Now().Add(20*tick.Minute))
		c.host.verdict(t)
	})
}

// run advances the time.
func (c *conversation) run(t testing.TB, until tick.Time) {
	t.Helper()
	if err := c.w.Run(until, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.host.host.Audit(); err != nil {
		t.Fatal(err)
	}
}

// record returns the frames of an engine that is the peer in a conversation of the given mode.
func record(t testing.TB, mode fuzzMode) []byte {
	mode.recordsTheForeign = true
	c := newConversation(mode)
	a, b := c.peer, c.host
	if mode.dials {
		a, b = b, a
	}
	b.start(tcp.Tuple{})
	a.start(tcp.Tuple{})
	a.dial()
	c.run(t, Epoch.Add(20*tick.Minute))
	for _, e := range []*fuzzEnd{a, b} {
		if e.up == 0 || e.done == 0 {
			t.Fatalf("%s: up %d, %d of its requests done: this is no corpus", e.host.Name(), e.up,
				e.done)
		}
		e.verdict(t)
	}
	return c.record
}

// TestRecorded replays recorded peers as the fuzzer does. With each, requests of the host must complete, and messages
// must arrive.
func TestRecorded(t *testing.T) {
	for i, mode := range fuzzModes {
		in := record(t, mode)
		c := newConversation(mode)
		c.host.start(tcp.Tuple{})
		if mode.dials {
			c.host.dial()
		}
		for len(in) > 0 {
			size := int(binary.BigEndian.Uint16(in[1:]))
			c.run(t, c.w.Now().Add(pauses[in[0]>>pauseShift]))
			c.inject(in[0], bytes.Clone(in[3:][:size]))
			in = in[3+size:]
		}
		c.run(t, c.w.Now().Add(20*tick.Minute))
		if c.host.verdict(t); c.host.up == 0 || c.host.done == 0 || c.host.received == 0 {
			t.Errorf("mode %d: up %d, %d requests done, %d messages received", i, c.host.up,
				c.host.done, c.host.received)
		}
	}
}
