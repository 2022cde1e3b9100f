package rping

import (
	"context"
	"errors"
	"fmt"

	"xwarp/engine/verbs"
)

// errClosed means that the connection was closed without an error.
var errClosed = errors.New("RDMA_CM_EVENT_DISCONNECTED: the connection was closed")

// slots is the number of receives of an end. The peer never has more than one Send under way.
const slots = 2

// end is one side of one connection.
type end struct {
	*verbs.Endpoint
	cfg  *Config
	ctrl verbs.MR // InfoLen bytes for each slot, and for the Send

	inbox   []Info // Sends that arrived
	done    [2]int // completed Writes and Reads for which complete has not waited yet
	sends   int    // Sends not completed yet
	writing bool   // the server has not waited for its Write yet
	sge     [1]verbs.SGE
}

// newEnd creates everything that a connection needs, except its data buffers.
func newEnd(dev verbs.Device, cfg *Config) (*end, error) {
	// rping itself has one RDMA Read under way, in one direction.
	ep, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{SharedCQ: true, QPConfig: verbs.QPConfig{
		SendDepth: 16, RecvDepth: slots, MaxSGE: 1, IRD: 1, ORD: 1,
	}})
	if err != nil {
		return nil, err
	}
	e := &end{Endpoint: ep, cfg: cfg}
	e.ctrl, err = e.Buffer((slots+1)*InfoLen, verbs.LocalWrite)
	for i := 0; err == nil && i < slots; i++ {
		err = e.postReceive(i)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *end) postReceive(slot int) error {
	e.sge[0] = e.ctrl.SGE(slot*InfoLen, InfoLen)
	return e.QP.PostRecv(&verbs.RecvWR{ID: uint64(slot), SGL: e.sge[:]})
}

// postSend posts a Send of i. The zero Info is a go-ahead.
func (e *end) postSend(i Info) error {
	if e.sends > 0 {
		return errors.New("rping: the buffer of the last Send is in use")
	}
	i.Append(e.ctrl.Bytes()[slots*InfoLen : slots*InfoLen])
	e.sge[0] = e.ctrl.SGE(slots*InfoLen, InfoLen)
	err := e.QP.PostSend(&verbs.SendWR{Op: verbs.WRSend, Flags: verbs.Signaled, SGL: e.sge[:]})
	if err == nil {
		e.sends++
	}
	return err
}

// info names the first n bytes of a region to the peer.
func info(mr verbs.MR, n int) Info {
	s := mr.SGE(0, n)
	return Info{Addr: uint64(s.TO), STag: uint32(s.STag), Size: s.Len}
}

// transfer posts a Read or Write between the first n bytes of mr and the peer's buffer.
func (e *end) transfer(op verbs.WROp, mr verbs.MR, n int, peer Info) error {
	e.sge[0] = mr.SGE(0, n)
	return e.QP.PostSend(&verbs.SendWR{
		Op: op, Flags: verbs.Signaled, SGL: e.sge[:], RemoteSTag: verbs.STag(peer.STag),
		RemoteTO: verbs.TO(peer.Addr),
	})
}

// await returns the peer's next Send.
func (e *end) await(ctx context.Context) (i Info, err error) {
	for len(e.inbox) == 0 {
		if err := e.step(ctx); err != nil {
			return i, err
		}
	}
	i = e.inbox[0]
	e.inbox = e.inbox[:copy(e.inbox, e.inbox[1:])]
	return i, nil
}

// sent waits until no Send is under way.
func (e *end) sent(ctx context.Context) error {
	for e.sends > 0 {
		if err := e.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// complete waits for one Read or Write.
func (e *end) complete(ctx context.Context, op verbs.WROp) error {
	k := op - verbs.WRWrite
	for e.done[k] == 0 {
		if err := e.step(ctx); err != nil {
			return err
		}
	}
	e.done[k]--
	return nil
}

// step waits for one completion and handles it.
func (e *end) step(ctx context.Context) error {
	var c [1]verbs.Completion
	if _, err := e.SendCQ.Wait(ctx, c[:]); err != nil {
		return err
	}
	if c[0].Status != verbs.Success {
		return e.broken(c[0])
	}
	switch c[0].Op {
	case verbs.WRRecv:
		return e.received(c[0])
	case verbs.WRSend:
		e.sends--
	case verbs.WRWrite, verbs.WRRead:
		e.done[c[0].Op-verbs.WRWrite]++
	}
	return nil
}

func (e *end) received(c verbs.Completion) error {
	at := int(c.ID) * InfoLen
	i, err := ParseInfo(e.ctrl.Bytes()[at:][:c.ByteLen])
	if err != nil {
		return err
	}
	if len(e.inbox) == slots { // a peer that does not wait for an answer to each Send would fill the memory
		return fmt.Errorf("the peer sent %d messages that were not asked for", slots)
	}
	e.inbox = append(e.inbox, i)
	return e.postReceive(int(c.ID))
}

// broken returns why a completion failed: errClosed after a graceful close.
func (e *end) broken(c verbs.Completion) error {
	if err := e.Cause(); err != nil {
		return fmt.Errorf("%v of the %v: %w", c.Status, c.Op, err)
	}
	if c.Status == verbs.WRFlushErr {
		return errClosed
	}
	return fmt.Errorf("%v of the %v", c.Status, c.Op)
}

// disconnect closes the connection within closeGrace.
func (e *end) disconnect(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, closeGrace,
		errors.New("the connection did not close in time"))
	defer cancel()
	return e.Disconnect(ctx)
}
