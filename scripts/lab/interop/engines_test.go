package interop

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/mpa/startup"
	"xwarp/ring"
	"xwarp/ring/pcapng"
)

// pair is two connected engines on AF_XDP, each in a namespace. The traffic of a is captured.
type pair struct {
	a, b *peer
	mem  [2][]byte   // memory of a and of b
	mr   [2]verbs.MR // mem, registered
	file string      // the capture
	stop func() error
}

func newPair(t *testing.T, m verbs.MPAConfig) *pair {
	t.Helper()
	needs.XSK(t)
	needs.NetNS(t)
	net, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	p := &pair{file: filepath.Join(t.TempDir(), "a.pcapng")}
	disk, err := os.Create(p.file)
	if err != nil {
		t.Fatal(err)
	}
	buf := bufio.NewWriter(disk)
	file := pcapng.NewFile(buf)
	open := func(h *topo.Host, wrap bool) *xdp.Device {
		cfg := xdp.Config{Interface: h.Link.Name}
		cfg.MPA = m
		if wrap {
			cfg.Wrap = func(_ int, port ring.Port) (ring.Port, error) {
				return file.Wrap(port, "a", pcapng.Both, func() int64 {
					return time.Now().UnixNano()
				})
			}
		}
		var d *xdp.Device
		if err := h.Do(func() (err error) {
			d, err = xdp.Open(cfg)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	da, db := open(net.A, true), open(net.B, false)
	p.a, p.b = newPeer(t, da, 256), newPeer(t, db, 256)
	for i, e := range []*peer{p.a, p.b} {
		p.mem[i] = make([]byte, 1<<18)
		p.mr[i] = e.register(p.mem[i], verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite|
			verbs.RemoteAtomic)
		e.received = func(verbs.Completion) {}
	}
	for range 200 {
		if err := p.b.qp.PostRecv(
			&verbs.RecvWR{SGL: []verbs.SGE{p.mr[1].SGE(0, 1<<16)}}); err != nil {
			t.Fatal(err)
		}
	}
	p.stop = func() error {
		da.Close()
		return firstError(file.Flush(), buf.Flush, disk.Close)
	}
	ctx := limited(t, time.Minute)
	at := netip.AddrPortFrom(net.B.Addr4.Addr(), 7175)
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := p.b.serve(ctx, at, nil, func() error { close(ready); return nil })
		done <- err
	}()
	<-ready
	if err := firstError(da.Dial(ctx, at, p.a.qp, verbs.DialConfig{}), func() error {
		return <-done
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEveryOpcode lets tshark decode every message of RFC 5040 and RFC 7306 that the engine sends, with lengths from 0
// to 64 KiB, with and without markers.
//
//req:rfc5044-4.1-2 rfc5044-4.3-1 rfc5044-4.3-3 rfc5044-4.4-5 rfc5041-4.2-1 rfc5041-4.3-1 rfc5041-5.2-4 rfc5040-4.1-1
//req:rfc5040-4.1-3 rfc6581-9.2-4 rfc7306-4.1-1 rfc7306-5.2-1 rfc7306-6.3-1
func TestEveryOpcode(t *testing.T) {
	for _, tc := range []struct {
		name string
		mpa  verbs.MPAConfig
	}{
		{"markers", verbs.MPAConfig{}},
		{"no markers", verbs.MPAConfig{Markers: verbs.MarkersOff}},
		{"RTR Send, no CRC", verbs.MPAConfig{RTR: startup.RTRSend, CRC: verbs.CRCOptional}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPair(t, tc.mpa)
			ctx := limited(t, time.Minute)
			rnd := rand.New(rand.NewPCG(1, 2))
			for _, wr := range p.program(rnd) {
				if err := firstError(p.a.post(wr), func() error {
					return p.a.until(ctx, func() bool { return p.a.busy < 8 })
				}); err != nil {
					t.Fatalf("%v: %v", wr.Op, err)
				}
			}
			if err := p.a.until(ctx, func() bool { return p.a.busy == 0 }); err != nil {
				t.Fatal(err)
			}
			// A Write beyond the region makes the other side send a Terminate.
			bad := verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{p.mr[0].SGE(0, 100)},
				RemoteSTag: p.mr[1].STag(), RemoteTO: 1 << 40}
			if err := p.a.post(bad); err != nil {
				t.Fatal(err)
			}
			if err := p.terminated(ctx); err != nil {
				t.Fatal(err)
			}
			if err := p.stop(); err != nil {
				t.Fatal(err)
			}
			if err := judge(p.file, filepath.Join(t.TempDir(), "recut.pcap"),
				opcodes[:12]...); err != nil {
				t.Error(err)
			}
		})
	}
}

// program returns work requests for every operation with many lengths, among them 0, 1 and the payload of whole
// segments.
func (p *pair) program(rnd *rand.Rand) (list []verbs.SendWR) {
	lengths := []int{0, 1, 2, 3, 4, 5, 63, 64, 511, 512, 513, 1400, 1430, 1431, 2860, 40000,
		1 << 16}
	for range 8 {
		lengths = append(lengths, rnd.IntN(3000))
	}
	remote := p.mr[1].STag()
	for _, n := range lengths {
		sgl := []verbs.SGE{p.mr[0].SGE(n, n)}
		list = append(list,
			verbs.SendWR{Op: rdmap.WRWrite, SGL: sgl, RemoteSTag: remote, RemoteTO: ddp.TO(n)},
			verbs.SendWR{Op: rdmap.WRRead, SGL: sgl, RemoteSTag: remote, RemoteTO: ddp.TO(n)},
			verbs.SendWR{Op: rdmap.WRSend, SGL: sgl},
			verbs.SendWR{Op: rdmap.WRSendSE, SGL: sgl},
		)
	}
	for i := range 2 {
		imm := verbs.SendWR{Op: rdmap.WRImm + verbs.WROp(i)}
		binary.BigEndian.PutUint64(imm.Imm[:], rnd.Uint64())
		list = append(list, imm)
	}
	result := []verbs.SGE{p.mr[0].SGE(1<<17, 8)}
	list = append(list,
		verbs.SendWR{Op: rdmap.WRFetchAdd, SGL: result, RemoteSTag: remote, RemoteTO: 1 << 17,
			Data: 5},
		verbs.SendWR{Op: rdmap.WRCmpSwap, SGL: result, RemoteSTag: remote, RemoteTO: 1 << 17,
			Data: 9, Mask: ^uint64(0), Compare: 5, CompareMask: ^uint64(0)},
	)
	for i := range 2 { // each Send with Invalidate invalidates a region of the other side
		mr, err := p.b.pd.RegMR(make([]byte, 64), verbs.RemoteWrite)
		if err != nil {
			p.b.t.Fatal(err)
		}
		list = append(list, verbs.SendWR{Op: rdmap.WRSendInv + verbs.WROp(i),
			SGL: []verbs.SGE{p.mr[0].SGE(0, 33)}, Invalidate: mr.STag()})
	}
	return list
}

// terminated waits until the other side's Terminate has ended the connection, and checks its cause.
func (p *pair) terminated(ctx context.Context) error {
	select {
	case <-p.a.qp.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	want := ddp.CauseBounds.Errorf("")
	if err := p.a.qp.Err(); !errors.Is(err, want) {
		return fmt.Errorf("the connection ended with %v, want %v", err, want)
	}
	// The connection ends at the other side after the exchange of FINs.
	select {
	case <-p.b.qp.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
