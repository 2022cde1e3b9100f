package core

import (
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
	cfg  verbs.QPConfig // with the defaults filled in
	dev  *Device
	pd   *PD
	send *CQ
	recv *CQ
	srq  *SRQ // nil: none

	// Set before there is a connection.
	ird, ord   int    // of the next connection, see SetReadDepth
	user       any    // see SetUser
	onEmpty    func() // see OnEmpty; nil: none
	waits      bool   // messages wait for receives: see WaitForReceives and EmulateRC
	peerAgrees string
	rnrTimer   uint8
	onWaits    func(waits bool, timer uint8)

	// Accessed by any goroutine.
	sq       postQueue[rdmap.SendWR]
	rq       postQueue[rdmap.RecvWR]
	doorbell Doorbell
	shard    atomic.Pointer[Shard] // shard of its worker; nil before the first attempt to connect, and between attempts
	conn     atomic.Pointer[Conn]  // the last connection that was attached
	close    sync.Once
	closed   atomic.Bool   // Close was called: posts fail, and Dial must not try again
	denied   atomic.Uint32 // rights that Allow took away
	dscp     atomic.Int32  // argument of SetDSCP

	// Owned by the worker.
	rdma    rdmap.QP
	counted tally.Counted[rdmap.Counters] // counters that the shard's sums already contain
	iw      *iwarp.Conn
	share   *Share // of the user that SetUser set, on shard; nil while no worker is bound
	overran bool
	comp    verbs.Completion // used by Complete: a local variable would be allocated, since a sink gets its address

	life    atomic.Uint32                // see qpstate.go
	reached [lifeFreed + 1]chan struct{} // reached[l] is closed when life becomes l; it stays open if life skips l
	mu      sync.Mutex                   // guards the fields below
	err     error
	downAt  time.Time // time at which the connection left full operation
	params  *startup.Params
	charge  *budget.Charge // charge of a connection that this end dialled; otherwise nil
}

var nextStream atomic.Uint64

// CreateQP implements verbs.Device.
func (d *Device) CreateQP(cfg verbs.QPConfig) (verbs.QP, error) {
	q, err := d.NewQP(cfg)
	if err != nil {
		return nil, err
	}
	return q, nil
}

// NewQP is CreateQP for callers that need methods of QP that verbs.QP does not have.
func (d *Device) NewQP(cfg verbs.QPConfig) (*QP, error) {
	q, err := d.createQP(cfg)
	return q, verbs.Wrap("ibv_create_qp", err)
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
	if d.shards[0].isEnded.Load() {
		return nil, verbs.ErrClosed
	}
	q := &QP{
		cfg: cfg.Complete(), dev: d, pd: pd, send: send, recv: recv, srq: srq,
	}
	for s := range q.reached {
		q.reached[s] = make(chan struct{})
	}
	q.ird, q.ord = q.cfg.IRD, q.cfg.ORD
	core := q.coreConfig(d.shards[0]) // with any shard, only to check it: bind makes the one of the connection's shard
	if err := core.Check(); err != nil {
		return nil, err
	}
	q.doorbell.Target = qpDoorbell{q}
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
		return verbs.Wrap("ibv_modify_qp", fmt.Errorf("%w: %v is not a remote access right",
			verbs.ErrInvalid, access))
	}
	denied := verbs.RemoteRights &^ access
	q.denied.Store(uint32(denied))
	if c := q.conn.Load(); c != nil { // otherwise bind applies it
		return c.call(func() { q.rdma.Deny(denied) })
	}
	return nil
}

// Allowed returns the rights that the last call of Allow left to the peer; all remote rights before the first call.
func (q *QP) Allowed() verbs.Access { return verbs.RemoteRights &^ verbs.Access(q.denied.Load()) }

// SetDSCP implements verbs.QP.
func (q *QP) SetDSCP(dscp int) error {
	if err := verbs.CheckDSCP(dscp); err != nil {
		return verbs.Wrap("ibv_modify_qp", err)
	}
	q.dscp.Store(int32(dscp))
	if c := q.conn.Load(); c != nil { // otherwise the connection begins with it
		return c.call(func() { c.carrier.SetTOS(c.TOS()) })
	}
	return nil
}

// MoveReceives moves the receives that were posted to q into another queue pair of the same depth. Neither may have had
// a connection, and nothing may post to them meanwhile. If q uses an SRQ, it does nothing.
func (q *QP) MoveReceives(to *QP) error {
	for p := q.rq.peek(); p != nil && q.srq == nil; p = q.rq.peek() {
		if err := to.PostRecv(p); err != nil {
			return err
		}
		q.rq.advance()
	}
	return nil
}

// SetReadDepth sets the maximum number of Reads and atomics in flight on the next connection of q: those of the peer
// (ird) and of this end (ord). They may not exceed the configuration's. Zero means the configuration's, verbs.None
// none.
func (q *QP) SetReadDepth(ird, ord int) error {
	ird, ord = verbs.OrDefault(ird, q.cfg.IRD), verbs.OrDefault(ord, q.cfg.ORD)
	if ird < 0 || ord < 0 || ird > q.cfg.IRD || ord > q.cfg.ORD {
		return fmt.Errorf("%w: responder_resources %d and initiator_depth %d, but "+
			"the queue pair allows %d and %d", verbs.ErrInvalid, ird, ord, q.cfg.IRD,
			q.cfg.ORD)
	}
	q.ird, q.ord = ird, ord
	return nil
}

// reclaim is rdmap.Config.Reclaim.
func (q *QP) reclaim() {
	if c := q.conn.Load(); c != nil && c.carrier != nil {
		c.carrier.Reclaim()
	}
}

// UserData implements verbs.QP.
func (q *QP) UserData() any { return q.cfg.UserData }

func (q *QP) coreConfig(s *Shard) rdmap.Config {
	cfg := rdmap.Config{
		Table: s.table, PD: q.pd.pds[s.index], Stream: ddp.StreamID(nextStream.Add(1)),
		SendDepth: q.cfg.SendDepth, RecvDepth: q.cfg.RecvDepth, MaxSGE: q.cfg.MaxSGE,
		MaxInline: q.cfg.MaxInline,
		MaxIRD:    q.ird, MaxORD: q.ord, Completer: q, CompareAndSwap: compareAndSwap,
		Refill: q.refill, Reclaim: q.reclaim,
	}
	if q.waits {
		cfg.Starved, cfg.PeerAgrees, cfg.PeerWaits = q.starved, q.peerAgrees, q.onWaits
		cfg.RNRTimer = q.rnrTimer
	}
	return cfg
}

// EmulateRC gives q the behaviour of InfiniBand's reliable connections, if the peer's private data is peerAgrees: Send
// with immediate data, completions that mean that the peer has placed the message, and "receiver not ready" (see
// rdmap/private.go). A message without a receive waits until one is posted, instead of ending the connection: without a
// time limit if the peer agrees, otherwise as with WaitForReceives. Later messages wait as well; only tagged data, such
// as that of RDMA Writes, is placed meanwhile.
//
// rnrTimer is IBV_QP_MIN_RNR_TIMER, which the peer gets when one of its messages waits. onWaits is called on the worker
// when the peer reports that a message of q begins or ends waiting for a receive, with the peer's timer. EmulateRC
// must be called before q has a connection.
func (q *QP) EmulateRC(peerAgrees string, rnrTimer uint8, onWaits func(waits bool, timer uint8)) {
	q.waits, q.peerAgrees, q.rnrTimer, q.onWaits = true, peerAgrees, rnrTimer, onWaits
}

// WaitForReceives makes a message without a receive wait for one, at most iwarp.DefaultReceiveTimeout, instead of
// ending the connection. TCP flow control stops the peer, which is not otherwise affected. It must be called before q
// has a connection.
func (q *QP) WaitForReceives() { q.waits = true }

// starved is rdmap.Config.Starved. Only a shared receive queue must record q: a receive that is posted to q itself
// rings q's doorbell.
func (q *QP) starved() {
	if q.srq != nil {
		q.srq.addStarved(q)
	}
}

// Done implements verbs.QP.
func (q *QP) Done() <-chan struct{} { return q.reached[lifeDisconnected] }

// Gone returns a channel that is closed after Done, when the connection has ended: both directions are closed, or it
// was reset or abandoned.
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

// qpDoorbell is the owner of a queue pair's doorbell.
type qpDoorbell struct{ *QP }

// EndAfterPanic implements panicTarget.
func (q qpDoorbell) EndAfterPanic(why error) {
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
	return verbs.ConnInfo{State: q.rdma.State(), Transport: c.carrier.Transport(),
		DSCP: int(c.TOS() >> 2), MPA: c.iw.Stats(),
		Counters: q.rdma.Counters, TCP: c.carrier.TCPInfo()}
}

// infoBatch is the number of queue pairs that a worker reports on before it goes on with its packets.
const infoBatch = 32

// Infos returns the Info of many queue pairs of the engine. It costs their workers less than a call of Info for each.
// An element is nil if the queue pair has no connection, if its worker has stalled or ended, or if the queue pair is
// moving to another worker.
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
					if c := qps[i].conn.Load(); c.Owner.Load() == l { // otherwise it is moving
						l.Current = qps[i].doorbell.Target
						v := qps[i].info(c)
						infos[i] = &v
					}
				}
			})
		}
	}
	return infos
}
