package engine

import (
	"fmt"
	"strings"

	"xwarp/bpf"
	"xwarp/engine/stack"
	"xwarp/tcp"
)

// SteeringOf returns the steering of a device on AF_XDP.
func SteeringOf(d *XDPDevice) *bpf.Steering { return d.x.steer }

// Left says what the workers of a device still have; "" for nothing.
func Left(d *Device) string {
	var left []string
	note := func(what string, n int) {
		if n != 0 {
			left = append(left, fmt.Sprintf("%d %s", n, what))
		}
	}
	for _, l := range d.all() {
		l.call(func() {
			octets, records := l.pool.InUse()
			note("octets out of order", octets)
			note("records", records)
			note("STags", l.table.Len())
			note("queue pairs", len(l.sums.qps))
			note("connections", len(l.sums.conns))
			if l.stack != nil {
				l.stack.Endpoints(func(e *stack.Endpoint) {
					if s := e.Conn().State(); s != tcp.TimeWait {
						left = append(left, s.String())
					}
				})
			}
			if w, ok := l.thread.(*kernelWorker); ok {
				note("sockets", int(w.conns.Load()))
				note("slots", len(w.slots)-len(w.free))
			}
		})
	}
	peers, _ := d.opt.Peers.State()
	for _, p := range peers {
		left = append(left, fmt.Sprintf("%+v", p))
	}
	return strings.Join(left, ", ")
}
