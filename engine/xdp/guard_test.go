package xdp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/ddp/rdmap"
	"xwarp/engine/internal/core"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/ring"
)

// sinkEnd returns an end whose completions go to sink, which runs on the worker.
func sinkEnd(t *testing.T, dev *core.Device, sink core.Sink) *verbstest.End {
	t.Helper()
	e := verbstest.New(t, dev, 1<<20)
	cq := core.NewSinkCQ(sink)
	var err error
	if e.QP, err = dev.CreateQP(verbs.QPConfig{PD: e.PD, SendCQ: cq, RecvCQ: cq}); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestDefect: the sink of a completion panics on the worker, once, or also at each later completion. The connection
// must end at both ends, and no caller may block. The other connection and the device must continue.
func TestDefect(t *testing.T) {
	for _, transport := range []string{"kernel", "xdp"} {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/always=%v", transport, always), func(t *testing.T) {
				da, db, at := pairOf(t, transport)
				n := 0
				a := sinkEnd(t, da, func(v *verbs.Completion, _ *core.Shard) bool {
					if n++; n == 3 || n > 3 && always {
						panic("made to fail")
					}
					return true
				})
				b := verbstest.New(t, db, 1<<20)
				verbstest.Connect(t, a, b, at)
				otherA, otherB := verbstest.New(t, da, 1<<20), verbstest.New(t, db, 1<<20)
				verbstest.Connect(t, otherA, otherB, at)
				for i := range 8 {
					a.Post(verbs.SendWR{ID: uint64(i), Op: rdmap.WRRead,
						SGL: []verbs.SGE{a.MR.SGE(0, 100_000)}, RemoteSTag: b.MR.STag()})
				}
				for _, c := range []<-chan struct{}{a.QP.Done(),
					a.QP.(*core.QP).Gone(), b.QP.Done(),
					b.QP.(*core.QP).Gone()} {
					select {
					case <-c:
					case <-time.After(20 * time.Second):
						t.Fatalf("the connection did not end: %v, %v", a.QP.Err(), b.QP.Err())
					}
				}
				for range 3 { // to be flushed, by Close at the latest
					if err := a.QP.PostSend(&verbs.SendWR{Op: rdmap.WRWrite}); err != nil {
						t.Error(err)
					}
				}
				if !strings.Contains(a.QP.Err().Error(), "made to fail") {
					t.Errorf("the queue pair ended with %v", a.QP.Err())
				}
				verbstest.Exercise(t, otherA, otherB)
				if c := da.Contained(); c.Panics == 0 {
					t.Errorf("%+v", c)
				}
				if err := a.QP.Close(); err != nil {
					t.Error(err)
				}
				if err := da.Err(); err != nil {
					t.Errorf("the device failed: %v", err)
				}
			})
		}
	}
}

// brittle is a port whose Flush panics on demand.
type brittle struct {
	ring.Port
	broken *atomic.Bool
}

func (p *brittle) Flush() ring.State {
	if p.broken.Load() {
		panic("made to fail")
	}
	return p.Port.Flush()
}

// TestDeviceFails: the port of a worker panics outside the service of any connection. The device must report the panic,
// its connection must end, and AllocPD and Close must return. Afterwards another device can be opened on the interface.
func TestDeviceFails(t *testing.T) {
	var broken atomic.Bool
	da, db, net := xdpPair(t, topo.Options{}, func(c *xdp.Config) {
		c.Wrap = func(_ int, p ring.Port) (ring.Port, error) { return &brittle{p, &broken}, nil }
	})
	a, b := verbstest.New(t, da, 1<<20), verbstest.New(t, db, 1<<20)
	verbstest.Connect(t, a, b, netip.AddrPortFrom(net.B.Addr4.Addr(), 7174))
	broken.Store(true)
	a.QP.PostSend(&verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{a.MR.SGE(0, 1000)},
		RemoteSTag: b.MR.STag()})
	for _, c := range []<-chan struct{}{da.Failed(), a.QP.(*core.QP).Gone()} {
		select {
		case <-c:
		case <-time.After(20 * time.Second):
			t.Fatal("the device did not fail")
		}
	}
	if !errors.Is(da.Err(), verbs.ErrDefect) || a.QP.Err() == nil {
		t.Errorf("device: %v, queue pair: %v", da.Err(), a.QP.Err())
	}
	if _, err := da.AllocPD(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("AllocPD: %v", err)
	}
	if err := a.QP.Close(); err != nil {
		t.Error(err)
	}
	if err := da.Close(); err != nil && !errors.Is(err, verbs.ErrDefect) {
		t.Error(err)
	}
	db.Close()
	broken.Store(false)
	if err := net.A.Do(func() (err error) {
		da, err = xdp.Open(xdp.Config{Interface: net.A.Link.Name})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := da.Close(); err != nil {
		t.Error(err)
	}
}

// lines is the output of a log, which may be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), s)
}

// TestStall: the sink of a completion blocks a worker. The watchdog must log the stack of the worker, with the function
// that blocks, and log when the worker continues. With AF_XDP, Stalled must name the connection.
func TestStall(t *testing.T) {
	for _, transport := range []string{"kernel", "xdp"} {
		t.Run(transport, func(t *testing.T) {
			var log lines
			o := core.Options{Stall: 40 * time.Millisecond,
				Log: slog.New(slog.NewTextHandler(&log, nil))}
			da, db, at := pairWith(t, transport, o)
			goOn := make(chan struct{})
			a, b := sinkEnd(t, da, func(*verbs.Completion, *core.Shard) bool {
				standStill(goOn)
				return true
			}), verbstest.New(t, db, 1<<20)
			verbstest.Connect(t, a, b, at)
			a.Post(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{a.MR.SGE(0, 1000)},
				RemoteSTag: b.MR.STag()})
			if !eventually(func() bool {
				return da.Stalled() != nil && log.contains("standStill")
			}) {
				t.Fatalf("stalled: %v; log: %s", da.Stalled(), log.b.String())
			}
			err := da.Stalled().Error()
			if where := a.QP.RemoteAddr().String(); transport == "xdp" &&
				!strings.Contains(err, where) {
				t.Errorf("%s does not name the connection to %s", err, where)
			}
			t.Log(err)
			if n := da.Contained().Stalls; n == 0 {
				t.Error("the stall is not counted")
			}
			close(goOn)
			if !eventually(func() bool {
				return da.Stalled() == nil && log.contains("worker runs again after a stall")
			}) {
				t.Errorf("stalled: %v", da.Stalled())
			}
		})
	}
}

//go:noinline
func standStill(until <-chan struct{}) { <-until }

// TestInterfaceGone removes the interface of a device that has a listener and a connection. Both must end with an error
// that says so.
func TestInterfaceGone(t *testing.T) {
	da, db, net := xdpPair(t, topo.Options{}, nil)
	a, b := verbstest.New(t, da, 1<<16), verbstest.New(t, db, 1<<16)
	verbstest.Connect(t, a, b, netip.AddrPortFrom(net.B.Addr4.Addr(), 7174))
	l, err := da.Listen(netip.AddrPortFrom(net.A.Addr4.Addr(), 7175), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	nic, err := net.A.Netlink().LinkByName("eth0")
	if err == nil {
		err = net.A.Netlink().LinkDel(nic)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := l.Accept(ctx); err == nil || !strings.Contains(err.Error(), "eth0 is gone") {
		t.Errorf("Accept: %v", err)
	}
	select {
	case <-a.QP.(*core.QP).Gone():
	case <-ctx.Done():
		t.Fatal("the connection did not end")
	}
	for _, err := range []error{da.Err(), a.QP.Err()} {
		if err == nil || !strings.Contains(err.Error(), "eth0 is gone") {
			t.Errorf("the end's reason: %v", err)
		}
	}
}
