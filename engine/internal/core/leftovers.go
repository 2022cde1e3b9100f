package core

import (
	"fmt"
	"strings"

	"xwarp/ddp/rdmap"
	"xwarp/tcp"
)

// Leftovers lists, for tests, the objects that the workers of a device still hold, and the peers that are still
// charged. It returns "" if there are none.
func Leftovers(d *Device) string {
	var left []string
	note := func(what string, n int) {
		if n != 0 {
			left = append(left, fmt.Sprintf("%d %s", n, what))
		}
	}
	for _, shard := range d.allShards() {
		shard.Call(func() {
			held, records := shard.pool.InUse()
			note("bytes out of order", held)
			note("records", records)
			note("STags", shard.table.Len())
			note("queue pairs", len(shard.Sums.qps))
			note("connections", len(shard.Sums.conns))
			if shard.TCP != nil {
				for _, c := range shard.TCP.Connections() {
					if s := c.Conn().State(); s != tcp.TimeWait {
						left = append(left, s.String())
					}
				}
			}
			if w, ok := shard.thread.(interface{ Leftovers() int }); ok {
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

// Below returns the rdmap.QP of a queue pair and the carrier of its last connection, for tests. Its worker owns both.
func Below(q *QP) (*rdmap.QP, Carrier) { return &q.rdma, q.conn.Load().carrier }
