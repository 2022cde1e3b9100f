// Package rping implements both ends of rdma-core's program rping on this engine, for tests against rping itself. The
// client names a buffer; the server reads it by RDMA Read and sends a go-ahead. The client names a second buffer; the
// server writes the data there by RDMA Write and sends a go-ahead again.
//
//	client                                  server
//	  Send {address, STag, size of source} ──►
//	                                  ◄── RDMA Read of the source
//	                                  ◄── Send (go-ahead)
//	  Send {address, STag, size of sink}   ──►
//	                                  ◄── RDMA Write into the sink, of the text with its final zero
//	                                  ◄── Send (go-ahead)
//
// This repeats until the client closes. Each Send has 16 bytes; the content of the server's is ignored.
package rping

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"xwarp/engine/verbs"
)

// Limits of rping.
const (
	// minSize has room for the text of every iteration, "rdma-ping-2147483647: ", and its final zero.
	minSize = 23
	// MaxSize is one byte less than 64 KiB: rping refuses 65536, although its message names that number as the limit.
	MaxSize = 1<<16 - 1
	// maxCount is the largest number that fits the text.
	maxCount = 1<<31 - 1
)

// Config describes a client.
type Config struct {
	Size  int // bytes of ping data
	Count int // iterations; zero means no end
	Conn  verbs.DialConfig
}

// Result is the result of one connection, in which every byte was compared.
type Result struct {
	Iterations int   // number of complete iterations
	Bytes      int64 // bytes of ping data in each direction
	MarkersOut bool
	MarkersIn  bool
	CRC        bool
}

// Client pings the server at remote until cfg.Count iterations are done or ctx ends. After an error the Result holds
// the iterations up to then.
func Client(ctx context.Context, dev verbs.Device, remote netip.AddrPort, cfg Config) (res Result,
	err error) {
	e, err := newEnd(dev)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	access := verbs.LocalWrite | verbs.RemoteRead | verbs.RemoteWrite
	source, err := e.Buffer(cfg.Size, access)
	if err != nil {
		return res, err
	}
	sink, err := e.Buffer(cfg.Size, access)
	if err != nil {
		return res, err
	}
	if err := e.Dial(ctx, remote, cfg.Conn); err != nil {
		return res, err
	}
	res.connected(e.QP)
	for n := 0; cfg.Count == 0 || n < cfg.Count; n++ {
		if err := e.ping(ctx, source, sink, n%maxCount); err != nil {
			return res, err
		}
		res.done(cfg.Size)
	}
	return res, errors.Join(e.drain(ctx), e.Disconnect(ctx))
}

// ping is one iteration of the client.
func (e *end) ping(ctx context.Context, source, sink verbs.MR, n int) error {
	Fill(source.Bytes(), n)
	for _, mr := range []verbs.MR{source, sink} {
		if err := errors.Join(e.drain(ctx), e.postSend(info(mr, len(mr.Bytes())))); err != nil {
			return err
		}
		if _, err := e.await(ctx); err != nil {
			return err
		}
	}
	return compare(sink.Bytes(), n)
}

// Serve accepts one connection from l and serves it until the client closes. After an error the Result holds the
// iterations up to then.
func Serve(ctx context.Context, dev verbs.Device, l verbs.Listener) (res Result, err error) {
	e, err := newEnd(dev)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	buf, err := e.Buffer(MaxSize, verbs.LocalWrite)
	if err != nil {
		return res, err
	}
	if err := e.Accept(ctx, l, nil); err != nil {
		return res, err
	}
	res.connected(e.QP)
	for n := 0; ; n++ {
		source, err := e.await(ctx)
		if errors.Is(err, errClosed) {
			return res, nil
		}
		if err == nil {
			err = e.pong(ctx, buf, source, n)
		}
		if err != nil {
			return res, fmt.Errorf("iteration %d: %w", n, err)
		}
		res.done(int(source.Size))
	}
}

// pong is one iteration of the server, which began with the client's source.
func (e *end) pong(ctx context.Context, buf verbs.MR, source Info, n int) error {
	if source.Size == 0 || source.Size > MaxSize {
		return fmt.Errorf("the client shows a source of %d bytes; rping's have %d to %d",
			source.Size, minSize, MaxSize)
	}
	size := int(source.Size)
	if err := e.drain(ctx); err != nil { // the previous Write reads the memory that the Read changes
		return err
	}
	if err := errors.Join(e.transfer(verbs.WRRead, buf, size, source), e.drain(ctx)); err != nil {
		return err
	}
	data := buf.Bytes()[:size]
	if err := errors.Join(compare(data, n), e.postSend(Info{})); err != nil {
		return err
	}
	sink, err := e.await(ctx)
	if err != nil {
		return err
	}
	n = min(len(text(data))+1, size)
	if n > int(sink.Size) {
		return fmt.Errorf("the client shows a sink of %d bytes for %d", sink.Size, n)
	}
	// rping waits for the Write's completion here. Ours comes with TCP's acknowledgement, which the client may delay;
	// the go-ahead follows the Write in the stream anyway.
	return errors.Join(e.drain(ctx), e.transfer(verbs.WRWrite, buf, n, sink), e.postSend(Info{}))
}

func (r *Result) connected(q verbs.QP) {
	p := q.Params()
	r.CRC, r.MarkersOut, r.MarkersIn = p.Send.CRC, p.Send.Markers, p.Receive.Markers
}

func (r *Result) done(byteCount int) {
	r.Iterations++
	r.Bytes += int64(byteCount)
}

// errClosed means that the connection was closed without an error.
var errClosed = errors.New("RDMA_CM_EVENT_DISCONNECTED: the connection was closed")

// slots is the number of receives of an end. The peer never has more than one Send under way.
const slots = 2

// end is one side of one connection.
type end struct {
	*verbs.Endpoint
	ctrl    verbs.MR // buffers of received Sends: InfoLen bytes for each slot
	pending int      // posted send work requests whose completion was not taken
}

// newEnd creates everything that a connection needs, except its data buffers.
func newEnd(dev verbs.Device) (*end, error) {
	// rping itself has one RDMA Read under way, in one direction.
	ep, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{QPConfig: verbs.QPConfig{SendDepth: 16,
		RecvDepth: slots, MaxSGE: 1, IRD: 1, ORD: 1}})
	if err != nil {
		return nil, err
	}
	e := &end{Endpoint: ep}
	e.ctrl, err = e.Buffer(slots*InfoLen, verbs.LocalWrite)
	for i := 0; err == nil && i < slots; i++ {
		err = e.postReceive(i)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *end) postReceive(slot int) error {
	return e.QP.PostRecv(&verbs.RecvWR{ID: uint64(slot),
		SGL: []verbs.SGE{e.ctrl.SGE(slot*InfoLen, InfoLen)}})
}

func (e *end) post(wr verbs.SendWR) error {
	wr.Flags = verbs.Signaled
	e.pending++
	return e.QP.PostSend(&wr)
}

// postSend posts a Send of i. The zero Info is a go-ahead.
func (e *end) postSend(i Info) error {
	return e.post(verbs.SendWR{Op: verbs.WRSend, Inline: i.Append(nil)})
}

// info names the first n bytes of a region to the peer.
func info(mr verbs.MR, n int) Info {
	s := mr.SGE(0, n)
	return Info{Addr: uint64(s.TO), STag: uint32(s.STag), Size: s.Len}
}

// transfer posts a Read or Write between the first n bytes of mr and the peer's buffer.
func (e *end) transfer(op verbs.WROp, mr verbs.MR, n int, peer Info) error {
	return e.post(verbs.SendWR{Op: op, SGL: []verbs.SGE{mr.SGE(0, n)},
		RemoteSTag: verbs.STag(peer.STag), RemoteTO: verbs.TO(peer.Addr)})
}

// drain waits until all posted send work requests are complete.
func (e *end) drain(ctx context.Context) error {
	for ; e.pending > 0; e.pending-- {
		if _, err := e.take(ctx, e.SendCQ); err != nil {
			return err
		}
	}
	return nil
}

// await returns the peer's next Send.
func (e *end) await(ctx context.Context) (i Info, err error) {
	c, err := e.take(ctx, e.RecvCQ)
	if err != nil {
		return i, err
	}
	if i, err = ParseInfo(e.ctrl.Bytes()[int(c.ID)*InfoLen:][:c.ByteLen]); err != nil {
		return i, err
	}
	return i, e.postReceive(int(c.ID))
}

// take takes one completion. The error is errClosed after a graceful close.
func (e *end) take(ctx context.Context, cq verbs.CQ) (verbs.Completion, error) {
	c, err := e.Wait(ctx, cq)
	if c.Status == verbs.WRFlushErr && e.QP.Err() == nil {
		err = errClosed
	}
	return c, err
}
