package iwarp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

var update = flag.Bool("update", false, "rewrite golden files")

// side is one end: a connection, its queue pair, and a transport whose bytes the test delivers.
type side struct {
	Conn
	qp       rdmap.QP
	sent     []byte
	at       seq.Num // sequence number of the next bytes to deliver
	fin, rst bool
	up       bool
	closed   error
	calls    []string // methods of the Handler that were called
}

func (d *side) Schedule()                          {}
func (d *side) Shutdown(tick.Time)                 { d.fin = true }
func (d *side) Abort(tick.Time)                    { d.rst = true }
func (d *side) EMSS() int                          { return 1448 }
func (d *side) Break()                             { d.rst = true }
func (d *side) TakeBack(seq.Num)                   {}
func (d *side) Complete(*rdmap.Completion)         {}
func (d *side) Request(*Conn, *startup.Request)    { d.called("Request") }
func (d *side) Established(*Conn, *startup.Params) { d.up = true; d.called("Established") }
func (d *side) Disconnected(*Conn, error)          { d.called("Disconnected") }
func (d *side) called(what string)                 { d.calls = append(d.calls, what) }
func (d *side) TakePosted()                        {}
func (d *side) Closed(_ *Conn, err error)          { d.closed = err; d.called("Closed") }
func (d *side) answer(ird, ord uint16) (*rdmap.QP, startup.Answer) {
	return &d.qp, startup.Answer{IRD: ird, ORD: ord}
}

func newSide(t *testing.T, responder bool, cfg startup.Config) *side {
	t.Helper()
	d := &side{at: 1000}
	table := ddp.NewTable(rand.New(rand.NewPCG(1, 2)))
	pd, err := table.AllocPD()
	if err == nil {
		err = d.qp.Init(rdmap.Config{Table: table, PD: pd, Stream: 1, SendDepth: 4, RecvDepth: 4,
			MaxSGE: 1, MaxIRD: 4, MaxORD: 4, Completer: d, Starved: func() {}})
	}
	c := Config{Responder: responder, Startup: cfg, Pool: mpa.NewPool(0, 0), Handler: d,
		Reliable: true}
	if !responder {
		c.QP = &d.qp
	}
	if err = errors.Join(err, d.Init(c)); err != nil {
		t.Fatal(err)
	}
	d.Begin(d, 1000, 1000, 0)
	return d
}

// transmit returns the bytes that d has to send.
func (d *side) transmit() (b []byte) {
	d.Settle(0)
	for {
		at := d.sndNxt
		n, _ := d.Next(1448)
		if n == 0 {
			d.Settle(0)
			d.sent = append(d.sent, b...)
			return b
		}
		b = append(b, make([]byte, n)...)
		d.Fill(seq.Of(at, n), b[len(b)-n:])
	}
}

// receive delivers bytes to d in order, in pieces of at most n.
func (d *side) receive(t *testing.T, b []byte, n int) {
	t.Helper()
	for len(b) > 0 {
		k := min(n, len(b))
		if got := d.Offer(d.at, [][]byte{b[:k]}, k, checksum.Known{}); got != k {
			t.Fatalf("%d bytes taken of %d", got, k)
		}
		d.at = d.at.Add(k)
		d.Advance(d.at)
		b = b[k:]
	}
}

// meet runs the start-up of an initiator and a responder until neither has more to send. It delivers the bytes in
// pieces of at most piece bytes. change may modify what the initiator sends after its Request.
func meet(t *testing.T, i, r *side, piece int, change func([]byte)) {
	t.Helper()
	r.receive(t, i.transmit(), piece)
	if err := r.Accept(r.answer(2, 2)); err != nil {
		t.Fatal(err)
	}
	i.receive(t, r.transmit(), piece)
	b := i.transmit()
	if change != nil {
		change(b)
	}
	r.receive(t, b, piece)
	i.receive(t, r.transmit(), piece)
}

func (d *side) describe() string {
	n := 20 + int(d.sent[18])<<8 + int(d.sent[19])
	s := fmt.Sprintf("up %v, FIN %v, RST %v, behind the start-up frame %x", d.up, d.fin, d.rst,
		d.sent[n:])
	if t, ok := d.qp.PeerTerminate(); ok {
		s += fmt.Sprintf(", told %v", t)
	}
	return s
}

// TestLocalFailure: the queue pair of either side fails after MPA's start-up. The peer must get a Terminate as the very
// first FPDU, if it supports RFC 6581. The Terminate of a responder waits for the initiator's first FPDU, and is sent
// only if that FPDU is valid.
//
//req:rfc6581-9.3-1 rfc5044-7.1.2-7
func TestLocalFailure(t *testing.T) {
	var out strings.Builder
	for _, c := range []struct {
		name   string
		cfg    startup.Config
		damage bool // damage the initiator's first FPDU
	}{
		{name: "markers and CRC", cfg: startup.Config{Markers: true, RTRs: startup.RTRRead}},
		{name: "CRC", cfg: startup.Config{RTRs: startup.RTRWrite}},
		{name: "markers", cfg: startup.Config{Markers: true, NoCRC: true, RTRs: startup.RTRSend}},
		{name: "neither", cfg: startup.Config{NoCRC: true, RTRs: startup.RTRRead}},
		{name: "client-server model", cfg: startup.Config{}},
		{name: "revision 1", cfg: startup.Config{Revision: startup.RevIETF}},
		{name: "first FPDU damaged", cfg: startup.Config{RTRs: startup.RTRRead}, damage: true},
	} {
		c.cfg.IRD, c.cfg.ORD = 2, 2
		for _, failing := range []string{"initiator", "responder"} {
			said := ""
			for _, piece := range []int{1 << 16, 1} {
				i, r := newSide(t, false, c.cfg), newSide(t, true, c.cfg)
				bad := i
				if failing == "responder" {
					bad = r
				}
				bad.qp.Abort()
				bad.qp.Actions()
				meet(t, i, r, piece, func(b []byte) {
					if c.damage && len(b) > 0 {
						b[len(b)-1] ^= 1
					}
				})
				if bad.up || !errors.Is(bad.Err(), verbs.ErrStartup) ||
					!errors.Is(bad.Err(), rdmap.ErrState) {
					t.Errorf("%s, %s: up %v, error %v", c.name, failing, bad.up, bad.Err())
				}
				s := fmt.Sprintf("%s fails, %s\n\tinitiator: %s\n\tresponder: %s\n", failing,
					c.name, i.describe(), r.describe())
				if piece == 1 && s != said {
					t.Errorf("byte by byte another story:\n%s", s)
				}
				said = s
			}
			out.WriteString(said)
		}
	}
	const path = "testdata/local-failure.golden"
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(out.String(),
		"\n")); d != "" {
		t.Errorf("the frames changed (-golden +now); run with -update if that is intended:\n%s", d)
	}
}

// TestLocalFailureSilence: the queue pair of a responder fails during the start-up. If no FPDU of the initiator
// arrives, the start-up timer ends the connection by RST.
//
//req:rfc6581-9.3-1
func TestLocalFailureSilence(t *testing.T) {
	cfg := startup.Config{IRD: 2, ORD: 2}
	i, r := newSide(t, false, cfg), newSide(t, true, cfg)
	r.qp.Abort()
	r.qp.Actions()
	meet(t, i, r, 1<<16, nil)
	if r.fin || r.rst || r.Deadline() != tick.Time(DefaultStartupTimeout) {
		t.Fatalf("%s; deadline %v", r.describe(), r.Deadline())
	}
	r.Expire(r.Deadline())
	if !r.rst || r.Deadline() != tick.Never {
		t.Errorf("%s; deadline %v", r.describe(), r.Deadline())
	}
	r.Ended(errors.New("reset"))
	if !errors.Is(r.closed, rdmap.ErrState) {
		t.Errorf("closed: %v", r.closed)
	}
}

// TestReplyRefused: an initiator gets Replies that it cannot accept. Its only FPDU must be a Terminate, as in the
// reference vectors, even if its queue pair cannot start.
//
//req:rfc6581-9.1-4 rfc6581-9.2-5
func TestReplyRefused(t *testing.T) {
	for _, c := range []struct {
		name, words, want string
	}{
		{"ORD above our IRD", "8002 6003", "00164147 00000000 00000002 00000001 00000000 " +
			"20060000 6540fb1b"},
		{"RTR by Write only", "8002 8002", "00164147 00000000 00000002 00000001 00000000 " +
			"20070000 1bd2babe"},
	} {
		for _, aborted := range []bool{false, true} {
			i := newSide(t, false, startup.Config{IRD: 2, ORD: 2, RTRs: startup.RTRRead})
			if aborted {
				i.qp.Abort()
				i.qp.Actions()
			}
			request := len(i.transmit())
			// flags C and S, revision 2, 4 bytes of private data
			reply := append([]byte("MPA ID Rep Frame\x50\x02\x00\x04"), unhex(t, c.words)...)
			i.receive(t, reply, len(reply))
			i.transmit()
			if got := i.sent[request:]; !bytes.Equal(got, unhex(t, c.want)) || !i.fin || i.up {
				t.Errorf("%s: up %v, FIN %v, sent %x", c.name, i.up, i.fin, got)
			}
		}
	}
}

func unhex(t *testing.T, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTerminateThenReset: a Terminate and a reset arrive together, from a peer whose program exits. The Terminate must
// be the reason for the end of the connection.
func TestTerminateThenReset(t *testing.T) {
	i, f, _ := newFaulty(t)
	f.qp.Fail(rdmap.CauseCatastrophic.Errorf("the program ends"))
	for _, b := range f.fill(1) {
		i.receive(t, b, len(b))
	}
	i.Ended(tcp.CauseReset)
	if _, ok := i.qp.PeerTerminate(); !ok || !errors.Is(i.closed, i.qp.Err()) {
		t.Errorf("ended by %v, the queue pair by %v", i.closed, i.qp.Err())
	}
}
