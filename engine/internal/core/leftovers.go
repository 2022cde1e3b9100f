package core

import (
	"fmt"
	"strings"

	"xwarp/ddp/rdmap"
	"xwarp/engine/stack"
	"xwarp/tcp"
)

// Leftovers lists the objects that the workers of a device and its peers' charges still hold, for tests; "" for none.
func Leftovers(d *Device) string {
	var left []string
	note := func(what string, n int) {
		if n != 0 {
			left = append(left, fmt.Sprintf("%d %s", n, what))
		}
	}
	for _, l := range d.allShards() {
		l.Call(func() {
			held, records := l.pool.InUse()
			note("bytes out of order", held)
			note("records", records)
			note("STags", l.table.Len())
			note("queue pairs", len(l.Sums.qps))
			note("connections", len(l.Sums.conns))
			if l.Stack != nil {
				l.Stack.Endpoints(func(e *stack.Endpoint) {
					if s := e.Conn().State(); s != tcp.TimeWait {
						left = append(left, s.String())
					}
				})
			}
			if w, ok := l.thread.(interface{ Leftovers() int }); ok {
				note("slots", w.Leftovers())
			}
		})
	}
	peers, _ := d.opt.Peers.State()
	for _, p := range peers {
		left = append(left, fmt.Sprintf("%+v", p))
	}
	return strings.Join(left, ", ")
}

// Below returns the protocol of a queue pair and the carrier of its last connection, for tests. Its worker owns both.
func Below(q *QP) (*rdmap.QP, Carrier) { return &q.core, q.conn.Load().carrier }
