package loss

import (
	"encoding/binary"
	"testing"

	"xwarp/engine/testkit/havoc"
	"xwarp/tcp/cc"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// Operations of the fuzzer's program. Each is one byte, followed by its operands.
const (
	opSend = iota
	opResend
	opAck
	opExpire
	opWait
	opMSS
	opNone
	ops
)

// play runs a program against a Sender and checks the invariants after each step.
func play(t *testing.T, prog []byte) {
	next := func() int {
		if len(prog) == 0 {
			return 0
		}
		b := prog[0]
		prog = prog[1:]
		return int(b)
	}
	flags := next()
	cfg := Config{Mode: Mode(flags % 3),
		CC: cc.Config{MSS: 1000, Algorithm: cc.Algorithm(flags / 3 % 3)}, Pacing: flags&64 != 0,
		ForgetSACK: flags&128 != 0, MinRTO: ms}
	if flags&32 != 0 {
		cfg.Clock.Tick = ms
	}
	start := seq.Num(0xffffe000)
	var s Sender
	now := tick.Time(tick.Second)
	s.Init(&cfg, start, now)
	// at makes a byte a sequence number in or near the outstanding bytes.
	at := func() seq.Num {
		b := next()
		return s.Una().Add((b-20)*s.Outstanding()/200 + b%3 - 1)
	}
	for steps := 0; len(prog) > 0 && steps < 2000; steps++ {
		switch next() % ops {
		case opSend:
			for n := next() % 16; n > 0 && s.Permit(now) > 0; n-- {
				k := Data
				if n == 15 {
					k = FIN
				}
				s.Sent(seq.Of(s.Nxt(), 1+next()*4%s.mss), k, n&1 == 0, now)
			}
		case opResend:
			for n := next() % 16; n > 0; n-- {
				tx, ok := s.Retransmit(now)
				if !ok {
					break
				}
				if tx.Empty() || tx.Start.Less(s.Una()) || s.Nxt().Less(tx.End) {
					t.Fatalf("sends again %v of %d..%d", tx, s.Una(), s.Nxt())
				}
				s.Retransmitted(seq.Of(tx.Start, min(tx.Len(), s.mss)), now)
			}
		case opAck:
			a := Ack{Ack: at(), NSACK: next() % 5, HasTS: flags&32 != 0,
				TSEcr: uint32(int(now)/int(ms) - next())}
			f := next()
			a.ECE, a.HasData, a.WindowChanged = f&1 != 0, f&2 != 0, f&4 != 0
			if f&8 != 0 {
				a.CEBytes = next() * 100
			}
			for i := range a.NSACK {
				a.SACK[min(i, 3)] = seq.Range{Start: at(), End: at()}
			}
			before := s.Una()
			r, err := ackTwice(&s, &a, now)
			if err != nil {
				t.Fatal(err)
			}
			if s.Una().Less(before) || s.Nxt().Less(s.Una()) ||
				r.NewlyAcked != s.Una().Diff(before) || r.Delivered < 0 {
				t.Fatalf("Una %d to %d, Nxt %d, %+v", before, s.Una(), s.Nxt(), r)
			}
		case opExpire:
			if d := s.Deadline(); d != tick.Never {
				now = max(now, d)
				s.Expire(now)
				if s.Deadline() <= now {
					t.Fatalf("deadline %d not after %d", s.Deadline(), now)
				}
			}
		case opWait:
			now = now.Add(tick.Duration(next()) * 100 * tick.Microsecond)
		case opMSS:
			s.SetMSS(100+next()*8, now)
		case opNone:
			if s.Permit(now) > 0 {
				s.NoNewData(now)
			}
		}
		if err := invariants(&s); err != nil {
			t.Fatalf("step %d: %v", steps, err)
		}
	}
	// Whatever happened before, an acknowledgement of all bytes leaves nothing outstanding and no timer.
	s.Ack(&Ack{Ack: s.Nxt()}, now)
	if s.Outstanding() != 0 || s.Pipe() != 0 || s.Deadline() != tick.Never && !s.pace.blocked {
		t.Fatalf("all acknowledged, but %+v, deadline %d", s.Info(now), s.Deadline())
	}
}

// FuzzSender runs programs of sends, hostile acknowledgements and timers; see play.
//
//req:rfc6675-4-1 rfc6675-4-4
func FuzzSender(f *testing.F) {
	for flags := range 9 {
		f.Add([]byte{byte(flags), opSend, 10, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200,
			opWait, 100,
			opAck, 20, 1, 0, 0, 60, 90, opAck, 20, 2, 0, 0, 60, 120, 140, 160, opResend, 5,
			opExpire, opResend, 5, opAck, 40, 0, 0, 0, opSend, 3, 1, 1, 1, opAck, 220, 0, 0, 0})
	}
	f.Add(binary.LittleEndian.AppendUint64([]byte{32, opSend, 15}, 0x0102030405060708))
	f.Add([]byte{48, opAck, 50, 0, 0, 0}) // beyond what was sent
	havoc.Fuzz(f, play)
}
