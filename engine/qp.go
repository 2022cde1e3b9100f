package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/budget"
	"xwarp/engine/iwarp"
	"xwarp/engine/tally"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
	"xwarp/mpa/ulpdu"
)

// QP is verbs.QP of the engine.
type QP struct {
	cfg  verbs.QPConfig // complete
	dev  *Device
	pd   *PD
	send *CQ
	recv *CQ
	sq   postQueue[postedSend]
	rq   postQueue[postedRecv]
	loop atomic.Pointer[loop] // set once the queue pair has a connection

	doorbell doorbell
	closed   sync.Once

	// The worker's.
	core    rdmap.QP
	counted tally.Counted[rdmap.Counters] // what is in the loop's sums
	ses     *iwarp.Conn
	overran bool
	comp    verbs.Completion // of Complete: handed to a sink, a local would be allocated
	closing bool             // Close was called: Dial must not try again

	life    atomic.Uint32                // see qpstate.go
	reached [lifeFreed + 1]chan struct{} // closed when life gets there
	mu      sync.Mutex                   // of what follows, which is set before a channel of reached is closed
	err     error
	params  *startup.Params
	hold    *budget.Hold // of a dialled connection, in the accounts of peers

	conn atomic.Pointer[conn] // the last one that was attached
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
	if pd == nil || pd.dev != d || send == nil || recv == nil {
		return nil, verbs.ErrForeign
	}
	if d.loops[0].over.Load() {
		return nil, verbs.ErrClosed
	}
	q := &QP{
		cfg: cfg.Complete(), dev: d, pd: pd, send: send, recv: recv,
	}
	for l := range q.reached {
		q.reached[l] = make(chan struct{})
	}
	core := q.coreConfig(d.loops[0], 0) // of any loop: bind initialises on the connection's own
	if err := core.Check(); err != nil {
		return nil, err
	}
	q.doorbell.owner = q
	q.sq.init(q.cfg.SendDepth)
	q.rq.init(q.cfg.RecvDepth)
	send.users.Add(1)
	recv.users.Add(1)
	return q, nil
}

func (q *QP) coreConfig(l *loop, i int) rdmap.Config {
	return rdmap.Config{
		Table: l.table, PD: q.pd.pds[i], Stream: ddp.StreamID(nextStream.Add(1)),
		SendDepth: q.cfg.SendDepth, RecvDepth: q.cfg.RecvDepth, MaxSGE: q.cfg.MaxSGE,
		MaxInline: q.cfg.MaxInline,
		MaxIRD:    q.cfg.IRD, MaxORD: q.cfg.ORD, Completer: q, CompareAndSwap: compareAndSwap,
	}
}

// bind makes the i-th worker's loop the owner of q. It runs there.
func (q *QP) bind(l *loop, i int) error {
	if err := q.core.Init(q.coreConfig(l, i)); err != nil {
		q.detach()
		return err
	}
	l.sums.enter(q)
	q.loop.Store(l)
	q.drain()
	return nil
}

// release undoes bind, before anything was posted to the core, so that another attempt or another worker can take q.
func (q *QP) release() {
	q.core.Destroy()
	if l := q.loop.Load(); l != nil {
		l.sums.leave(q)
	}
	q.detach()
}

// detach undoes attach.
func (q *QP) detach() {
	q.ses = nil
	q.life.Store(uint32(lifeIdle))
}

// PostSend implements verbs.QP.
func (q *QP) PostSend(wr *verbs.SendWR) error {
	l := q.loop.Load()
	if l == nil {
		return verbs.ErrNotReady
	}
	if l.over.Load() {
		return verbs.ErrClosed
	}
	if err := q.fits(wr); err != nil {
		return err
	}
	if !q.sq.put(func(p *postedSend) { p.load(wr) }) {
		return verbs.ErrQueueFull
	}
	l.ring(&q.doorbell)
	return nil
}

func (q *QP) fits(wr *verbs.SendWR) error {
	if len(wr.SGL) > q.cfg.MaxSGE || len(wr.Inline) > q.cfg.MaxInline {
		return fmt.Errorf("%w: %d pieces and %d inline octets, the queue pair takes %d and %d",
			verbs.ErrInvalid, len(wr.SGL), len(wr.Inline), q.cfg.MaxSGE, q.cfg.MaxInline)
	}
	return nil
}

// PostRecv implements verbs.QP.
func (q *QP) PostRecv(wr *verbs.RecvWR) error {
	if len(wr.SGL) > q.cfg.MaxSGE {
		return fmt.Errorf("%w: %d pieces, the queue pair takes %d", verbs.ErrInvalid, len(wr.SGL),
			q.cfg.MaxSGE)
	}
	l := q.loop.Load()
	if l != nil && l.over.Load() {
		return verbs.ErrClosed
	}
	if !q.rq.put(func(p *postedRecv) { p.load(wr) }) {
		return verbs.ErrQueueFull
	}
	if l = q.loop.Load(); l != nil {
		l.ring(&q.doorbell)
	}
	return nil
}

// kick runs on the worker after the doorbell was rung.
func (q *QP) kick() {
	q.drain()
	if q.ses != nil {
		q.ses.Wake()
	}
}

// drain moves posted requests into the protocol as far as that has room. It runs on the worker.
func (q *QP) drain() {
	if !q.is(lifeEstablished) || q.loop.Load() == nil {
		return
	}
	for p := q.rq.peek(); p != nil && q.giveRecv(&p.RecvWR); p = q.rq.peek() {
		q.rq.drop()
	}
	for p := q.sq.peek(); p != nil && q.give(&p.SendWR); p = q.sq.peek() {
		q.sq.drop()
	}
}

// postStatus is the completion status for a request that the protocol refused.
func postStatus(err error) verbs.Status {
	switch {
	case errors.Is(err, rdmap.ErrState):
		return rdmap.WRFlushErr
	case errors.Is(err, rdmap.ErrTooLong):
		return rdmap.LocLenErr
	}
	return rdmap.LocQPOpErr
}

// Complete implements rdmap.Completer.
func (q *QP) Complete(c *rdmap.Completion) {
	cq := q.send
	if c.Op == rdmap.WRRecv {
		cq = q.recv
	}
	q.comp = verbs.Completion{ID: c.ID, QP: q, Op: c.Op, Status: c.Status, Flags: c.Flags,
		ByteLen: c.ByteLen, Imm: c.Imm, Invalidated: c.Invalidated}
	if !cq.push(&q.comp) {
		q.overran = true
	}
}

// settle runs on the worker before its connection transmits.
func (q *QP) settle() {
	if q.sq.len() > 0 || q.rq.len() > 0 {
		q.drain()
	}
	if q.overran {
		q.overran = false
		q.core.Fail(ulpdu.Newf(ulpdu.RDMAP, 0, 0, "completion queue overrun"))
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
		a = c.local
	}
	return a
}

// RemoteAddr implements verbs.QP.
func (q *QP) RemoteAddr() (a netip.AddrPort) {
	if c := q.conn.Load(); c != nil {
		a = c.remote
	}
	return a
}

// established waits until q is up or cannot come up any more.
func (q *QP) established(ctx context.Context) error {
	select {
	case <-q.reached[lifeEstablished]:
		return nil
	case <-q.Down():
		if isClosed(q.reached[lifeEstablished]) {
			return nil
		}
		if err := q.Err(); err != nil {
			return err
		}
		return verbs.ErrStartup
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cutOff implements part.
func (q *QP) cutOff(why error) {
	if q.ses != nil {
		q.conn.Load().cutOff(why)
	}
}
