package xdp_test

import (
	"context"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/bpf"
	"xwarp/bpf/needs"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/wire"
)

var floodRounds = flag.Int("flood.rounds", 0, "number of `rounds` in which goodput under floods "+
	"is measured")

// enginePort is the port of B at which the engine listens. At kernelPort B's kernel listens; it is flooded for
// comparison.
const enginePort, kernelPort = 7174, 7999

// sidePort stands for a flood on another wire, flooded.side.
const sidePort = 1

// flooded has two hosts. Host B runs an engine beside kernel TCP. On host A one thread sends a flood of segments from
// addresses that do not exist, beside legitimate programs on kernel TCP.
type flooded struct {
	*testing.T
	flags wire.Flags // of the flood's segments
	what  string     // name of the flood's segments
	tn    *topo.Net
	side  *topo.Net // another wire, where an XDP program drops all frames
	b     *xdp.Device
	a     *core.Device   // on A's kernel
	at    netip.AddrPort // enginePort at B's address
	end   *verbstest.End // end on A of the established connection
	got   verbs.QP       // end on B of the established connection
	busy  atomic.Bool    // the established connection must write
}

// TestFloodedListener floods a listener with SYNs, and with ACKs, as fast as one thread can send. Legitimate
// connections must succeed, and the established one must continue. With -flood.rounds it measures the goodput of the
// established connection without a flood, with a flood on another wire, and with floods of that rate at the engine's
// port and at the kernel's. The flood on another wire shows the cost of the CPU time for sending frames and dropping
// them by XDP.
func TestFloodedListener(t *testing.T) {
	f := newFlooded(t)
	kinds := map[wire.Flags]string{wire.SYN: "SYNs", wire.ACK: "ACKs"}
	for f.flags, f.what = range kinds {
		if *floodRounds > 0 {
			f.measure(*floodRounds)
		} else {
			f.goesOn()
		}
	}
	if s, err := f.b.Stats(); err != nil || s.Queues[0].Stack.SYNCookies == 0 {
		t.Errorf("no SYN was answered with a cookie, so that was no flood: %v", err)
	}
	if f.steering()[bpf.DropStray] == 0 {
		t.Error("no ACK was dropped, so that was no flood")
	}
}

// goesOn floods for a second and checks that the established connection continues.
func (f *flooded) goesOn() {
	before := f.received()
	sent, longest := f.flood(enginePort, 0, time.Second, true)
	f.Logf("%.0f %s/s; the slowest legitimate connection took %v", sent, f.what, longest)
	f.busy.Store(true) // the worker may have had no CPU time during the flood
	for begin := time.Now(); f.received() == before; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			f.Fatal("the established connection makes no progress")
		}
	}
}

func newFlooded(t *testing.T) *flooded {
	needs.XSK(t)
	needs.NetNS(t)
	f := &flooded{T: t}
	var err error
	if f.tn, err = topo.New(topo.Options{IPv4Only: true, OffloadsA: topo.NoOffloads}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.tn.Close() })
	if f.side, err = topo.New(topo.Options{IPv4Only: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.side.Close() })
	dropAll(t, f.side.B)
	// Replies to addresses that do not exist go to A, whose kernel drops them.
	if err := f.tn.B.Netlink().RouteAdd(&netlink.Route{LinkIndex: f.tn.B.Link.Index,
		Gw: f.tn.A.Addr4.Addr().AsSlice()}); err != nil {
		t.Fatal(err)
	}
	if err := f.tn.B.Do(func() (err error) {
		f.b, err = xdp.Open(xdp.Config{Interface: "eth0"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.b.Close() })
	if f.a, err = sockets.Open(sockets.Config{Dial: f.tn.A.Dial}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.a.Close() })
	other, err := f.tn.B.Listen(netip.AddrPortFrom(f.tn.B.Addr4.Addr(), kernelPort))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	f.at = netip.AddrPortFrom(f.tn.B.Addr4.Addr(), enginePort)
	f.establish()
	return f
}

// dropAll attaches an XDP program that drops every frame that a host's interface receives, until its result is closed
// or the test ends.
func dropAll(t testing.TB, h *topo.Host) link.Link {
	t.Helper()
	l, err := tryDropAll(h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func tryDropAll(h *topo.Host) (l link.Link, err error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1 /* XDP_DROP */), asm.Return()}})
	if err != nil {
		return nil, err
	}
	defer prog.Close()
	err = h.Do(func() (err error) {
		l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: h.Link.Index})
		return err
	})
	return l, err
}

// establish opens the established connection. While f.busy is set, A writes on it.
func (f *flooded) establish() {
	l, err := f.b.Listen(f.at, verbs.ListenConfig{})
	if err != nil {
		f.Fatal(err)
	}
	accepted := make(chan verbs.QP, 1)
	go func() {
		for {
			r, err := l.Accept(f.Context())
			if err != nil {
				return
			}
			e, err := verbstest.Make(f.b, 1<<20)
			if err != nil {
				f.Error(err)
				return
			}
			if err := r.Accept(f.Context(), e.QP, e.MR.Remote().Append(nil)); err == nil {
				select {
				case accepted <- e.QP:
				default:
				}
			}
		}
	}()
	f.end = verbstest.New(f, f.a, 1<<20)
	ctx, cancel := context.WithTimeout(f.Context(), 30*time.Second)
	defer cancel()
	peer, err := f.end.Dial(ctx, f.at)
	if err != nil {
		f.Fatal(err)
	}
	f.got = <-accepted
	go func() {
		wr := verbs.SendWR{Op: verbs.WRRead, SGL: []verbs.SGE{f.end.MR.SGE(0, 8)},
			RemoteSTag: peer.STag, RemoteTO: peer.Base}
		write := verbs.SendWR{Op: verbs.WRWrite, RemoteSTag: peer.STag, RemoteTO: peer.Base,
			SGL: []verbs.SGE{f.end.MR.SGE(0, 256<<10)}}
		for f.Context().Err() == nil {
			if !f.busy.Load() {
				time.Sleep(time.Millisecond)
				continue
			}
			for range 8 {
				f.end.QP.PostSend(&write)
			}
			if err := f.end.Do(f.Context(), wr); err != nil && f.Context().Err() == nil {
				f.Errorf("the established connection: %v", err)
				return
			}
		}
	}()
}

// received returns the number of payload bytes that B has received on the established connection.
func (f *flooded) received() uint64 {
	f.Helper()
	i, err := f.got.Info()
	if err != nil {
		f.Fatal(err)
	}
	return i.Counters.PayloadIn
}

// overrun returns how many frames were lost because the worker was too slow.
func (f *flooded) overrun() uint64 {
	f.Helper()
	s, err := f.b.Stats()
	if err != nil {
		f.Fatal(err)
	}
	r := &s.Queues[0].Ring
	return r.KernelRxRingFull + r.KernelFillRingEmpty + r.KernelRxDropped
}

// flood floods a port for the time d, at most at rate segments per second unless rate is 0. Port 0 means no flood,
// sidePort the other wire. Meanwhile the established connection writes and, if honest is true, legitimate connections
// are opened. It returns the segments sent per second, and the longest time to connect.
func (f *flooded) flood(port uint16, rate float64, d time.Duration, honest bool) (sent float64,
	slowest time.Duration) {
	f.Helper()
	f.busy.Store(true)
	defer f.busy.Store(false)
	ctx, cancel := context.WithTimeout(f.Context(), d)
	defer cancel()
	var both sync.WaitGroup
	if port != 0 {
		both.Go(func() { sent = f.send(ctx, port, rate) })
	}
	for honest && ctx.Err() == nil {
		slowest = max(slowest, f.connect())
	}
	<-ctx.Done()
	both.Wait()
	return sent, slowest
}

// connect opens a connection as a legitimate program does, uses it and closes it. It returns the time to connect.
func (f *flooded) connect() time.Duration {
	f.Helper()
	e := verbstest.New(f, f.a, 64<<10)
	ctx, cancel := context.WithTimeout(f.Context(), 30*time.Second)
	defer cancel()
	begin := time.Now()
	peer, err := e.Dial(ctx, f.at)
	took := time.Since(begin)
	if err == nil {
		err = e.WriteAndRead(ctx, peer)
	}
	if err != nil {
		f.Fatalf("a legitimate connection, after %v: %v", time.Since(begin), err)
	}
	e.QP.Close()
	return took
}

// send sends the segments of the flood from A until ctx is done, and returns their rate per second.
func (f *flooded) send(ctx context.Context, port uint16, rate float64) float64 {
	fd, from := -1, f.tn.A
	if port == sidePort {
		from = f.side.A
	}
	if err := from.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: from.Link.Index})
		}
		return err
	}); err != nil {
		f.Error(err)
		return 0
	}
	defer unix.Close(fd)
	frames := make([][]byte, 4096)
	for i := range frames {
		frames[i] = f.segment(port)
	}
	begin := time.Now()
	n := 0
	for ; n%64 != 0 || ctx.Err() == nil; n++ {
		b := frames[n%len(frames)]
		// Each use of a frame has another source port. The checksum is updated (RFC 1624).
		src := b[34:36]
		binary.BigEndian.PutUint16(src, binary.BigEndian.Uint16(src)+1)
		sum := uint32(^binary.BigEndian.Uint16(b[50:52])) + 1
		binary.BigEndian.PutUint16(b[50:52], ^uint16(sum+sum>>16))
		if _, err := unix.Write(fd, b); err != nil && err != unix.ENOBUFS {
			f.Error(err)
			return 0
		}
		for n%64 == 0 && rate > 0 && float64(n) > rate*time.Since(begin).Seconds() {
		}
	}
	return float64(n) / time.Since(begin).Seconds()
}

// segment returns a frame with a segment of the flood, from a random address of the benchmark network (RFC 2544).
func (f *flooded) segment(port uint16) []byte {
	h := wire.Header{SrcPort: uint16(rand.Uint32()), DstPort: port, Seq: seq.Num(rand.Uint32()),
		Ack: seq.Num(rand.Uint32()), Flags: f.flags, Window: 65535}
	p := ip.Header{Src: ip.AddrFrom4([4]byte{198, 18, byte(rand.Uint32()), byte(rand.Uint32())}),
		Dst: ip.AddrFrom4(f.at.Addr().As4()), Proto: ip.ProtoTCP, TTL: 64, DF: true,
		PayloadLen: h.Len()}
	e := ip.Ethernet{Src: ip.MAC(f.tn.A.Link.MAC), Dst: ip.MAC(f.tn.B.Link.MAC), Type: 0x0800}
	b := make([]byte, e.Len()+p.Len()+h.Len())
	n := e.Put(b)
	n += p.Put(b[n:])
	h.Put(b[n:])
	wire.PutChecksum(b[n:], wire.Finish(wire.Sum(b[n:], p.PseudoSum(h.Len()))))
	return b
}

// floodWays are the floods under which goodput is measured.
var floodWays = [...]struct {
	name string
	port uint16
}{{"no flood", 0}, {"another wire", sidePort}, {"engine's port", enginePort},
	{"kernel's port", kernelPort}}

const sideWay = 1

// measure logs the median goodput under each of floodWays over a number of rounds. The speed of a shared machine
// varies. So a round takes a few seconds, runs the ways forwards and backwards, and compares them with each other. The
// flood of the kernel's port comes last, because the connection needs time to recover from it.
func (f *flooded) measure(rounds int) {
	f.flood(enginePort, 0, time.Second, false) // uses up the burst of SYNs that the program admits
	var goodput, ratio [len(floodWays)][]float64
	var slowest time.Duration
	for range rounds {
		var sum, times [len(floodWays)]float64
		rate := 0.0
		for _, i := range [...]int{0, sideWay, 2, 2, sideWay, 0, 3} {
			g, sent := f.goodput(i, rate)
			sum[i], times[i] = sum[i]+g, times[i]+1
			if i == sideWay {
				rate = sent
			}
		}
		side := sum[sideWay] / times[sideWay]
		for i := range floodWays {
			g := sum[i] / times[i]
			goodput[i], ratio[i] = append(goodput[i], g), append(ratio[i], 100*g/side)
		}
		_, s := f.flood(enginePort, 0, time.Second, true)
		slowest = max(slowest, s)
	}
	for i, w := range floodWays {
		slices.Sort(goodput[i])
		slices.Sort(ratio[i])
		f.Logf("%s, %s: %.0f MB/s, %.0f %% of that with a flood on another wire (quartiles %.0f and "+
			"%.0f)", f.what, w.name, goodput[i][rounds/2], ratio[i][rounds/2], ratio[i][rounds/4],
			ratio[i][rounds*3/4])
	}
	f.Logf("%s: medians of %d rounds; the slowest legitimate connection took %v", f.what, rounds,
		slowest)
}

// goodput returns the MB/s of the established connection under one of floodWays, and the rate of the flood. rate limits
// the flood, except on another wire.
func (f *flooded) goodput(way int, rate float64) (mbps, sent float64) {
	const settle, d = 100 * time.Millisecond, 500 * time.Millisecond
	w := floodWays[way]
	if w.port == sidePort {
		rate = 0
	}
	done := make(chan float64, 1)
	go func() {
		s, _ := f.flood(w.port, rate, settle+d, false)
		done <- s
	}()
	time.Sleep(settle)
	before, lost, dropped, begin := f.received(), f.overrun(), f.limited(), time.Now()
	sent = <-done
	mbps = float64(f.received()-before) / time.Since(begin).Seconds() / 1e6
	f.Logf("%s: %.0f MB/s, %.0f %s/s, of which %d dropped; %d frames found the receive ring full",
		w.name, mbps, sent, f.what, f.limited()-dropped, f.overrun()-lost)
	return mbps, sent
}

// limited returns the number of SYNs and strays that the steering program dropped because of its limits.
func (f *flooded) limited() uint64 {
	f.Helper()
	c := f.steering()
	return c[bpf.DropSYN] + c[bpf.DropStray]
}

func (f *flooded) steering() bpf.Counts {
	f.Helper()
	s, err := f.b.Stats()
	if err != nil {
		f.Fatal(err)
	}
	return s.Steering
}
