package xdp_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/ddp/rdmap"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/mpa/ulpdu"
	"xwarp/ring"
)

// mapped returns a mapping of a file of n bytes, and a function that truncates the file to keep bytes, so that the rest
// of the mapping cannot be accessed.
func mapped(t testing.TB, n int) (mem []byte, cut func(keep int)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "region")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(n)); err != nil {
		t.Fatal(err)
	}
	mem, err = unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return mem, func(keep int) {
		if err := os.Truncate(path, int64(keep)); err != nil {
			t.Fatal(err)
		}
	}
}

// failure returns the first failed completion of e. It fails the test if there is none in 20 s.
func failure(e *verbstest.End) *verbs.Completion {
	e.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		var c [1]verbs.Completion
		if _, err := e.CQ.Wait(ctx, c[:]); err != nil {
			e.T.Fatalf("no completion with the failure of the work request: %v; queue pair: %v", err,
				e.QP.Err())
		}
		if c[0].Status != rdmap.Success {
			return &c[0]
		}
	}
}

// TestRegionLost truncates a registered file, and accesses the missing part by each operation. The region becomes
// invalid, and the connection of the operation must end with the right Terminate. Another connection of the device must
// continue.
//
//req:rfc5040-4.8-1
func TestRegionLost(t *testing.T) {
	const size, keep = 1 << 20, 256 << 10
	const inside = keep + 100_000 // missing after truncation
	touch := map[string]func(a, b *verbstest.End, mr verbs.MR){
		"peer writes": func(a, b *verbstest.End, mr verbs.MR) {
			a.Post(verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{a.MR.SGE(0, size)},
				RemoteSTag: mr.STag()})
		},
		"peer reads": func(a, b *verbstest.End, mr verbs.MR) {
			a.Post(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{a.MR.SGE(0, size)},
				RemoteSTag: mr.STag()})
		},
		"peer adds": func(a, b *verbstest.End, mr verbs.MR) {
			a.Post(verbs.SendWR{Op: rdmap.WRFetchAdd, SGL: []verbs.SGE{a.MR.SGE(0, 8)},
				RemoteSTag: mr.STag(), RemoteTO: inside &^ 7})
		},
		"peer sends": func(a, b *verbstest.End, mr verbs.MR) {
			if err := b.QP.PostRecv(&verbs.RecvWR{ID: 7,
				SGL: []verbs.SGE{mr.SGE(inside, 4096)}}); err != nil {
				a.T.Fatal(err)
			}
			// When this Read has completed, the worker knows the receive that was posted before.
			b.Post(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{b.MR.SGE(0, 8)},
				RemoteSTag: a.MR.STag()})
			b.Wait()
			a.Post(verbs.SendWR{Op: rdmap.WRSend, SGL: []verbs.SGE{a.MR.SGE(0, 4096)}})
		},
		"own write": func(a, b *verbstest.End, mr verbs.MR) {
			b.Post(verbs.SendWR{ID: 7, Op: rdmap.WRWrite,
				SGL: []verbs.SGE{mr.SGE(inside, 100_000)}, RemoteSTag: a.MR.STag()})
		},
		"own send": func(a, b *verbstest.End, mr verbs.MR) {
			if err := a.QP.PostRecv(
				&verbs.RecvWR{SGL: []verbs.SGE{a.MR.SGE(0, 200_000)}}); err != nil {
				a.T.Fatal(err)
			}
			// When this Read has completed, the worker knows the receive that was posted before.
			a.Post(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{a.MR.SGE(0, 8)},
				RemoteSTag: b.MR.STag()})
			a.Wait()
			b.Post(verbs.SendWR{ID: 7, Op: rdmap.WRSend, SGL: []verbs.SGE{b.MR.SGE(0, 100),
				mr.SGE(inside, 100_000)}})
		},
		"own read": func(a, b *verbstest.End, mr verbs.MR) {
			b.Post(verbs.SendWR{ID: 7, Op: rdmap.WRRead, SGL: []verbs.SGE{mr.SGE(inside, 4096)},
				RemoteSTag: a.MR.STag()})
		},
		"own atomic": func(a, b *verbstest.End, mr verbs.MR) {
			word, err := a.PD.RegMR(make([]byte, 8), verbs.RemoteAtomic)
			if err != nil {
				a.T.Fatal(err)
			}
			b.Post(verbs.SendWR{ID: 7, Op: rdmap.WRFetchAdd,
				SGL: []verbs.SGE{mr.SGE(inside&^7, 8)}, RemoteSTag: word.STag()})
		},
	}
	for _, transport := range []string{"kernel", unmarked, "xdp", "packet-gso"} {
		for name, f := range touch {
			t.Run(transport+"/"+name, func(t *testing.T) {
				t.Parallel()
				da, db, at := pairOf(t, transport)
				a, b := verbstest.New(t, da, size), verbstest.New(t, db, size)
				verbstest.Connect(t, a, b, at)
				otherA, otherB := verbstest.New(t, da, size), verbstest.New(t, db, size)
				verbstest.Connect(t, otherA, otherB, at)
				mem, cut := mapped(t, size)
				mr, err := b.PD.RegMR(mem, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite|
					verbs.RemoteAtomic)
				if err != nil {
					t.Fatal(err)
				}
				cut(keep)
				f(a, b, mr)
				regionIsLost(t, a, b, mr)
				if name[:3] == "own" {
					if c := failure(b); c.ID != 7 || c.Status != rdmap.LocProtErr {
						t.Errorf("completion: %+v, want IBV_WC_LOC_PROT_ERR of 7", c)
					}
				} else if name == "peer reads" || name == "peer adds" { // others may complete early
					failure(a)
				}
				verbstest.Exercise(t, otherA, otherB)
				if err := b.QP.Close(); err != nil {
					t.Error(err)
				}
				if err := mr.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// regionIsLost checks that region mr of b is lost, and that the connection of a and b ended with the error for that.
func regionIsLost(t *testing.T, a, b *verbstest.End, mr verbs.MR) {
	t.Helper()
	for _, e := range []*verbstest.End{a, b} {
		select {
		case <-e.QP.Done():
		case <-time.After(20 * time.Second):
			t.Fatal("the connection did not end")
		}
	}
	var lost *core.RegionError
	if !errors.As(mr.Err(), &lost) || lost.STag != mr.STag() || lost.Len != len(mr.Bytes()) ||
		lost.Off >= uint64(lost.Len) {
		t.Errorf("region: %v", mr.Err())
	}
	want := rdmap.CauseCatastrophic.Errorf("")
	for _, e := range []*verbstest.End{a, b} {
		var got *ulpdu.Error
		if !errors.As(e.QP.Err(), &got) || !got.Is(want) {
			t.Errorf("queue pair: %v, want %v", e.QP.Err(), want)
		}
	}
	if h := b.Dev.(*core.Device).Contained(); h.RegionFaults != 1 {
		t.Errorf("%+v, want one region", h)
	}
}

// unmarked is the name of the kernel transport without markers, in which data is lent to the kernel and not copied.
const unmarked = "kernel without markers"

// pairOf returns two devices, and the address of the second one with port 0, which means any free port.
func pairOf(t *testing.T, transport string) (a, b *core.Device, at netip.AddrPort) {
	t.Helper()
	return pairWith(t, transport,
		core.Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

func pairWith(t *testing.T, transport string, o core.Options) (a, b *core.Device,
	at netip.AddrPort) {
	t.Helper()
	if transport == "kernel" || transport == unmarked {
		if transport == unmarked {
			o.MPA.Markers = verbs.MarkersOff
		}
		open := func() *core.Device {
			d, err := sockets.Open(sockets.Config{Options: o})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			return d
		}
		return open(), open(), netip.MustParseAddrPort("127.0.0.1:0")
	}
	ours, peer, net := xdpPair(t,
		topo.Options{OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads},
		func(c *xdp.Config) {
			c.Options, c.Transmit = o, xdp.Transmit(transport)
		})
	return ours.Device, peer.Device, netip.AddrPortFrom(net.B.Addr4.Addr(), 0)
}

// TestRegionLostRepeated truncates a file while its bytes are in flight, on a lossy path, so that some bytes to
// retransmit can no longer be read. No Read may complete with bytes that are not in the file. In at least one round the
// region must be lost.
func TestRegionLostRepeated(t *testing.T) {
	t.Parallel()
	da, db, net := xdpPair(t, topo.Options{}, func(c *xdp.Config) {
		c.Wrap = func(_ int, p ring.Port) (ring.Port, error) {
			return newFaulty(p, rates{drop: 0.05}), nil
		}
	})
	const size, n, reads = 8 << 20, 512 << 10, 16
	lost := 0
	for round := range 8 {
		a, b := verbstest.New(t, da, size), verbstest.New(t, db, size)
		verbstest.Connect(t, a, b, netip.AddrPortFrom(net.B.Addr4.Addr(), uint16(7174+round)))
		mem, cut := mapped(t, size)
		for i := range mem {
			mem[i] = byte(i) | 1 // never 0
		}
		mr, err := b.PD.RegMR(mem, verbs.RemoteRead)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		go func() { // ends the wait below if the reset is lost too
			select {
			case <-b.QP.Done():
				time.AfterFunc(time.Second, cancel)
			case <-ctx.Done():
			}
		}()
		for i := range reads {
			a.Post(verbs.SendWR{ID: uint64(i), Op: rdmap.WRRead,
				SGL: []verbs.SGE{a.MR.SGE(i*n, n)}, RemoteSTag: mr.STag(), RemoteTO: ddpTO(i * n)})
		}
		for done := 0; done < reads; done++ {
			var c [1]verbs.Completion
			if _, err := a.CQ.Wait(ctx, c[:]); err != nil || c[0].Status != rdmap.Success {
				break
			}
			for i, o := range a.Mem[c[0].ID*n:][:n] {
				if want := byte(int(c[0].ID)*n+i) | 1; o != want {
					t.Fatalf("Read %d completed and byte %d is %#x, in the file %#x", c[0].ID, i,
						o, want)
				}
			}
			if done == round {
				cut(0)
			}
		}
		t.Logf("round %d: %v", round, b.QP.Err())
		if mr.Err() != nil {
			lost++
		}
		a.QP.Close()
		b.QP.Close()
	}
	if lost == 0 {
		t.Error("no region was lost: the files were cut off too late")
	}
}
