package client_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"os"
	"testing"
	"time"

	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/verbs"
)

// end is what each side of a connection needs of its device.
type end struct {
	mem []byte
	mr  verbs.MR
	cq  verbs.CQ
	qp  verbs.QP
}

func newEnd(dev verbs.Device) (e end, err error) {
	pd, err := dev.AllocPD()
	if err != nil {
		return e, err
	}
	if e.mem, err = dev.Alloc(4096); err != nil { // not of make: the daemon has to map it
		return e, err
	}
	if e.mr, err = pd.RegMR(e.mem,
		verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite); err != nil {
		return e, err
	}
	if e.cq, err = dev.CreateCQ(16); err != nil {
		return e, err
	}
	e.qp, err = dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: e.cq, RecvCQ: e.cq})
	return e, err
}

// serve gives its memory to one peer, and says what is in it when the peer's message comes.
func serve(ctx context.Context, dev verbs.Device, l verbs.Listener) error {
	e, err := newEnd(dev)
	if err != nil {
		return err
	}
	if err := e.qp.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{e.mr.SGE(64, 64)}}); err != nil {
		return err
	}
	r, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	if err := r.Accept(ctx, e.qp, e.mr.Remote().Append(nil)); err != nil { // with the STag
		return err
	}
	c, err := verbs.WaitOne(ctx, e.cq)
	if err != nil {
		return err
	}
	fmt.Printf("the peer wrote %q and says %q\n", e.mem[:8], e.mem[64:][:c.ByteLen])
	return nil
}

// Programs without privileges use the interface of xwarpd. Here one serves and uses itself; they may as well be two, on
// two hosts.
func ExampleOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dev, err := client.Open("") // at XWARP_SOCKET, or at client.DefaultPath
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	l, err := dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"), verbs.ListenConfig{})
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serve(ctx, dev, l) }()

	e, err := newEnd(dev)
	if err != nil {
		log.Fatal(err)
	}
	if err := dev.Dial(ctx, l.Addr(), e.qp, verbs.DialConfig{}); err != nil {
		log.Fatal(err)
	}
	peer, err := verbs.ParseRemoteMR(e.qp.Params().PrivateData)
	if err != nil {
		log.Fatal(err)
	}
	copy(e.mem, "12345678")
	for _, wr := range []verbs.SendWR{
		{Op: verbs.WRWrite, SGL: []verbs.SGE{e.mr.SGE(0, 8)}},
		{Op: verbs.WRRead, SGL: []verbs.SGE{e.mr.SGE(8, 8)}},
		{Op: verbs.WRSend, Inline: []byte("done")},
	} {
		wr.Flags, wr.RemoteSTag, wr.RemoteTO = verbs.Signaled, peer.STag, peer.Base
		if err := e.qp.PostSend(&wr); err != nil {
			log.Fatal(err)
		}
		if _, err := verbs.WaitOne(ctx, e.cq); err != nil {
			log.Fatal(err)
		}
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	fmt.Printf("read back %q\n", e.mem[8:16])
	// Output:
	// the peer wrote "12345678" and says "done"
	// read back "12345678"
}

// TestMain starts the daemon of ExampleOpen.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "xwarp")
	if err != nil {
		log.Fatal(err)
	}
	cfg, socket, err := configIn(dir, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n")
	if err != nil {
		log.Fatal(err)
	}
	d, err := daemon.New(cfg, daemon.Options{})
	if err != nil {
		log.Fatal(err)
	}
	os.Setenv(client.SocketVariable, socket)
	status := m.Run()
	d.Close()
	os.RemoveAll(dir)
	os.Exit(status)
}
