package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"xwarp/bench/topo"
	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// end is one host with everything that a run needs of it.
type end struct {
	name    string
	host    *topo.Host
	dev     *xdp.Device
	pd      verbs.PD
	sends   verbs.CQ
	recvs   verbs.CQ
	qp      verbs.QP
	mem     [][]byte
	buffers []verbs.MR
}

// open starts the engine of a host.
func (e *end) open(cfg xdp.Config) error {
	cfg.Interface = e.host.Link.Name
	err := e.host.Do(func() (err error) {
		e.dev, err = xdp.Open(cfg)
		return err
	})
	if err != nil {
		return fmt.Errorf("host %s: %w", e.name, err)
	}
	return nil
}

// prepare makes the queue pair, with room for recvDepth receives, and one region for each of access.
func (e *end) prepare(size int64, recvDepth int, access ...verbs.Access) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("host %s: %w", e.name, err)
		}
	}()
	if e.pd, err = e.dev.AllocPD(); err != nil {
		return err
	}
	if e.sends, err = e.dev.CreateCQ(2 * depth); err != nil {
		return err
	}
	if e.recvs, err = e.dev.CreateCQ(recvDepth); err != nil {
		return err
	}
	for _, a := range access {
		b, err := mapMemory(size)
		if err != nil {
			return err
		}
		e.mem = append(e.mem, b)
		mr, err := e.pd.RegMR(b, a)
		if err != nil {
			return err
		}
		e.buffers = append(e.buffers, mr)
	}
	e.qp, err = e.dev.CreateQP(verbs.QPConfig{
		PD: e.pd, SendCQ: e.sends, RecvCQ: e.recvs, SendDepth: 2 * depth, RecvDepth: recvDepth,
		IRD: depth, ORD: depth,
	})
	return err
}

// close stops the engine before it unmaps what the engine writes to.
func (e *end) close() error {
	if e == nil {
		return nil
	}
	var err error
	if e.dev != nil {
		err = e.dev.Close()
	}
	for _, b := range e.mem {
		unmap(b)
	}
	return err
}

// await returns the next completion of cq; one that is no success is an error that says what ended the connection.
func (e *end) await(ctx context.Context, cq verbs.CQ) (verbs.Completion, error) {
	var c [1]verbs.Completion
	if _, err := cq.Wait(ctx, c[:]); err != nil {
		return c[0], err
	}
	if c[0].Status == rdmap.Success {
		return c[0], nil
	}
	return c[0], fmt.Errorf("work request %d at %s: %v, because: %w", c[0].ID, e.name, c[0].Status,
		e.cause())
}

// cause waits a moment for the reason why the connection ended.
func (e *end) cause() error {
	select {
	case <-e.qp.Down():
	case <-time.After(time.Second):
	}
	if err := e.qp.Err(); err != nil {
		return err
	}
	return errors.New("the connection was closed")
}

// where says in one line how far the connection is, for errors about time.
func (e *end) where() string {
	i, err := e.qp.Info()
	if err != nil {
		return fmt.Sprintf("%s: %v", e.name, err)
	}
	s := fmt.Sprintf("%s: %v, %d bytes sent, %d received", e.name, i.State, i.Counters.PayloadOut,
		i.Counters.PayloadIn)
	if t := i.TCP; t != nil {
		s += fmt.Sprintf(", TCP %v, %d bytes in flight, %d segments sent again, RTO %v",
			t.State, t.Unacked, t.Info.Loss.Counters.Retransmitted, t.Info.Loss.RTO)
	}
	return s
}
