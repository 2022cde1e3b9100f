package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/engine/daemon/client"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// half is the number of bytes that are written to the peer and read back.
const half = 256 << 10

// programRole is the main function of an unprivileged program that uses the installed daemon. args[0] is the peer's
// address. The program writes into the peer's memory, reads that back, sends a message and receives it back. It ends
// when its standard input ends.
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

func exchange(ctx context.Context, dev *client.Device, at netip.AddrPort) error {
	e, err := verbstest.Make(dev, 2*half)
	if err != nil {
		return err
	}
	peer, err := e.Dial(ctx, at)
	if err != nil {
		return err
	}
	if err := e.WriteAndRead(ctx, peer); err != nil {
		return err
	}
	if err := e.QP.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{e.MR.SGE(half, 64)}}); err != nil {
		return err
	}
	if err := e.QP.PostSend(&verbs.SendWR{Op: verbs.WRSend,
		Inline: []byte("there and back")}); err != nil {
		return err
	}
	c, err := e.Next(ctx)
	if err != nil {
		return err
	}
	if got := string(e.Mem[half:][:c.ByteLen]); c.Op != verbs.WRRecv || got != "there and back" {
		return fmt.Errorf("%v of %q came back", c.Op, got)
	}
	return nil
}

// echo runs the peer of programRole on host h, over an engine in this process. It exposes its memory to one peer and
// sends back the message that it receives.
func echo(t *testing.T, h *topo.Host, at netip.AddrPort) {
	t.Helper()
	var dev *xdp.Device
	if err := h.Do(func() (err error) {
		dev, err = xdp.Open(xdp.Config{Interface: h.Link.Name})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	e := verbstest.New(t, dev, half+64)
	if err := e.QP.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{e.MR.SGE(half, 64)}}); err != nil {
		t.Fatal(err)
	}
	l, err := dev.Listen(at, verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, e.QP, e.MR.Remote().Append(nil))
		}
		var c verbs.Completion
		if err == nil {
			c, err = e.Next(ctx)
		}
		if err == nil {
			err = e.QP.PostSend(&verbs.SendWR{Op: verbs.WRSend,
				SGL: []verbs.SGE{e.MR.SGE(half, int(c.ByteLen))}})
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("the second host: %v", err)
		}
	}()
}
