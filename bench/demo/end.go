package demo

import (
	"context"
	"errors"
	"fmt"

	"xwarp/bench/topo"
	"xwarp/engine/plain"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// end is one host with everything that a run needs of it.
type end struct {
	*verbs.Endpoint
	name    string
	host    *topo.Host
	dev     *xdp.Device
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

// prepare makes the endpoint, with room for recvDepth receives, and for each element of access a region of size bytes
// with that access.
func (e *end) prepare(size int64, recvDepth int, access ...verbs.Access) (err error) {
	e.Endpoint, err = verbs.NewEndpoint(e.dev, verbs.EndpointConfig{QPConfig: verbs.QPConfig{
		SendDepth: 2 * depth, RecvDepth: recvDepth, IRD: depth, ORD: depth,
	}})
	for i := 0; err == nil && i < len(access); i++ {
		var b verbs.MR
		if b, err = e.Buffer(int(size), access[i]); err == nil {
			e.buffers = append(e.buffers, b)
			err = populate(b.Bytes())
		}
	}
	if err != nil {
		err = fmt.Errorf("host %s: %w", e.name, err)
	}
	return err
}

// close stops the engine before it frees the memory that the engine writes to.
func (e *end) close() error {
	if e == nil {
		return nil
	}
	var errs []error
	if e.dev != nil {
		errs = append(errs, e.dev.Close())
	}
	if e.Endpoint != nil {
		errs = append(errs, e.Endpoint.Close())
	}
	return errors.Join(errs...)
}

// await returns the next completion of cq. When it is not a success, the error gives the cause of the connection's end.
func (e *end) await(ctx context.Context, cq verbs.CQ) (verbs.Completion, error) {
	c, err := e.Wait(ctx, cq)
	if err != nil && c.Status != verbs.Success {
		err = fmt.Errorf("work request %d at %s: %w", c.ID, e.name, err)
	}
	return c, err
}

// progress returns one line on how far the connection is, for the error of a timeout.
func (e *end) progress() string {
	i, err := e.QP.Info()
	if err != nil {
		return fmt.Sprintf("%s: %v", e.name, err)
	}
	s := fmt.Sprintf("%s: %v, %s sent, %s received", e.name, i.State,
		plain.Size(i.Counters.PayloadOut), plain.Size(i.Counters.PayloadIn))
	if t := i.TCP; t != nil {
		s += fmt.Sprintf(", TCP %v, %s in flight, %s retransmitted, RTO %v", t.State,
			plain.Size(uint64(t.Unacked)),
			plain.Count(t.Info.Loss.Counters.Retransmitted, "segment"), t.Info.Loss.RTO)
	}
	return s
}
