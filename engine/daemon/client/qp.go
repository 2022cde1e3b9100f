package client

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"xwarp/engine"
	"xwarp/engine/daemon/control"
	"xwarp/mpa/startup"
)

// QPConfig describes a queue pair. Zero fields mean the engine's defaults.
type QPConfig struct {
	PD             *PD
	SendCQ, RecvCQ *CQ // may be the same
	SendDepth      int // work requests outstanding in each direction
	RecvDepth      int
	MaxSGE         int
	MaxInline      int
	IRD, ORD       int // RDMA Reads and atomics at a time: inbound, outbound
	Context        any // the consumer's own, see QP.Context
}

// Errors of posting.
var (
	ErrQueueFull = engine.ErrQueueFull
	ErrNotReady  = engine.ErrNotReady
)

// QP is a queue pair: one end of an iWARP connection. Its methods may be called from any goroutine.
type QP struct {
	dev    *Device
	cfg    QPConfig
	handle control.Handle

	connected atomic.Bool
	sendMu    sync.Mutex // consumers that post
	sq        *control.Producer
	recvMu    sync.Mutex
	rq        *control.Producer
	mem       []byte
	bell      uint32
	sge       int
	inline    int

	mu     sync.Mutex
	down   chan struct{}
	isDown bool
	closed bool
	err    error
	ends   control.Connected
	refs   int // completion queues that may still hold completions
}

// CreateQP makes a queue pair, to be connected by Dial or ConnRequest.Accept. Receives may be posted at once.
func (d *Device) CreateQP(cfg QPConfig) (*QP, error) {
	switch {
	case cfg.PD == nil || cfg.PD.dev != d:
		return nil, errors.New("ibv_create_qp: protection domain is missing or of another device")
	case cfg.SendCQ == nil || cfg.RecvCQ == nil:
		return nil, errors.New("ibv_create_qp: completion queue is missing")
	}
	if err := errors.Join(cfg.SendCQ.bind(d), cfg.RecvCQ.bind(d)); err != nil {
		return nil, err
	}
	q := &QP{dev: d, cfg: cfg, down: make(chan struct{}), refs: 2}
	if cfg.SendCQ == cfg.RecvCQ {
		q.refs = 1
	}
	var r control.CreateQPResult
	files, err := d.call(context.Background(), control.OpCreateQP, control.CreateQPArgs{
		PD: cfg.PD.handle, SendCQ: cfg.SendCQ.handle, RecvCQ: cfg.RecvCQ.handle,
		SendDepth: cfg.SendDepth, RecvDepth: cfg.RecvDepth,
		MaxSGE: cfg.MaxSGE, MaxInline: cfg.MaxInline, IRD: cfg.IRD, ORD: cfg.ORD,
	}, &r)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		control.CloseAll(files)
		return nil, fmt.Errorf("%w: create_qp with %d descriptors", control.ErrFrame, len(files))
	}
	if err := q.open(files[0], &r); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	d.qps[q.handle] = q
	return q, nil
}

func (q *QP) open(fd int, r *control.CreateQPResult) (err error) {
	q.handle, q.bell, q.sge, q.inline = r.Handle, r.Bell, r.MaxSGE, r.MaxInline
	if q.bell >= control.MaxQPs {
		unix.Close(fd)
		return fmt.Errorf("%w: bell %d", control.ErrFrame, q.bell)
	}
	if q.mem, err = mapShared(fd, int(r.Recv.After())); err != nil {
		return err
	}
	if q.sq, err = control.NewProducer(q.mem, r.Send); err != nil {
		return err
	}
	q.rq, err = control.NewProducer(q.mem, r.Recv)
	return err
}

// qp returns the queue pair of a handle.
func (d *Device) qp(h control.Handle) *QP {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.qps[h]
}

// down hears from the daemon that a connection is over.
func (d *Device) down(h control.Handle, e *control.Error) {
	if q := d.qp(h); q != nil {
		if e == nil {
			q.setDown(nil)
		} else {
			q.setDown(e)
		}
	}
}

func (q *QP) setDown(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.isDown {
		q.isDown, q.err = true, err
		close(q.down)
	}
}

// PostSend queues *wr, which it copies; the memory that wr's SGL names must stay until the completion.
func (q *QP) PostSend(wr *SendWR) error {
	if !q.connected.Load() {
		return ErrNotReady
	}
	if len(wr.SGL) > q.sge || len(wr.Inline) > q.inline {
		return fmt.Errorf("EINVAL: %d pieces and %d inline octets, the queue pair takes %d and %d",
			len(wr.SGL), len(wr.Inline), q.sge, q.inline)
	}
	return q.post(&q.sendMu, q.sq, func(b []byte) { control.PutSend(b, q.sge, wr) })
}

// PostRecv queues *wr, which it copies, for one Send of the peer.
func (q *QP) PostRecv(wr *RecvWR) error {
	if len(wr.SGL) > q.sge {
		return fmt.Errorf("EINVAL: %d pieces, the queue pair takes %d", len(wr.SGL), q.sge)
	}
	return q.post(&q.recvMu, q.rq, func(b []byte) { control.PutRecv(b, wr) })
}

func (q *QP) post(mu *sync.Mutex, ring *control.Producer, put func([]byte)) error {
	mu.Lock()
	defer mu.Unlock()
	if q.mem == nil {
		return engine.ErrClosed
	}
	slot, err := ring.Next()
	switch {
	case err != nil:
		return err
	case slot == nil:
		if err := q.dev.failed(); err != nil {
			return err
		}
		return ErrQueueFull
	}
	put(slot)
	ring.Publish()
	q.dev.wake(q.bell)
	return nil
}

// Disconnect closes the connection: gracefully when nothing is under way, else what is under way is flushed.
func (q *QP) Disconnect() error {
	return q.dev.ask(control.OpDisconnect, control.Object{Handle: q.handle}, nil)
}

// Close ends the connection abortively if there still is one and gives back what q has.
func (q *QP) Close() error {
	q.mu.Lock()
	again := q.closed
	q.closed = true
	q.mu.Unlock()
	if again {
		return nil
	}
	err := q.dev.ask(control.OpDestroyQP, control.Object{Handle: q.handle}, nil)
	if errors.Is(err, ErrDaemonGone) || errors.Is(err, engine.ErrClosed) {
		err = nil
	}
	if err != nil {
		q.mu.Lock()
		q.closed = false
		q.mu.Unlock()
		return err
	}
	q.setDown(engine.ErrClosed)
	q.sendMu.Lock()
	q.recvMu.Lock()
	mem := q.mem
	q.mem = nil
	q.recvMu.Unlock()
	q.sendMu.Unlock()
	q.cfg.SendCQ.leave(q)
	if q.cfg.RecvCQ != q.cfg.SendCQ {
		q.cfg.RecvCQ.leave(q)
	}
	return unix.Munmap(mem)
}

// leave keeps q known until its last completions were polled.
func (c *CQ) leave(q *QP) {
	c.mu.Lock()
	c.leaving = append(c.leaving, q)
	c.mu.Unlock()
}

func (q *QP) forget() {
	q.mu.Lock()
	q.refs--
	last := q.refs == 0
	q.mu.Unlock()
	if last {
		q.dev.mu.Lock()
		delete(q.dev.qps, q.handle)
		q.dev.mu.Unlock()
	}
}

// Down is closed when the connection left full operation, or never got there; Err says why.
func (q *QP) Down() <-chan struct{} { return q.down }

// Err returns why the connection ended: nil while it is up and after a graceful close.
func (q *QP) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

func (q *QP) setConnected(c *control.Connected) {
	q.mu.Lock()
	q.ends = *c
	q.mu.Unlock()
	q.connected.Store(true)
}

// Params returns what MPA agreed on; nil before the connection is established.
func (q *QP) Params() *startup.Params {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ends.Params
}

// LocalAddr and RemoteAddr are the ends of the connection.
func (q *QP) LocalAddr() netip.AddrPort {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ends.Local
}

// RemoteAddr is the peer's end.
func (q *QP) RemoteAddr() netip.AddrPort {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ends.Remote
}

// Context returns what QPConfig.Context was.
func (q *QP) Context() any { return q.cfg.Context }

// Info returns a snapshot taken on the daemon's worker.
func (q *QP) Info() (i engine.ConnInfo, err error) {
	err = q.dev.ask(control.OpQueryQP, control.Object{Handle: q.handle}, &i)
	return i, err
}
