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

	bell   bell
	closed sync.Once

	// The worker's.
	core    rdmap.QP
	counted tally.Counted[rdmap.Counters] // what is in the loop's sums
	ses     *iwarp.Conn
	wakeTr  func()
	overran bool
	comp    verbs.Completion // of Complete: handed to a sink, a local would be allocated
	closing bool             // Close was called: Dial must not try again
	ready   bool             // the connection stays on this worker: posted work may go into the core

	// Set by the worker before a channel below is closed.
	mu     sync.Mutex
	up     chan struct{} // closed when established
	down   chan struct{} // closed when the queue pair left RTS or never got there
	gone   chan struct{} // closed when the connection is gone
	freed  chan struct{} // closed after that, when Close was called and nothing of q is left on the worker
	onEnd  func()        // called then
	isDown bool
	err    error
	params *startup.Params

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
		up: make(chan struct{}), down: make(chan struct{}),
		gone: make(chan struct{}), freed: make(chan struct{}),
	}
	core := q.coreConfig(d.loops[0], 0) // of any loop: bind initialises on the connection's own
	if err := core.Check(); err != nil {
		return nil, err
	}
	q.bell.kick, q.bell.of = q.kick, q
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
		q.ses = nil
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
	q.ses, q.wakeTr = nil, nil
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
	l.ring(&q.bell)
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
		l.ring(&q.bell)
	}
	return nil
}

// kick runs on the worker after a bell.
func (q *QP) kick() {
	q.drain()
	if q.wakeTr != nil {
		q.wakeTr()
	}
}

// drain moves posted requests into the protocol as far as that has room. It runs on the worker.
func (q *QP) drain() {
	if !q.ready {
		return
	}
	for p := q.rq.peek(); p != nil && q.giveRecv(&p.RecvWR); p = q.rq.peek() {
		q.rq.drop()
	}
	for p := q.sq.peek(); p != nil && q.give(&p.SendWR); p = q.sq.peek() {
		q.sq.drop()
	}
}

func (q *QP) finished() bool {
	select {
	case <-q.down:
		return true
	default:
		return false
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
func (q *QP) Down() <-chan struct{} { return q.down }

// Gone is closed when nothing of the connection is left, after Down: both directions are closed, or it was
// reset or given up.
func (q *QP) Gone() <-chan struct{} { return q.gone }

// onGone has f called when the connection is gone, which may be at once.
func (q *QP) onGone(f func()) {
	q.mu.Lock()
	over := isClosed(q.gone)
	if !over {
		q.onEnd = f
	}
	q.mu.Unlock()
	if over {
		f()
	}
}

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
	case <-q.up:
		return nil
	case <-q.down:
		if isClosed(q.up) {
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

// iwarp.Handler, on the worker.

func (q *QP) setUp(p *startup.Params) {
	q.mu.Lock()
	q.params = p
	q.mu.Unlock()
	close(q.up)
	q.ready = true
	q.drain()
}

func (q *QP) setDown(err error) {
	q.mu.Lock()
	first := !q.isDown
	if first {
		q.isDown, q.err = true, verbs.Wrap("", err)
	}
	q.mu.Unlock()
	if first {
		close(q.down)
		q.drain()
	}
}

func (q *QP) setGone(err error) {
	if isClosed(q.gone) {
		return
	}
	defer q.leave() // also after a panic: somebody waits
	q.setDown(err)
	q.ready = true
	if q.core.State() == rdmap.Idle {
		q.core.Abort()
	}
	q.drain()
}

// leave says that nothing of the connection is left.
func (q *QP) leave() {
	q.mu.Lock()
	close(q.gone)
	f := q.onEnd
	q.mu.Unlock()
	if f != nil {
		f()
	}
	// Not at once: the connection, which tells of its end here, may still ask the core.
	if l := q.loop.Load(); q.closing && (l == nil || !l.post(q.free)) {
		q.free()
	}
}

// cutOff implements part.
func (q *QP) cutOff(why error) {
	if q.ses != nil {
		q.conn.Load().cutOff(why)
	}
}
