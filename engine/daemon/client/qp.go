package client

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

// QP is verbs.QP of a daemon.
type QP struct {
	object
	number  uint32
	send    *CQ
	recv    *CQ
	context any // verbs.QPConfig.UserData

	ends   atomic.Pointer[control.Connected] // nil: never connected
	sq     postRing
	rq     postRing // has no ring if receives are posted to an SRQ
	mem    []byte
	sge    int
	inline int

	mu     sync.Mutex
	down   chan struct{}
	isDown bool
	err    error
	refs   int // completion queues that may still hold completions
}

// CreateQP implements verbs.Device.
func (d *Device) CreateQP(cfg verbs.QPConfig) (verbs.QP, error) {
	pd, send, recv := own[*PD](d, cfg.PD), own[*CQ](d, cfg.SendCQ), own[*CQ](d, cfg.RecvCQ)
	srq := own[*SRQ](d, cfg.SRQ)
	if pd == nil || send == nil || recv == nil || srq == nil && cfg.SRQ != nil {
		return nil, verbs.Wrap("ibv_create_qp", verbs.ErrForeign)
	}
	q := &QP{object: object{dev: d}, send: send, recv: recv, context: cfg.UserData,
		down: make(chan struct{}), refs: 2}
	if send == recv {
		q.refs = 1
	}
	var r control.CreateQPResult
	args := control.CreateQPArgs{
		PD: pd.handle, SendCQ: send.handle, RecvCQ: recv.handle,
		SendDepth: cfg.SendDepth, RecvDepth: cfg.RecvDepth,
		MaxSGE: cfg.MaxSGE, MaxInline: cfg.MaxInline, IRD: cfg.IRD, ORD: cfg.ORD,
	}
	if srq != nil {
		args.SRQ = srq.handle
	}
	files, err := d.open(context.Background(), control.OpCreateQP, args, &r, 1)
	if err != nil {
		return nil, err
	}
	if err := q.open(files[0], &r); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	d.qps[q.handle], d.number[q.number] = q, q
	return q, nil
}

func (q *QP) open(fd int, r *control.CreateQPResult) (err error) {
	q.handle, q.number, q.sge, q.inline = r.Handle, r.Number, r.MaxSGE, r.MaxInline
	last := &r.Send
	if r.Recv != nil {
		last = r.Recv
	}
	if q.mem, err = mapShared(fd, int(last.After())); err != nil {
		return err
	}
	err = q.sq.open(q.dev, q.mem, r.Send, r.Bell)
	if err == nil && r.Recv != nil {
		err = q.rq.open(q.dev, q.mem, *r.Recv, r.Bell)
	}
	return err
}

// onQPDown handles the daemon's event that a connection has ended.
func (d *Device) onQPDown(h control.Handle, e *control.Error) {
	var err error
	if e != nil {
		err = e
	}
	d.mu.Lock()
	q := d.qps[h]
	d.mu.Unlock()
	if q != nil {
		q.markDisconnected(err)
	}
}

func (q *QP) markDisconnected(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.isDown {
		q.isDown, q.err = true, err
		close(q.down)
	}
}

// PostSend implements verbs.QP. It writes wr into the ring that the daemon's pump reads.
func (q *QP) PostSend(wr *verbs.SendWR) error {
	if q.ends.Load() == nil {
		return verbs.ErrNotReady
	}
	if len(wr.SGL) > q.sge || len(wr.Inline) > q.inline {
		return fmt.Errorf("%w: %d SGEs and %d inline bytes; the queue pair allows %d and %d",
			verbs.ErrInvalid, len(wr.SGL), len(wr.Inline), q.sge, q.inline)
	}
	return q.sq.post(func(b []byte) { control.PutSend(b, q.sge, wr) })
}

// PostRecv implements verbs.QP.
func (q *QP) PostRecv(wr *verbs.RecvWR) error {
	if q.rq.dev == nil {
		return fmt.Errorf("%w: the queue pair receives from an SRQ: post to it", verbs.ErrInvalid)
	}
	return q.rq.postRecv(q.sge, wr)
}

// Allow implements verbs.QP.
func (q *QP) Allow(access verbs.Access) error {
	return q.dev.ask(control.OpModifyQP,
		control.ModifyQPArgs{Handle: q.handle, Access: &access}, nil)
}

// SetDSCP implements verbs.QP.
func (q *QP) SetDSCP(dscp int) error {
	return q.dev.ask(control.OpModifyQP, control.ModifyQPArgs{Handle: q.handle, DSCP: &dscp}, nil)
}

// Disconnect implements verbs.QP.
func (q *QP) Disconnect() error {
	return q.ask(control.OpDisconnect, nil)
}

// Close implements verbs.QP.
func (q *QP) Close() error { return q.closeOnce(q.destroy) }

func (q *QP) destroy() error {
	q.closeRings(true)
	err := q.ask(control.OpDestroyQP, nil)
	if err != nil && !errors.Is(err, ErrDaemonGone) && !errors.Is(err, verbs.ErrClosed) {
		q.closeRings(false)
		return err
	}
	q.markDisconnected(verbs.ErrClosed)
	q.send.leave(q)
	if q.recv != q.send {
		q.recv.leave(q)
	}
	return unix.Munmap(q.mem)
}

func (q *QP) closeRings(closed bool) {
	q.sq.setClosed(closed)
	q.rq.setClosed(closed)
}

// leave notes that q is closed. Poll calls q.forget when it finds the ring empty: until then completions may need q.
func (c *CQ) leave(q *QP) {
	c.mu.Lock()
	c.leaving = append(c.leaving, q)
	c.mu.Unlock()
}

// forget is called once by each completion queue of q. The last call removes q from its device.
func (q *QP) forget() {
	q.mu.Lock()
	q.refs--
	last := q.refs == 0
	q.mu.Unlock()
	if last {
		q.dev.mu.Lock()
		delete(q.dev.qps, q.handle)
		delete(q.dev.number, q.number)
		q.dev.mu.Unlock()
	}
}

// Done implements verbs.QP.
func (q *QP) Done() <-chan struct{} { return q.down }

// Err implements verbs.QP.
func (q *QP) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// connection returns the daemon's description of the connection; zero before it is established.
func (q *QP) connection() (c control.Connected) {
	if ends := q.ends.Load(); ends != nil {
		c = *ends
	}
	return c
}

// Params implements verbs.QP.
func (q *QP) Params() *startup.Params { return q.connection().Params }

// LocalAddr implements verbs.QP.
func (q *QP) LocalAddr() netip.AddrPort { return q.connection().Local }

// RemoteAddr implements verbs.QP.
func (q *QP) RemoteAddr() netip.AddrPort { return q.connection().Remote }

// UserData implements verbs.QP.
func (q *QP) UserData() any { return q.context }

// Info implements verbs.QP.
func (q *QP) Info() (i verbs.ConnInfo, err error) {
	err = q.ask(control.OpQueryQP, &i)
	return i, err
}
