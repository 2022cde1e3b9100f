package export

import (
	"context"
	"encoding/binary"
	"errors"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/device"
	"xwarp/engine/guard"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
)

// The protocol of an export: the private data of the MPA Reply is a verbs.RemoteMR. A flush request is a Send of 24
// bytes in big endian: 1, seven zeros, offset, length (0: everything from the offset on). The answer is a Send of 16
// bytes: 1, status (0 done, 1 not a range of a file, 2 the disk failed), six zeros, the number of bytes.
const (
	flushRequestLen = 24
	flushReplyLen   = 16
)

// peerConn is the connection of one peer. It has its own protection domain, in which the export's memory has an STag
// that is valid for this peer only, because peers do not trust each other (RFC 5042, 6.1.1 and 6.4.5).
type peerConn struct {
	e        *export
	end      *verbs.Endpoint
	qp       *core.QP // queue pair of end
	exported verbs.MR // the export's memory
	mr       verbs.MR // receive buffers
	buf      []byte

	acceptDone chan struct{} // closed when Accept returned
}

// serveConn accepts a connection request and serves the connection until it ends.
func (e *export) serveConn(r *verbs.ConnRequest) {
	c, why := e.admit(r)
	if c == nil {
		e.count.Rejected.Add(1)
		e.log.Info("export: rejected a peer's connection", "remote", r.Remote, "because", why)
		r.Reject([]byte(why))
		return
	}
	defer c.close()
	defer guard.Recover(func(v any) { e.set.d.ReportDefect(e.log, "serving a peer", v) })
	at := c.exported.Remote()
	at.Flushable = e.file != nil
	err := r.Accept(e.connLife, c.qp, at.Append(nil))
	close(c.acceptDone)
	if err != nil {
		e.log.Info("export: peer lost", "remote", r.Remote, "error", err)
		return
	}
	c.serveFlushes()
}

// admit creates the objects of a connection, or returns nil and the reason to send to the peer.
func (e *export) admit(r *verbs.ConnRequest) (*peerConn, string) {
	if !e.allows(r.Remote.Addr()) {
		return nil, "not allowed"
	}
	if e.failure() != nil {
		return nil, "the export failed: its file cannot be accessed"
	}
	c := &peerConn{e: e, buf: make([]byte, queueDepth*flushRequestLen),
		acceptDone: make(chan struct{})}
	if err := c.open(); err != nil {
		e.log.Warn("export: no memory or queue pair for a peer: connection rejected",
			"remote", r.Remote, "error", err)
		c.release()
		return nil, "no resources"
	}
	e.mu.Lock()
	full := len(e.conns) >= e.cfg.Connections
	if !full {
		e.conns[c.qp] = c
	}
	e.mu.Unlock()
	if full {
		c.release()
		return nil, "too many connections"
	}
	return c, ""
}

// open creates the queue pair with a protection domain, and the regions.
func (c *peerConn) open() (err error) {
	if c.end, err = verbs.NewEndpoint(c.e.dev.Core, verbs.EndpointConfig{SharedCQ: true,
		QPConfig: verbs.QPConfig{SendDepth: queueDepth, RecvDepth: queueDepth,
			MaxInline: flushReplyLen}}); err != nil {
		return err
	}
	c.qp = c.end.QP.(*core.QP)
	keep := func() error { return nil }
	if c.exported, err = c.end.Register(c.e.mem, accessOf[c.e.cfg.Access], keep); err != nil {
		return err
	}
	if c.mr, err = c.end.Register(c.buf, verbs.LocalWrite, keep); err != nil {
		return err
	}
	for i := 0; err == nil && i < queueDepth; i++ {
		err = c.post(uint64(i))
	}
	return err
}

func (c *peerConn) post(slot uint64) error {
	return c.qp.PostRecv(&verbs.RecvWR{ID: slot,
		SGL: []verbs.SGE{c.mr.SGE(int(slot)*flushRequestLen, flushRequestLen)}})
}

// serveFlushes answers flush requests until the connection ends.
func (c *peerConn) serveFlushes() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-c.qp.Done()
		cancel()
	}()
	for {
		var done [1]verbs.Completion
		if _, err := c.end.RecvCQ.Wait(ctx, done[:]); err != nil {
			return
		}
		v := &done[0]
		switch {
		case v.Status != rdmap.Success:
			if device.HasFailed(v) {
				device.LogCompletion(c.e.log.With("device", c.e.dev.Name), v)
			}
			<-c.qp.Done()
			return
		case v.Op == rdmap.WRRecv:
			if !c.answerFlush(c.buf[v.ID*flushRequestLen:][:v.ByteLen]) || c.post(v.ID) != nil {
				c.qp.Disconnect()
				return
			}
		}
	}
}

// answerFlush executes and answers a flush request. It returns false if the connection must end.
func (c *peerConn) answerFlush(m []byte) bool {
	if len(m) != flushRequestLen || m[0] != 1 {
		return false
	}
	reply := [flushReplyLen]byte{0: 1}
	n, err := c.e.flush(binary.BigEndian.Uint64(m[8:]), binary.BigEndian.Uint64(m[16:]))
	switch {
	case errors.Is(err, errRange):
		reply[1] = 1
	case err != nil:
		c.e.log.Warn("export: cannot write a peer's data to disk", "error", err)
		reply[1] = 2
	}
	binary.BigEndian.PutUint64(reply[8:], n)
	return c.qp.PostSend(&verbs.SendWR{Op: rdmap.WRSend, Inline: reply[:]}) == nil
}

// close waits for the end of the connection and releases it.
func (c *peerConn) close() {
	if c.qp.Params() != nil { // wait for the peer's FIN or for the Terminate, at most mpa.close_timeout
		select {
		case <-c.qp.Gone():
		case <-c.e.connLife.Done():
		}
	}
	c.e.mu.Lock()
	delete(c.e.conns, c.qp)
	c.e.mu.Unlock()
	c.release()
}

// release closes the objects of the connection.
func (c *peerConn) release() {
	if c.end == nil {
		return
	}
	if err := c.end.Close(); err != nil {
		c.e.log.Error("export: cannot release the memory of a connection: it stays in use until xwarpd ends", "error", err)
	}
}
