package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// autosize measures how much receive space keeps the peer busy: twice what arrives in a round trip, as
// dynamic right-sizing (Fisk and Feng) does, because the peer doubles its window in a round trip at most.
type autosize struct {
	rtt  tick.Duration
	at   tick.Time // the current round began
	mark seq.Num   // RCV.NXT then
	want int
}

// onReceived notes that RCV.NXT moved. The round trip comes from our own timestamp in the segment, of which the
// least counts: a peer that had nothing to send makes it look longer; without timestamps it is the sender
// side's.
func (a *autosize) onReceived(c *Conn, now tick.Time) {
	if c.ts.on && c.cur.ecr != 0 { // each segment has timestamps then
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
	if now.Sub(a.at) < 2*a.rtt { // a longer round held a pause
		a.want = max(a.want, min(2*c.rcvNxt.Diff(a.mark)+16*c.rcvMSS, 0xffff<<c.rcvScale))
	}
	a.at, a.mark = now, c.rcvNxt
}

// WantRcvSpace returns how much receive space would let the peer send without pause, as far as arrivals show:
// a reader that follows may grow its buffer to it and call SetRcvSpace. 0: not known yet.
func (c *Conn) WantRcvSpace() int { return c.auto.want }
