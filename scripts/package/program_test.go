package install

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine"
	"xwarp/engine/daemon/client"
	"xwarp/engine/verbs"
)

// half is what is written and read back.
const half = 256 << 10

// programRole is a program without rights that uses the installed daemon: the peer's address. It writes into
// the peer's memory, reads that back, sends a message, and gets it back. It ends with its standard input.
func programRole(args []string) error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&h, &caps[0]); err != nil {
		return err
	}
	if os.Getuid() == 0 || caps[0].Effective|caps[1].Effective|caps[0].Permitted|
		caps[1].Permitted != 0 {
		return errors.New("the program has rights that it shall not have")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dev, err := client.Open(client.DefaultPath)
	if err != nil {
		return err
	}
	defer dev.Close()
	if err := exchange(ctx, dev, netip.MustParseAddrPort(args[0])); err != nil {
		return err
	}
	fmt.Println("done")
	io.Copy(io.Discard, os.Stdin)
	return nil
}

func exchange(ctx context.Context, dev *client.Device, peer netip.AddrPort) error {
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	cq, err := dev.CreateCQ(16)
	if err != nil {
		return err
	}
	mem, err := dev.Alloc(2 * half)
	if err != nil {
		return err
	}
	mr, err := pd.RegMR(mem, verbs.LocalWrite)
	if err != nil {
		return err
	}
	qp, err := dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return err
	}
	if err := dev.Dial(ctx, peer, qp, verbs.ConnConfig{}); err != nil {
		return err
	}
	remote := ddp.STag(binary.BigEndian.Uint32(qp.Params().PrivateData))
	wait := func(want rdmap.WROp) error {
		var c [1]verbs.Completion
		if _, err := cq.Wait(ctx, c[:]); err != nil {
			return err
		}
		if c[0].Status != rdmap.Success || c[0].Op != want {
			return fmt.Errorf("completion %v %v, want %v (%v)", c[0].Op, c[0].Status, want,
				qp.Err())
		}
		return nil
	}
	for i := range half {
		mem[i] = byte(i * 7)
	}
	for _, wr := range []verbs.SendWR{
		{Op: rdmap.WRWrite, SGL: []verbs.SGE{mr.SGE(0, half)}, RemoteSTag: remote},
		{Op: rdmap.WRRead, SGL: []verbs.SGE{mr.SGE(half, half)}, RemoteSTag: remote},
	} {
		wr.Flags = rdmap.Signaled
		if err := qp.PostSend(&wr); err != nil {
			return err
		}
		if err := wait(wr.Op); err != nil {
			return err
		}
	}
	if !bytes.Equal(mem[:half], mem[half:]) {
		return errors.New("what was read is not what was written")
	}
	if err := qp.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{mr.SGE(half, 64)}}); err != nil {
		return err
	}
	if err := qp.PostSend(&verbs.SendWR{Op: rdmap.WRSend,
		Inline: []byte("there and back")}); err != nil {
		return err
	}
	if err := wait(rdmap.WRRecv); err != nil {
		return err
	}
	if got := string(mem[half : half+14]); got != "there and back" {
		return fmt.Errorf("%q came back", got)
	}
	return nil
}

// echo is the second host: an embedded engine that gives its memory to one peer and sends back the message that comes.
func echo(t *testing.T, h *topo.Host, at netip.AddrPort) {
	t.Helper()
	var dev *engine.Device
	if err := h.Do(func() (err error) {
		dev, err = engine.OpenXDP(engine.XDPConfig{Interface: h.Link.Name})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	mem := make([]byte, half+64)
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.RegMR(mem, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	if err := qp.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{mr.SGE(half, 64)}}); err != nil {
		t.Fatal(err)
	}
	l, err := dev.Listen(at, 0, verbs.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, qp, binary.BigEndian.AppendUint32(nil, uint32(mr.STag())))
		}
		var c [1]verbs.Completion
		if err == nil {
			_, err = cq.Wait(ctx, c[:])
		}
		if err == nil && c[0].Status == rdmap.Success {
			err = qp.PostSend(&verbs.SendWR{Op: rdmap.WRSend,
				SGL: []verbs.SGE{mr.SGE(half, int(c[0].ByteLen))}})
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("the second host: %v", err)
		}
	}()
}
