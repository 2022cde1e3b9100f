package core

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/budget"
	"xwarp/engine/iwarp"
	"xwarp/engine/tally"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

// QP is verbs.QP of the engine.
type QP struct {
	cfg  verbs.QPConfig // complete
	dev  *Device
	pd   *PD
	send *CQ
	recv *CQ
	srq  *SRQ // nil: none
	sq   postQueue[postedSend]
	rq   postQueue[postedRecv]
	loop atomic.Pointer[Shard] // set once the queue pair has a connection

	ird, ord int // of the next connection, see SetReadDepth
	owner    any // see SetOwner

	doorbell Doorbell
	close    sync.Once
	closed   atomic.Bool   // Close was called: nothing may be posted, and Dial must not try again
	denied   atomic.Uint32 // rights that Allow did not name

	// The worker's.
	core    rdmap.QP
	counted tally.Counted[rdmap.Counters] // what is in the loop's sums
	iw      *iwarp.Conn
	share   *Share // on loop; nil: none
	overran bool
	comp    verbs.Completion // of Complete: handed to a sink, a local would be allocated

	life    atomic.Uint32                // see qpstate.go
	reached [lifeFreed + 1]chan struct{} // closed when life gets there
	mu      sync.Mutex                   // of what follows, which is set before a channel of reached is closed
	err     error
	down    time.Time // when there was no connection any more that the consumer can use
	params  *startup.Params
	charge  *budget.Charge // of a dialled connection, in the accounts of peers

	conn atomic.Pointer[Conn] // the last one that was attached

	more func() // posts the receives that the consumer has elsewhere; nil: none. Set before there is a connection
}

var nextStream atomic.Uint64

// CreateQP implements verbs.Device.
func (d *Device) CreateQP(cfg verbs.QPConfig) (verbs.QP, error) {
	q, err := d.createQP(cfg)
	if err != nil {
		return nil, verbs.Wrap("ibv_create_qp", err)
	}
	return q, nil
}

func (d *Device) createQP(cfg verbs.QPConfig) (*QP, error) {
	pd, _ := cfg.PD.(*PD)
	send, _ := cfg.SendCQ.(*CQ)
	recv, _ := cfg.RecvCQ.(*CQ)
	srq, shares := cfg.SRQ.(*SRQ)
	if pd == nil || pd.dev != d || send == nil || recv == nil || cfg.SRQ != nil && !shares {
		return nil, verbs.ErrForeign
	}
	if shares && srq.pd != pd {
		return nil, fmt.Errorf("%w: the shared receive queue is in another protection domain",
			verbs.ErrInvalid)
	}
	if d.loops[0].over.Load() {
		return nil, verbs.ErrClosed
	}
	q := &QP{
		cfg: cfg.Complete(), dev: d, pd: pd, send: send, recv: recv, srq: srq,
	}
	for l := range q.reached {
		q.reached[l] = make(chan struct{})
	}
	q.ird, q.ord = q.cfg.IRD, q.cfg.ORD
	core := q.coreConfig(d.loops[0]) // of any loop: bind initialises on the connection's own
	if err := core.Check(); err != nil {
		return nil, err
	}
	q.doorbell.Owner = qpBell{q}
	q.sq.init(q.cfg.SendDepth)
	if srq == nil {
		q.rq.init(q.cfg.RecvDepth)
	} else {
		q.rq.init(1)
		srq.users.Add(1)
	}
	send.users.Add(1)
	recv.users.Add(1)
	return q, nil
}

// Allow implements verbs.QP.
func (q *QP) Allow(access verbs.Access) error {
	if access&^verbs.RemoteRights != 0 {
		return verbs.Wrap("ibv_modify_qp", fmt.Errorf("%w: %v is no right of a peer",
			verbs.ErrInvalid, access))
	}
	denied := verbs.RemoteRights &^ access
	q.denied.Store(uint32(denied))
	if c := q.conn.Load(); c != nil { // else bind sees it
		return c.call(func() { q.core.Deny(denied) })
	}
	return nil
}

// SetReadDepth sets how many Reads and atomics the next connection of q may have under way: the peer's
// (ird) and our own (ord). They are at most those of the configuration, which 0 stands for; a negative
// number means none.
func (q *QP) SetReadDepth(ird, ord int) error {
	ird, ord = max(0, cmp.Or(ird, q.cfg.IRD)), max(0, cmp.Or(ord, q.cfg.ORD))
	if ird > q.cfg.IRD || ord > q.cfg.ORD {
		return fmt.Errorf("%w: %d and %d Reads at a time (responder_resources, initiator_depth), "+
			"where the queue pair has %d and %d", verbs.ErrInvalid, ird, ord, q.cfg.IRD,
			q.cfg.ORD)
	}
	q.ird, q.ord = ird, ord
	return nil
}

// reclaim is rdmap.Config.Reclaim.
func (q *QP) reclaim() {
	if c := q.conn.Load(); c != nil && c.below != nil {
		c.below.Reclaim()
	}
}

// Context implements verbs.QP.
func (q *QP) Context() any { return q.cfg.Context }

func (q *QP) coreConfig(l *Shard) rdmap.Config {
	return rdmap.Config{
		Table: l.table, PD: q.pd.pds[l.index], Stream: ddp.StreamID(nextStream.Add(1)),
		SendDepth: q.cfg.SendDepth, RecvDepth: q.cfg.RecvDepth, MaxSGE: q.cfg.MaxSGE,
		MaxInline: q.cfg.MaxInline,
		MaxIRD:    q.ird, MaxORD: q.ord, Completer: q, CompareAndSwap: compareAndSwap,
		Refill: q.refill, Reclaim: q.reclaim,
	}
}

// Down implements verbs.QP.
func (q *QP) Down() <-chan struct{} { return q.reached[lifeDisconnected] }

// Gone is closed when nothing of the connection is left, after Down: both directions are closed, or it was
// reset or given up.
func (q *QP) Gone() <-chan struct{} { return q.reached[lifeGone] }

// Err implements verbs.QP.
func (q *QP) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// Params implements verbs.QP.
func (q *QP) Params() *startup.Params {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.params
}

// LocalAddr implements verbs.QP.
func (q *QP) LocalAddr() (a netip.AddrPort) {
	if c := q.conn.Load(); c != nil {
		a = c.Local
	}
	return a
}

// RemoteAddr implements verbs.QP.
func (q *QP) RemoteAddr() (a netip.AddrPort) {
	if c := q.conn.Load(); c != nil {
		a = c.Remote
	}
	return a
}

// qpBell is the owner of a queue pair's doorbell.
type qpBell struct{ *QP }

// abandon implements abandoner.
func (q qpBell) EndAfterPanic(why error) {
	if q.iw != nil {
		q.conn.Load().EndAfterPanic(why)
	}
}

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
func (q *QP) info(c *Conn) verbs.ConnInfo {
	return verbs.ConnInfo{State: q.core.State(), Transport: c.below.Transport(), MPA: c.iw.Stats(),
		Counters: q.core.Counters, TCP: c.below.TCPInfo()}
}

// infoBatch is how many queue pairs a worker looks at before it goes on with its packets.
const infoBatch = 32

// Infos is Info of many queue pairs of the engine at a time, which costs their workers less; nil for those that have no
// connection.
func Infos(list []verbs.QP) []*verbs.ConnInfo {
	infos := make([]*verbs.ConnInfo, len(list))
	qps := make([]*QP, len(list))
	of := map[*Shard][]int{}
	for i, q := range list {
		qps[i] = q.(*QP)
		if c := qps[i].conn.Load(); c != nil {
			l := c.Owner.Load()
			of[l] = append(of[l], i)
		}
	}
	for l, all := range of {
		if l.stall() != nil {
			continue
		}
		for part := range slices.Chunk(all, infoBatch) {
			l.Call(func() {
				for _, i := range part {
					if c := qps[i].conn.Load(); c.Owner.Load() == l { // else it moves just now
						l.Doing = qps[i].doorbell.Owner
						v := qps[i].info(c)
						infos[i] = &v
					}
				}
			})
		}
	}
	return infos
}
