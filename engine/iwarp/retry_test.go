package iwarp

import (
	"errors"
	"strings"
	"testing"

	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
	"xwarp/tcp"
)

// TestRetry: a peer counts as refusing the Request only if it closes after it has acknowledged the Request (RFC 6581,
// 10). With the engine's own TCP a reset counts as soon as the Request was sent. A failed handshake, a broken path and
// a silent peer do not count.
//
//req:rfc6581-10-4
func TestRetry(t *testing.T) {
	begin := func(d *side, reliable bool) {
		c := d.cfg
		c.Reliable = reliable
		if err := d.Init(c); err != nil {
			t.Fatal(err)
		}
		d.Begin(d, 1000, 1000, 0)
	}
	for _, c := range []struct {
		name          string
		end           func(d *side)
		stack, socket startup.Retry
	}{
		{"refused", func(d *side) {
			d.Init(d.cfg)
			d.Ended(tcp.CauseRefused)
		}, startup.RetryNone, startup.RetryNone},
		{"reset before the Conn began", func(d *side) {
			d.Init(d.cfg)
			d.Ended(tcp.CauseReset)
		}, startup.RetryNone, startup.RetryNone},
		{"reset before the Request left", func(d *side) {
			d.Ended(tcp.CauseReset)
		}, startup.RetryNone, startup.RetryNone},
		{"reset after the Request left", func(d *side) {
			d.transmit()
			d.Ended(tcp.CauseReset)
		}, startup.RetryRevision1, startup.RetryNone},
		{"reset after its acknowledgement", func(d *side) {
			d.transmit()
			d.Acked(d.sndNxt)
			d.Ended(tcp.CauseReset)
		}, startup.RetryRevision1, startup.RetryRevision1},
		{"FIN before the Request came", func(d *side) {
			d.transmit()
			d.PeerClosed(0)
		}, startup.RetryNone, startup.RetryNone},
		{"FIN behind the Request", func(d *side) {
			d.transmit()
			d.Acked(d.sndNxt)
			d.PeerClosed(0)
		}, startup.RetryRevision1, startup.RetryRevision1},
		{"no answer", func(d *side) {
			d.transmit()
			d.Acked(d.sndNxt)
			d.Expire(d.Deadline())
		}, startup.RetryNone, startup.RetryNone},
		{"no acknowledgement", func(d *side) {
			d.transmit()
			d.Ended(tcp.CauseTimeout)
		}, startup.RetryNone, startup.RetryNone},
		{"aborted", func(d *side) {
			d.transmit()
			d.Acked(d.sndNxt)
			d.Abort(0)
			d.Ended(tcp.CauseAborted)
		}, startup.RetryNone, startup.RetryNone},
	} {
		for _, reliable := range []bool{false, true} {
			d := newSide(t, false, startup.Config{Markers: true})
			begin(d, reliable)
			c.end(d)
			want := c.stack
			if reliable {
				want = c.socket
			}
			if d.Retry() != want {
				t.Errorf("%s, socket %v: %v, want %v", c.name, reliable, d.Retry(), want)
			}
			d.Ended(errors.New("gone"))
		}
	}
}

// TestRefusedIsNotMPA: if no TCP connection was established, the error does not mention MPA.
func TestRefusedIsNotMPA(t *testing.T) {
	for _, cause := range []tcp.Cause{tcp.CauseRefused, tcp.CauseUnreachable} {
		d := newSide(t, false, startup.Config{IRD: 2, ORD: 2, RTRs: startup.RTRRead})
		d.Init(d.cfg)
		d.Ended(cause)
		if !errors.Is(d.Err(), verbs.ErrConnect) || !errors.Is(d.Err(), cause) ||
			strings.Contains(d.Err().Error(), "MPA") {
			t.Errorf("%v: %v", cause, d.Err())
		}
	}
}
