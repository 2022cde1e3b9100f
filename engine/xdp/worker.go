package xdp

import (
	"errors"
	"fmt"
	"sync/atomic"

	"xwarp/engine/internal/core"
	"xwarp/engine/stack"
	"xwarp/engine/verbs"
	"xwarp/ring"
)

// worker is the part of a device that runs on the thread of one queue: a stack and a shard. Only the thread may use the
// stack and the contents of the shard.
type worker struct {
	*core.Shard
	thread  *thread
	lane    *lane
	port    ring.Port // of the stack: lane, or Config.Wrap's decorator of it
	stk     *stack.Stack
	stop    atomic.Bool // the device is being closed: no connection may start
	lostErr error       // the error of a device whose interface is gone; set together with CheckTables

	consumer func() bool // Config.Consumer, nil for none
}

func newWorker(t *thread, vlan uint16) *worker {
	l := &lane{Port: t.port, thread: t, vlan: vlan}
	w := &worker{Shard: core.NewShard(t), thread: t, lane: l, port: l}
	w.Queue = t.queue
	return w
}

// runPosted calls the consumer, if there is one, and runs posted work. It reports whether either did anything.
func (w *worker) runPosted() bool {
	worked := w.consumer != nil && w.callConsumer()
	return w.RunPosted() || worked
}

// check runs after CheckTables was set. It ends a worker whose interface is gone. After a panic it returns an error if
// the tables of the stack are inconsistent.
func (w *worker) check() error {
	w.CheckTables = false
	if w.lostErr != nil {
		w.fail(w.lostErr)
		w.thread.removeWorker(w)
		return nil
	}
	if err := w.stk.Check(); err != nil {
		return w.thread.disorder(err)
	}
	return nil
}

// fail ends the worker with err: later posts fail, its connections end, and the device fails.
func (w *worker) fail(err error) {
	w.FailDevice(err)
	w.Shard.CloseMailbox()
	now := core.Now()
	var all []*stack.Endpoint
	w.stk.Endpoints(func(e *stack.Endpoint) { all = append(all, e) })
	for _, e := range all {
		w.stk.Abandon(e, err, now)
	}
	core.Attempt(func() { w.stk.Transmit(now) }) // send the resets of Abandon
	w.GoIdle()
}

// close resets the remaining connections and ends the worker. It is called between turns of the thread.
func (w *worker) close() (err error) {
	if v := core.Attempt(func() { err = w.stk.Close(core.Now()) }); v != nil {
		err = fmt.Errorf("worker of queue %d: %w: %v", w.Queue, verbs.ErrDefect, v)
		core.Attempt(func() { err = errors.Join(err, w.port.Close()) })
	}
	w.Shard.CloseMailbox()
	w.thread.removeWorker(w)
	return err
}

func (w *worker) callConsumer() bool {
	w.Consuming = true
	w.EnterPlace(core.AtConsumer)
	worked := w.consumer()
	w.Consuming = false
	return worked
}
