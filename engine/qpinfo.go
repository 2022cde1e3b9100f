package engine

import (
	"slices"

	"xwarp/engine/verbs"
)

// Info implements verbs.QP.
func (q *QP) Info() (i verbs.ConnInfo, err error) {
	c := q.conn.Load()
	if c == nil {
		return i, verbs.ErrNotReady
	}
	err = c.call(func() { i = q.info(c) })
	return i, err
}

// info runs on the worker of c.
func (q *QP) info(c *conn) verbs.ConnInfo {
	return verbs.ConnInfo{State: q.core.State(), MPA: c.ses.Stats(), Counters: q.core.Counters,
		TCP: c.below.tcpInfo()}
}

// infoBatch is how many queue pairs a worker looks at before it goes on with its packets.
const infoBatch = 32

// countBatch is how many of the objects behind Totals, each of which costs less.
const countBatch = 64

// Infos is Info of many queue pairs of the engine at a time, which costs their workers less; nil for those that have no
// connection.
func Infos(list []verbs.QP) []*verbs.ConnInfo {
	infos := make([]*verbs.ConnInfo, len(list))
	qps := make([]*QP, len(list))
	of := map[*loop][]int{}
	for i, q := range list {
		qps[i] = q.(*QP)
		if c := qps[i].conn.Load(); c != nil {
			l := c.owner.Load()
			of[l] = append(of[l], i)
		}
	}
	for l, all := range of {
		if l.stall() != nil {
			continue
		}
		for part := range slices.Chunk(all, infoBatch) {
			l.call(func() {
				for _, i := range part {
					if c := qps[i].conn.Load(); c.owner.Load() == l { // else it moves just now
						l.doing = qps[i]
						v := qps[i].info(c)
						infos[i] = &v
					}
				}
			})
		}
	}
	return infos
}
