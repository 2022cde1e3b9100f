package stack

import (
	"encoding/binary"
	"testing"
	"time"

	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// endless is an Upper that always has zeros to send, unless idle is set. If none is set, Fill does not write them.
type endless struct {
	idle, none bool
	single     int // bytes of the only record; idle afterwards
}

func (u *endless) Next(room int) (int, bool) {
	switch {
	case u.idle:
		return 0, false
	case u.single > 0:
		u.idle = true
		return u.single, false
	}
	return room, true
}

func (u *endless) Fill(r seq.Range, dst []byte) (uint64, bool) {
	if !u.none {
		clear(dst[:r.Len()])
	}
	return 0, true
}
func (u *endless) Attach(*Endpoint)                                         {}
func (u *endless) Recover(any) bool                                         { return false }
func (u *endless) Abandon(error)                                            {}
func (u *endless) WantsCRC(seq.Num, [][]byte, int) bool                     { return false }
func (u *endless) Acked(seq.Num)                                            {}
func (u *endless) Offer(_ seq.Num, _ [][]byte, n int, _ checksum.Known) int { return n }
func (u *endless) Advance(seq.Num)                                          {}
func (u *endless) Space() int                                               { return 1 << 20 }
func (u *endless) Start(*Endpoint, seq.Num, seq.Num, tick.Time)             {}
func (u *endless) Settle(tick.Time)                                         {}
func (u *endless) Event(tcp.Events, tick.Time)                              {}
func (u *endless) Expire(tick.Time)                                         {}
func (u *endless) Deadline() tick.Time                                      { return tick.Never }

// nothingPort accepts frames and drops them. All frames that it receives are ack.
type nothingPort struct {
	ring.Port
	ack  ring.Packet
	have int
	buf  []byte
	sent int
}

func (p *nothingPort) Recv(b []ring.Packet) int {
	n := p.have
	p.have = 0
	for i := range n {
		b[i] = p.ack
	}
	return n
}
func (p *nothingPort) Release(*ring.Packet) {}
func (p *nothingPort) Refill() int          { return 0 }
func (p *nothingPort) AllocTx() (ring.TxBuf, bool) {
	return ring.TxBuf{Data: p.buf}, true
}
func (p *nothingPort) Send(ring.TxBuf, int)                       { p.sent++ }
func (p *nothingPort) CancelTx(ring.TxBuf)                        {}
func (p *nothingPort) Flush() ring.State                          { return ring.StateOK }
func (p *nothingPort) Reap() int                                  { return 0 }
func (p *nothingPort) Wait(_ time.Duration, _ int) (r ring.Ready) { return r }

// BenchmarkSend measures the sender's cost of one full segment without its payload: TCP, headers, and its share of
// acknowledgements, each of which covers up to eight segments.
func BenchmarkSend(b *testing.B) {
	b.Run("visit=1", func(b *testing.B) { benchmarkSend(b, 1, 64) }) // a message of 64 bytes
	b.Run("visit=8", func(b *testing.B) { benchmarkSend(b, 1, 0) })
	b.Run("visit=64", func(b *testing.B) { benchmarkSend(b, 8, 0) })
}

func benchmarkSend(b *testing.B, batch, single int) {
	u := &endless{}
	x := newPair(b, 0, false, tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20, StretchAck: 8},
		[2]Upper{u, &endless{idle: true}})
	s, e, k, last, now := x.s, x.e, x.k, x.last, x.now
	p := &nothingPort{Port: s[0].port, buf: make([]byte, 2048)}
	s[0].Step(now)
	// The last frame, with other numbers, is used for every acknowledgement.
	k[0].Inject(last[1])
	var got [1]ring.Packet
	if s[0].port.Recv(got[:]) != 1 {
		b.Fatal("no frame")
	}
	p.ack = got[0]
	at := got[0].Frag(0)[ip.EthernetLen+ip.Len4:]
	if len(at) != wire.HeaderLen+wire.TimestampsLen {
		b.Fatalf("% x is not a pure acknowledgement", last[1])
	}
	pseudo := addLength(e.frame.sum, len(at))
	s[0].port, u.none = p, true
	base, began := binary.BigEndian.Uint32(at[24:]), now
	round := func() {
		now = now.Add(20 * tick.Microsecond)
		if single > 0 {
			u.idle = false
			e.Schedule()
		}
		s[0].Transmit(now)
		now = now.Add(20 * tick.Microsecond)
		una := e.conn.SndUna()
		binary.BigEndian.PutUint32(at[24:], base+uint32(now.Sub(began)/tick.Millisecond))
		for range batch {
			una = seq.Min(una.Add(8*e.conn.EMSS()), e.conn.SndNxt())
			binary.BigEndian.PutUint32(at[8:], uint32(una))
			at[16], at[17] = 0, 0
			wire.PutChecksum(at, wire.Finish(wire.Sum(at, pseudo)))
			p.have = 1
			s[0].Receive(now)
		}
	}
	u.single = single
	for range 40 {
		round()
	}
	b.ReportAllocs()
	b.ResetTimer()
	acks, visits := e.conn.Counters().SegsIn, 0
	for p.sent = 0; p.sent < b.N; visits++ {
		round()
	}
	b.ReportMetric(float64(e.conn.Counters().SegsIn-acks)/float64(p.sent), "acks/op")
	b.ReportMetric(float64(p.sent)/float64(visits), "segments/visit")
	if i := e.conn.Info(now); i.Loss.Counters.Retransmitted > 0 || i.Loss.Counters.Timeouts > 0 {
		b.Fatalf("%+v", i.Loss)
	}
}
