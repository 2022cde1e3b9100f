package verbstest

import (
	"bytes"
	"net/netip"
	"syscall"

	"xwarp/engine/verbs"
)

// windows lets one end write and read the other's memory through a window, and invalidate the window. Then it checks
// QP.Allow: a Read of the region fails if the queue pair allows Writes only.
func (c *contract) windows() {
	a, b := New(c, c.a, 4096), New(c, c.b, 4096)
	Connect(c, a, b, netip.AddrPortFrom(c.at.Addr(), 0))
	c.is("Allow of no right of a peer", b.QP.Allow(verbs.LocalWrite), syscall.EINVAL)
	w, err := b.PD.AllocMW()
	if err != nil {
		c.Fatal(err)
	}
	bind := verbs.SendWR{ID: 1, Op: verbs.WRBindMW, RemoteSTag: w.STag() | 9,
		Region: b.MR.STag(), RemoteTO: 1024, Data: 64,
		Access: verbs.RemoteRead | verbs.RemoteWrite}
	b.Post(bind)
	if v := b.Wait(); v.Op != verbs.WRBindMW {
		c.Fatalf("binding: %+v", v)
	}
	c.is("MR.Close with a window", b.MR.Close(), syscall.EBUSY)
	copy(a.Mem, "by way of the window")
	there := verbs.SendWR{ID: 2, Op: verbs.WRWrite, SGL: []verbs.SGE{a.MR.SGE(0, 20)},
		RemoteSTag: bind.RemoteSTag, RemoteTO: 1044}
	a.Post(there)
	a.Wait()
	there.Op, there.SGL = verbs.WRRead, []verbs.SGE{a.MR.SGE(100, 20)}
	a.Post(there)
	a.Wait()
	if !bytes.Equal(a.Mem[100:120], a.Mem[:20]) || !bytes.Equal(b.Mem[1044:1064], a.Mem[:20]) {
		c.Errorf("there is %q, and %q came back", b.Mem[1044:1064], a.Mem[100:120])
	}
	if err := b.QP.PostRecv(&verbs.RecvWR{}); err != nil {
		c.Fatal(err)
	}
	if _, err := b.QP.Info(); err != nil { // after this call the receive is posted
		c.Fatal(err)
	}
	a.Post(verbs.SendWR{Op: verbs.WRSendInv, Invalidate: bind.RemoteSTag})
	a.Wait()
	if v := b.Wait(); v.Flags&verbs.WithInvalidate == 0 || v.Invalidated != bind.RemoteSTag {
		c.Errorf("invalidated by the peer: %+v", v)
	}
	if err := b.QP.Allow(verbs.RemoteWrite); err != nil {
		c.Error(err)
	}
	there.RemoteSTag, there.RemoteTO = b.MR.STag(), 0
	there.Flags = verbs.Signaled
	if err := a.QP.PostSend(&there); err != nil {
		c.Fatal(err)
	}
	v, err := verbs.WaitOne(c.ctx, a.CQ)
	if err == nil || v.Status != verbs.RemAccessErr {
		c.Errorf("a Read that the queue pair does not allow: %+v", v)
	}
	<-b.QP.Done()
	c.is("PD.Close with a window", b.PD.Close(), syscall.EBUSY)
	for range 2 {
		if err := w.Close(); err != nil {
			c.Error(err)
		}
	}
}
