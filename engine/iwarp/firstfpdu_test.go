package iwarp

import (
	"errors"
	"strings"
	"testing"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
	"xwarp/tcp/tick"
)

// TestFirstFPDU: a responder, which may send nothing before the initiator's first FPDU, must not wait for it forever.
// An RTR message is part of MPA and due within the start-up timeout; otherwise the initiator's consumer decides when to
// start.
//
//req:rfc5044-7.1.2-7 rfc5044-7.1.2-10
func TestFirstFPDU(t *testing.T) {
	for _, c := range []struct {
		name    string
		rtr     startup.RTR
		timeout tick.Duration
		want    tick.Time
	}{
		{"RTR message", startup.RTRRead, 0, tick.Time(DefaultStartupTimeout)},
		{"client-server model", 0, 0, tick.Time(DefaultFirstFPDUTimeout)},
		{"client-server model, own time", 0, tick.Minute, tick.Time(tick.Minute)},
		{"client-server model, for ever", 0, -1, tick.Never},
	} {
		for _, comes := range []bool{false, true} {
			cfg := startup.Config{IRD: 2, ORD: 2, RTRs: c.rtr}
			i, r := newSide(t, false, cfg), newSide(t, true, cfg)
			k := r.cfg
			k.FirstFPDUTimeout = c.timeout
			if err := r.Init(k); err != nil {
				t.Fatal(err)
			}
			r.Begin(r, 1000, 1000, 0)
			r.receive(t, i.transmit(), 1<<16)
			if err := r.Accept(r.answer(2, 2)); err != nil {
				t.Fatal(err)
			}
			i.receive(t, r.transmit(), 1<<16)
			if r.Deadline() != c.want || !r.up {
				t.Errorf("%s: deadline %v, want %v; %s", c.name, r.Deadline(), c.want, r.describe())
			}
			first := i.transmit()
			if c.rtr == 0 {
				if err := i.qp.PostSend(&rdmap.SendWR{Op: rdmap.WRWrite}); err != nil {
					t.Fatal(err)
				}
				first = i.transmit()
			}
			if comes {
				r.receive(t, first, 1<<16)
				r.Settle(0)
				if r.Deadline() != tick.Never || r.qp.State() != rdmap.RTS {
					t.Errorf("%s: deadline %v after the first FPDU, state %v", c.name, r.Deadline(),
						r.qp.State())
				}
				continue
			}
			if c.want == tick.Never {
				continue
			}
			r.Expire(r.Deadline())
			r.Ended(errors.New("reset"))
			if !r.rst || !errors.Is(r.closed, verbs.ErrTimeout) ||
				!strings.Contains(r.closed.Error(), "first FPDU") || r.qp.State() != rdmap.Errored {
				t.Errorf("%s: RST %v, %v, queue pair %v", c.name, r.rst, r.closed, r.qp.State())
			}
		}
	}
}

// TestRevision0: a peer that uses the RDMA Consortium's MPA, revision 0, gets a Reply of revision 1, and a graceful
// close.
//
//req:rfc5044-C-3
func TestRevision0(t *testing.T) {
	i, r := newSide(t, false, startup.Config{Role: startup.RDMAC}),
		newSide(t, true, startup.Config{Markers: true})
	r.receive(t, i.transmit(), 1<<16)
	r.transmit()
	if got, want := string(r.sent), "MPA ID Rep Frame\xc0\x01\x00\x00"; got != want || !r.fin ||
		r.rst || r.up {
		t.Errorf("sent %q, FIN %v, RST %v, up %v; want %q and FIN", got, r.fin, r.rst, r.up, want)
	}
	i.receive(t, r.sent, 1<<16)
	if i.up || !errors.Is(i.Err(), verbs.ErrStartup) {
		t.Errorf("initiator: up %v, %v", i.up, i.Err())
	}
}
