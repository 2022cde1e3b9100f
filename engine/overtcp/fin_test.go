package overtcp_test

import (
	"errors"
	"testing"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// readRequest returns the FPDU of the first Read Request of a stream, for size bytes.
func readRequest(size uint32) []byte {
	b := make([]byte, ddp.UntaggedLen)
	h := ddp.Untagged{Control: ddp.MakeControl(false, true, ddp.IETF),
		ULP: 1<<6 | uint8(rdmap.OpReadRequest), QN: 1, MSN: 1}
	h.Put(b)
	r := rdmap.ReadRequest{SinkSTag: 0x200, Size: size, SrcSTag: 0x100}
	return fpdu(rdmap.AppendReadRequest(b, r))
}

// TestFINWithReadResponseDue: the peer closes while the response to its Read is due or under way. It gets a RST at
// once, because a FIN would say that nothing is missing. The responder's connection ends, too.
func TestFINWithReadResponseDue(t *testing.T) {
	for name, begun := range map[string]bool{"due": false, "under way": true} {
		h := newHosts(t)
		h.say(write(10))
		h.talk.in = nil
		h.talk.out = append(h.talk.out, readRequest(200_000)...)
		if begun {
			h.talk.ep.Schedule()
			h.run(tick.Millisecond, func() bool { return len(h.talk.in) > 0 })
		}
		h.talk.ep.Shutdown(h.now)
		from := h.now
		h.run(5*tick.Second, func() bool { return h.talk.ep.Conn().State() == tcp.Closed })
		if err := h.talk.ep.Err(); !errors.Is(err, tcp.CauseReset) ||
			h.now.Sub(from) > tick.Millisecond {
			t.Errorf("response %s: %v after %d us, want a RST at once", name, err,
				h.now.Sub(from)/tick.Microsecond)
		}
		if got := len(h.talk.in); (got > 0) != begun || got >= 200_000 || !h.hear.closed {
			t.Errorf("response %s: %d bytes of it came, closed %v", name, got, h.hear.closed)
		}
	}
}
