package engine

import (
	"slices"

	"xwarp/ddp/rdmap"
	"xwarp/mpa"
)

// ConnInfo is the state of a connection for people and tests.
type ConnInfo struct {
	State    rdmap.State
	MPA      mpa.ReceiverStats
	Counters rdmap.Counters
	TCP      *TCPInfo // nil on the kernel transport
}

// Info returns a snapshot taken on the worker.
func (q *QP) Info() (i ConnInfo, err error) {
	c := q.conn.Load()
	if c == nil {
		return i, ErrNotReady
	}
	err = c.call(func() { i = q.info(c) })
	return i, err
}

// info runs on the worker of c.
func (q *QP) info(c *conn) ConnInfo {
	i := ConnInfo{State: q.core.State(), MPA: c.ses.Stats(), Counters: q.core.Counters}
	if c.info != nil {
		i.TCP = c.info()
	}
	return i
}

// infoBatch is how many queue pairs a worker looks at before it goes on with its packets.
const infoBatch = 32

// Infos is Info of many queue pairs at a time, which costs their workers less; nil for those that have no connection.
func Infos(list []*QP) []*ConnInfo {
	infos := make([]*ConnInfo, len(list))
	of := map[*loop][]int{}
	for i, q := range list {
		if c := q.conn.Load(); c != nil {
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
					if c := list[i].conn.Load(); c.owner.Load() == l { // else it moves just now
						l.doing = list[i]
						v := list[i].info(c)
						infos[i] = &v
					}
				}
			})
		}
	}
	return infos
}
