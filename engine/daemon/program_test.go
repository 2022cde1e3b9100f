package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

const nobody = 65534

// peerSTag reads the STag that responder puts into private data. It returns 0 for other private data.
func peerSTag(b []byte) verbs.STag {
	r, _ := verbs.ParseRemoteMR(b)
	return r.STag
}

// transferRole is an unprivileged program that writes, reads back and sends. Its arguments: the socket, the address of
// the peer.
func transferRole(args []string) error {
	if os.Getuid() == 0 {
		return errors.New("the test wants an unprivileged user")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	dev, err := client.Open(args[0])
	if err != nil {
		return err
	}
	defer dev.Close()
	const half = 64 << 10
	p, err := verbstest.Make(dev, 2*half)
	if err != nil {
		return err
	}
	peer, err := p.Dial(ctx, netip.MustParseAddrPort(args[1]))
	if err != nil {
		return err
	}
	if err := p.WriteAndRead(ctx, peer); err != nil {
		return err
	}
	if err := p.Do(ctx, verbs.SendWR{Op: rdmap.WRSend, Inline: []byte("done")}); err != nil {
		return err
	}
	_, err = dev.Listen(netip.MustParseAddrPort("0.0.0.0:80"), verbs.ListenConfig{})
	if err == nil {
		return errors.New("an unprivileged program may listen on port 80")
	}
	s, err := dev.Snapshot(ctx)
	if err != nil || len(s.Sessions) != 1 || s.Sessions[0].UID != nobody || len(s.QPs) != 1 {
		return fmt.Errorf("snapshot: %+v, %v", s, err)
	}
	fmt.Println("done")
	return nil
}

// embedded opens an engine without a daemon on a host, in this process.
func embedded(t testing.TB, do func(func() error) error) *xdp.Device {
	t.Helper()
	var d *xdp.Device
	if err := do(func() (err error) {
		d, err = xdp.Open(xdp.Config{Interface: "eth0"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// responder accepts n connections on dev. They share the region mem, which the private data of each reply describes,
// and the completion queue recvs.
func responder(t testing.TB, dev verbs.Device, at netip.AddrPort, n int) (mem []byte,
	recvs verbs.CQ) {
	t.Helper()
	mem = make([]byte, 1<<20)
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.RegMR(mem, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	if recvs, err = dev.CreateCQ(4 * n * verbs.DefaultDepth); err != nil {
		t.Fatal(err)
	}
	l, err := dev.Listen(at, verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	token := mr.Remote().Append(nil)
	go func() {
		for range n {
			r, err := l.Accept(ctx)
			if err != nil {
				return
			}
			qp, err := dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: recvs, RecvCQ: recvs})
			if err == nil {
				qp.PostRecv(&verbs.RecvWR{ID: 1, SGL: []verbs.SGE{mr.SGE(len(mem)-64, 64)}})
				err = r.Accept(ctx, qp, token)
			}
			if err != nil && ctx.Err() == nil && !errors.Is(err, verbs.ErrLapsed) { // ErrLapsed: the program was killed
				t.Errorf("accept: %v", err)
			}
		}
	}()
	return mem, recvs
}

// TestUnprivileged: a program of another user, without privileges, exchanges data with a second host.
func TestUnprivileged(t *testing.T) {
	tn := hosts(t)
	d, socket := run(t, tn.A, ethTable)
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	mem, recvs := responder(t, embedded(t, tn.B.Do), at, 1)
	c := start(t, publicExe(t), nobody, "transfer", socket, at.String())
	if got := c.line(); got != "done" {
		t.Fatalf("program: %q", got)
	}
	c.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var v [1]verbs.Completion
	if _, err := recvs.Wait(ctx, v[:]); err != nil || v[0].ByteLen != 4 ||
		string(mem[len(mem)-64:][:4]) != "done" {
		t.Fatalf("the peer's receive: %+v, %v", v[0], err)
	}
	if n := 64 << 10; !bytes.Equal(mem[:n], verbstest.Pattern(n)) {
		t.Error("the peer's region differs from what the program wrote")
	}
	if _, ok := eventually(func() bool {
		return empty(d)
	}); !ok {
		t.Errorf("left over: %+v", d.Snapshot())
	}
}

// empty reports whether these users, or without uids all users, hold no resources.
func empty(d *daemon.Daemon, uids ...uint32) bool {
	return !slices.ContainsFunc(d.Snapshot().Users, func(u control.UserState) bool {
		return u.Used != 0 && (len(uids) == 0 || slices.Contains(uids, u.UID))
	})
}

// loadRole keeps many queue pairs busy until it is killed. Its arguments: the socket, the peer's address, the number of
// queue pairs.
func loadRole(args []string) error {
	dev, err := client.Open(args[0])
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(args[2])
	ctx := context.Background()
	cq, err := dev.CreateCQ(n * 256)
	if err != nil {
		return err
	}
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	const size = 8 << 10
	mem, err := dev.Alloc(size)
	if err != nil {
		return err
	}
	mr, err := pd.RegMR(mem, verbs.LocalWrite)
	if err != nil {
		return err
	}
	for range n {
		qp, err := dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
		if err != nil {
			return err
		}
		if err := dev.Dial(ctx, netip.MustParseAddrPort(args[1]), qp,
			verbs.DialConfig{}); err != nil {
			return err
		}
		wr := verbs.SendWR{Op: rdmap.WRWrite, Flags: rdmap.Signaled,
			SGL: []verbs.SGE{mr.SGE(0, size)}, RemoteSTag: peerSTag(qp.Params().PrivateData)}
		for range 4 {
			if err := qp.PostSend(&wr); err != nil {
				return err
			}
		}
	}
	fmt.Println("loaded")
	var c [64]verbs.Completion
	for {
		m, err := cq.Wait(ctx, c[:])
		if err != nil {
			return err
		}
		for i := range c[:m] {
			qp := c[i].QP
			wr := verbs.SendWR{Op: rdmap.WRWrite, Flags: rdmap.Signaled,
				SGL: []verbs.SGE{mr.SGE(0, size)}, RemoteSTag: peerSTag(qp.Params().PrivateData)}
			if err := qp.PostSend(&wr); err != nil {
				return err
			}
		}
	}
}

// latency enables the checks of latency, which need a quiet machine.
var latency = flag.Bool("latency", false, "hold the program beside a killed one to twice its "+
	"99th percentile")

// TestKillClient kills a program with 100 busy queue pairs. Its resources must be free within slack. Operations of
// another program must succeed meanwhile and, with -latency, the 99th percentile of their durations may at most double.
func TestKillClient(t *testing.T) {
	tn := hosts(t)
	d, socket := run(t, tn.A, ethTable)
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	const n = 100
	responder(t, embedded(t, tn.B.Do), at, n+1)
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	beside := verbstest.New(t, dev, 4096)
	peer, err := beside.Dial(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	ping := func() error {
		return beside.Do(ctx, verbs.SendWR{Op: rdmap.WRRead,
			SGL: []verbs.SGE{beside.MR.SGE(0, 8)}, RemoteSTag: peer.STag})
	}
	c := start(t, publicExe(t), nobody, "load", socket, at.String(), strconv.Itoa(n))
	if got := c.line(); got != "loaded" {
		t.Fatalf("program: %q", got)
	}
	windows := make([]time.Duration, 1)
	if *latency {
		windows = make([]time.Duration, 5) // the median of these is used
	}
	for i := range windows {
		if windows[i], err = pings(200, ping); err != nil {
			t.Fatalf("the program beside: %v", err)
		}
	}
	slices.Sort(windows)
	before := windows[len(windows)/2]
	if s := d.Snapshot(); len(s.QPs) != n+1 {
		t.Fatalf("%d queue pairs, want %d", len(s.QPs), n+1)
	}
	c.kill()
	var during time.Duration
	pinged := make(chan error, 1)
	go func() {
		var err error
		during, err = pings(200, ping)
		pinged <- err
	}()
	took, gone := eventually(func() bool {
		s := d.Snapshot()
		return len(s.QPs) == 1 && len(s.MRs) == 1 && len(s.Sessions) == 1 && empty(d, nobody)
	})
	if err := <-pinged; err != nil {
		t.Fatalf("the program beside: %v", err)
	}
	t.Logf("p99 of the program beside: %v with the load (%v), %v while it goes away", before,
		windows, during)
	if *latency && during > 2*before {
		t.Errorf("p99 rose from %v to %v", before, during)
	}
	if !gone {
		s := d.Snapshot()
		t.Fatalf("after %v: %d queue pairs, %d regions, users %+v", took, len(s.QPs), len(s.MRs),
			s.Users)
	}
	t.Logf("everything of %d queue pairs was free after %v", n, took)
	if took > slack {
		t.Errorf("that took %v", took)
	}
}

// pings returns the 99th percentile of the durations of n calls.
func pings(n int, ping func() error) (time.Duration, error) {
	d := make([]time.Duration, n)
	for i := range d {
		begin := time.Now()
		if err := ping(); err != nil {
			return 0, err
		}
		d[i] = time.Since(begin)
	}
	slices.Sort(d)
	return d[n*99/100], nil
}
