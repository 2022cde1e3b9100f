package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// autosize estimates the receive space that lets the peer send without pause. Like dynamic right-sizing (Fisk and
// Feng), it is twice the bytes received in a round trip, because the peer at most doubles its window in a round trip.
type autosize struct {
	rtt  tick.Duration
	at   tick.Time // start of the current round
	mark seq.Num   // RCV.NXT at the start
	want int
}

// onReceived updates the estimate after RCV.NXT moved. The round trip is the least time since an echoed timestamp was
// sent, because a peer that has nothing to send for a while makes that time longer. Without timestamps it is the
// estimate of the send side.
func (a *autosize) onReceived(c *Conn, now tick.Time) {
	if c.ts.on && c.cur.ecr != 0 { // each segment with data has timestamps
		d := max(tick.Duration(int32(c.tsval(now)-c.cur.ecr)), 1) * c.cfg.TSTick
		if a.rtt == 0 || d < a.rtt {
			a.rtt = d
		}
	} else if a.rtt == 0 {
		a.rtt = c.tx.SRTT()
	}
	if a.at == 0 {
		a.at, a.mark = now, c.rcvNxt
		return
	}
	if a.rtt == 0 || now.Sub(a.at) < a.rtt {
		return
	}
	if now.Sub(a.at) < 2*a.rtt { // a longer round contained a pause
		a.want = max(a.want, min(2*c.rcvNxt.Diff(a.mark)+16*c.rcvMSS, 0xffff<<c.rcvScale))
	}
	a.at, a.mark = now, c.rcvNxt
}

// WantRcvSpace returns the receive space that would let the peer send without pause, 0 if it is unknown. The layer
// above may grow its buffer to this size and call SetRcvSpace.
func (c *Conn) WantRcvSpace() int { return c.auto.want }
