package iwarp

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/ddp/rdmap"
	"xwarp/mpa/startup"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/tick"
)

// in returns a side in state s: an initiator if s is starting, otherwise a responder.
func in(t *testing.T, s state) (d *side) {
	cfg := startup.Config{IRD: 2, ORD: 2, RTRs: startup.RTRRead}
	i, r := newSide(t, false, cfg), newSide(t, true, cfg)
	if s == starting {
		return i
	}
	if s == terminating {
		r.qp.Abort()
	}
	r.receive(t, i.transmit(), 1<<16)
	if err := r.Accept(r.answer(2, 2)); err != nil {
		t.Fatal(err)
	}
	if d = r; s == open {
		i.receive(t, r.transmit(), 1<<16)
		r.receive(t, i.transmit(), 1<<16) // the RTR message
		r.transmit()
	}
	switch s {
	case ending:
		d.fail(ulpdu.Newf(ulpdu.MPA, 0, 2, "wrong"))
	case closed:
		d.Ended(nil)
	}
	d.Settle(0)
	if d.fin, d.rst = false, false; d.state != s {
		t.Fatalf("state %v, want %v", d.state, s)
	}
	return d
}

// postSend posts an empty Send. In a state that does not permit it, this has no effect.
func postSend(d *side) { d.qp.PostSend(&rdmap.SendWR{Op: rdmap.WRSend}) }

// TestStates makes each call that is an event for a connection, in each state. testdata/states.txt has the resulting
// state, transport calls and Handler calls.
func TestStates(t *testing.T) {
	wrong := append([]byte{0, 14}, make([]byte, 18)...) // not a start-up frame, and an FPDU with a bad CRC
	var out strings.Builder
	for s := starting; s < states; s++ {
		for _, call := range []struct {
			name string
			do   func(d *side)
		}{
			{"wrong bytes", func(d *side) {
				d.Offer(d.at, [][]byte{wrong}, len(wrong), checksum.Known{})
				d.Advance(d.at.Add(len(wrong)))
			}},
			{"Accept", func(d *side) { fmt.Fprint(&out, d.Accept(d.answer(1, 1)), "; ") }},
			{"PeerClosed", func(d *side) { d.PeerClosed(0) }},
			{"PeerClosed with a Send under way", func(d *side) { postSend(d); d.PeerClosed(0) }},
			{"PeerClosed inside an FPDU", func(d *side) {
				d.Offer(d.at, [][]byte{wrong[:1]}, 1, checksum.Known{})
				d.Advance(d.at.Add(1))
				d.PeerClosed(0)
			}},
			{"PeerClosed, Abort", func(d *side) { d.PeerClosed(0); d.Conn.Abort(0) }},
			{"wrong bytes, PeerClosed", func(d *side) {
				d.Offer(d.at, [][]byte{wrong}, len(wrong), checksum.Known{})
				d.Advance(d.at.Add(len(wrong)))
				d.PeerClosed(0)
			}},
			{"Disconnect", func(d *side) { d.Disconnect(0) }},
			{"Disconnect with a Send under way", func(d *side) { postSend(d); d.Disconnect(0) }},
			{"Abort", func(d *side) { d.Conn.Abort(0) }},
			{"Expire", func(d *side) {
				if at := d.Deadline(); at != tick.Never {
					d.Expire(at)
				}
			}},
			{"Ended", func(d *side) { d.Ended(nil) }},
			{"Ended by RST", func(d *side) { d.Ended(tcp.CauseReset) }},
			{"Abandon", func(d *side) { d.Abandon(errors.New("panic")) }},
		} {
			d := in(t, s)
			before := len(d.calls)
			fmt.Fprintf(&out, "%v, %s: ", s, call.name)
			call.do(d)
			d.Settle(0)
			fmt.Fprintf(&out, "%v", d.state)
			for _, x := range []struct {
				is   bool
				name string
			}{{d.fin, "FIN"}, {d.rst, "RST"}} {
				if x.is {
					fmt.Fprintf(&out, ", %s", x.name)
				}
			}
			for _, h := range d.calls[before:] {
				fmt.Fprintf(&out, ", %s", h)
			}
			fmt.Fprintf(&out, "; queue pair %v; %v\n", d.qp.State(), d.Err())
		}
	}
	const golden = "testdata/states.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("the connection does not behave as in %s (-want +got; -update writes it "+
			"again):\n%s", golden, diff)
	}
}

// TestNotices: however the connection ends, a Handler gets each notification once and in order.
func TestNotices(t *testing.T) {
	for s := starting; s < closed; s++ {
		d := in(t, s)
		for range 2 {
			d.Disconnect(0)
			d.PeerClosed(0)
			d.Conn.Abort(0)
			d.Settle(0)
			d.Ended(tcp.CauseReset)
		}
		want := map[state]string{starting: "[Closed]",
			open:        "[Request Established Disconnected Closed]",
			terminating: "[Request Closed]", ending: "[Request Established Disconnected Closed]"}[s]
		if got := fmt.Sprint(d.calls); got != want {
			t.Errorf("%v: the Handler got %s, want %s", s, got, want)
		}
	}
}
