package process_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"xwarp/bench/endpoint"
	"xwarp/bench/process"
	"xwarp/bench/topo"
	"xwarp/bpf"
	"xwarp/bpf/needs"
	"xwarp/engine/xdp"
)

// TestMain makes the test binary run as an end or a load when a Runner or StartLoad starts it with process.EndCommand.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == process.EndCommand {
		if err := process.Main(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// hosts returns a topology of two hosts and a Runner for measurements between them.
func hosts(t *testing.T) (net *topo.Net, run process.Runner) {
	t.Helper()
	needs.XSK(t)
	needs.NetNS(t)
	net, err := topo.New(topo.Options{OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	cpus, err := process.Processors()
	if err != nil {
		t.Fatal(err)
	}
	return net, process.Runner{CPUs: cpus, Env: endpoint.LocalEnv("test")}
}

// TestPeers runs a short measurement of every peer except Daemon. It checks that there is a result, not how fast the
// peer is.
func TestPeers(t *testing.T) {
	net, run := hosts(t)
	const short, warm = 60 * time.Millisecond, 10 * time.Millisecond
	for _, tc := range []struct {
		spec endpoint.Spec
		ipv6 bool
	}{
		{spec: endpoint.Spec{Peer: endpoint.XDP, Verb: endpoint.Write, Mode: endpoint.Bandwidth,
			Size: 1 << 20, Depth: 8}},
		{spec: endpoint.Spec{Peer: endpoint.XDP, Verb: endpoint.Read, Mode: endpoint.Bandwidth,
			Size: 1 << 16, Depth: 16}, ipv6: true},
		{spec: endpoint.Spec{Peer: endpoint.XDP, Verb: endpoint.Send, Mode: endpoint.Bandwidth,
			Size: 64, Depth: 512, Moderation: 64}},
		{spec: endpoint.Spec{Peer: endpoint.XDP, Verb: endpoint.Send, Mode: endpoint.Bandwidth,
			Size: 4096, Bidirectional: true}},
		{spec: endpoint.Spec{Peer: endpoint.XDP, Verb: endpoint.WriteSend, Mode: endpoint.Bandwidth,
			Size: 4096}},
		{spec: endpoint.Spec{Peer: endpoint.XDP, Verb: endpoint.Write, Mode: endpoint.Bandwidth,
			Size: 4096, Conns: 16, Depth: 8, NoMarkers: true, NoCRC: true}},
		{spec: endpoint.Spec{Peer: endpoint.XDP, Verb: endpoint.Write, Mode: endpoint.Bandwidth,
			Size: 4096, Iterations: 100}},
		{spec: endpoint.Spec{Peer: endpoint.XDP, Verb: endpoint.Write, Mode: endpoint.Latency,
			Size: 64}},
		{spec: endpoint.Spec{Peer: endpoint.XDP, Verb: endpoint.Read, Mode: endpoint.Latency,
			Size: 64, Iterations: 100}},
		{spec: endpoint.Spec{Peer: endpoint.XDP, Verb: endpoint.Send, Mode: endpoint.Latency,
			Size: 4096}},
		{spec: endpoint.Spec{Peer: endpoint.XDP, Verb: endpoint.Write, Mode: endpoint.Connect}},
		{spec: endpoint.Spec{Peer: endpoint.Layered, Verb: endpoint.Write, Mode: endpoint.Bandwidth,
			Size: 1 << 16}},
		{spec: endpoint.Spec{Peer: endpoint.Layered, Verb: endpoint.Write, Mode: endpoint.Latency,
			Size: 64}},
		{spec: endpoint.Spec{Peer: endpoint.Layered, Verb: endpoint.Send, Mode: endpoint.Bandwidth,
			Size: 4096, Depth: 64, Moderation: 8}},
		{spec: endpoint.Spec{Peer: endpoint.Layered, ServerPeer: endpoint.XDP, Size: 1 << 16,
			Mode: endpoint.Bandwidth}},
		{spec: endpoint.Spec{Peer: endpoint.XDP, ServerPeer: endpoint.Layered, Size: 1 << 16,
			Mode: endpoint.Latency}, ipv6: true},
		{spec: endpoint.Spec{Peer: endpoint.TCP, Verb: endpoint.Write, Mode: endpoint.Bandwidth,
			Size: 1 << 16}},
		{spec: endpoint.Spec{Peer: endpoint.TCP, Verb: endpoint.Write, Mode: endpoint.Latency,
			Size: 64}, ipv6: true},
		{spec: endpoint.Spec{Peer: endpoint.TCP, Verb: endpoint.Write, Mode: endpoint.Connect}},
		{spec: endpoint.Spec{Peer: endpoint.GSO, Mode: endpoint.Bandwidth, Size: 1500}},
		{spec: endpoint.Spec{Peer: endpoint.XDP, Verb: endpoint.Write, Mode: endpoint.Bandwidth,
			Size: 1 << 16, NoMarkers: true, Transmit: xdp.TransmitGSO, Collect: true}},
		{spec: endpoint.Spec{Peer: endpoint.Raw, Verb: endpoint.Write, Mode: endpoint.Bandwidth,
			Size: 1500}},
		{spec: endpoint.Spec{Peer: endpoint.Raw, Verb: endpoint.Write, Mode: endpoint.Latency,
			Size: 128}},
		{spec: endpoint.Spec{Peer: endpoint.Asavie, Verb: endpoint.Write, Mode: endpoint.Bandwidth,
			Size: 1500}},
		{spec: endpoint.Spec{Peer: endpoint.Asavie, Verb: endpoint.Write, Mode: endpoint.Latency,
			Size: 128}},
	} {
		s := tc.spec
		if s.Iterations == 0 {
			s.Warmup, s.Duration = warm, short
		}
		t.Run(fmt.Sprintf("%s/%s_%s/%d", s.Peer, s.Verb, s.Mode, s.Size), func(t *testing.T) {
			rep, err := run.Run(t.Context(), net, s, tc.ipv6)
			if err != nil {
				t.Fatal(err)
			}
			r := rep.Main()
			if r == nil || r.Messages == 0 || r.Seconds <= 0 {
				t.Fatalf("measured %+v", r)
			}
			if n := uint64(s.Iterations); n > 0 && r.Messages != n*uint64(max(1, s.Conns)) {
				t.Errorf("%d messages, want %d on each of %d connections", r.Messages, n,
					max(1, s.Conns))
			}
			if s.Mode == endpoint.Latency && (r.Latency == nil || r.Latency.P50 <= 0) {
				t.Errorf("latency %+v", r.Latency)
			}
			// The transports have the names of their peers; plain sockets and raw frames have none.
			for _, end := range []struct {
				peer endpoint.Peer
				over string
			}{{s.Peer, rep.ClientEnv.Transport}, {s.AtServer().Peer, rep.ServerEnv.Transport}} {
				if p := end.peer; (p == endpoint.XDP || p == endpoint.Layered) &&
					end.over != string(p) {
					t.Errorf("an end of %s over %q", p, end.over)
				}
			}
			t.Logf("%.0f messages/s, %.3f Gbit/s, %d mallocs, %d collections %s", r.MessageRate(),
				r.Rate()*8e-9, r.Mallocs, r.GCs, lat(r.Latency))
		})
	}
}

// TestXDPMode checks that the programs of both ends run in the mode of the Spec.
func TestXDPMode(t *testing.T) {
	for mode, want := range map[bpf.Mode]uint32{bpf.ModeNative: nl.XDP_ATTACHED_DRV,
		bpf.ModeGeneric: nl.XDP_ATTACHED_SKB} {
		net, run := hosts(t)
		seen := make(chan [2]uint32, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			var modes [2]uint32
			for ctx.Err() == nil && (modes[0] == 0 || modes[1] == 0) {
				for i, h := range []*topo.Host{net.A, net.B} {
					modes[i] = max(modes[i], attached(h))
				}
				time.Sleep(time.Millisecond)
			}
			seen <- modes
		}()
		_, err := run.Run(t.Context(), net, endpoint.Spec{Peer: endpoint.XDP, XDPMode: mode,
			Mode: endpoint.Latency, Duration: 200 * time.Millisecond}, false)
		cancel()
		if modes := <-seen; err != nil || modes != [2]uint32{want, want} {
			t.Errorf("%s: the programs are attached in the modes %d, want %d; %v", mode, modes,
				want, err)
		}
	}
}

// attached returns the mode in which a program is attached to the host's link, as the kernel numbers it; 0 for none.
func attached(h *topo.Host) (mode uint32) {
	h.Do(func() error {
		l, err := netlink.LinkByName(h.Link.Name)
		if err == nil && l.Attrs().Xdp != nil {
			mode = l.Attrs().Xdp.AttachMode
		}
		return err
	})
	return mode
}

// TestLoads checks that measurements over daemons work beside each load.
func TestLoads(t *testing.T) {
	net, run := hosts(t)
	exe := filepath.Join(t.TempDir(), "xwarpd")
	build := exec.Command("go", "build", "-o", exe, "xwarp/cmd/xwarpd")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, h := range []*topo.Host{net.A, net.B} {
		d, err := process.StartDaemon(h, exe)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		run.Daemons[i] = d
	}
	for _, load := range []process.Load{process.Burn, process.Refuse, process.Bind} {
		stop, err := process.StartLoad(t.Context(), load, run.Daemons[0], run.Daemons[1],
			net.B.Addr4.Addr())
		if err != nil {
			t.Fatal(err)
		}
		s := endpoint.Spec{Peer: endpoint.Daemon, Mode: endpoint.Latency, Size: 8, Iterations: 20}
		rep, err := run.Run(t.Context(), net, s, false)
		stop()
		if err != nil {
			t.Fatalf("beside %s: %v", load, err)
		}
		if n := rep.Client.Messages; n != 20 {
			t.Errorf("beside %s: %d messages, want 20", load, n)
		}
	}
}

func lat(l *endpoint.Latencies) string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("p50 %.1f p99 %.1f max %.1f us", l.P50, l.P99, l.Max)
}

// TestSameFrames checks that without offloads the mean frame of kernel TCP and that of the engine have 1400 to 1514
// bytes each. So measurements compare both with frames of about the same size.
func TestSameFrames(t *testing.T) {
	net, run := hosts(t)
	for _, p := range []endpoint.Peer{endpoint.TCP, endpoint.XDP} {
		before := sent(t, net.A)
		s := endpoint.Spec{Peer: p, Mode: endpoint.Bandwidth, Size: 1 << 20, Depth: 8,
			Iterations: 40}
		if _, err := run.Run(t.Context(), net, s, false); err != nil {
			t.Fatal(err)
		}
		after := sent(t, net.A)
		mean := float64(after.TxBytes-before.TxBytes) / float64(after.TxPackets-before.TxPackets)
		if mean < 1400 || mean > 1514 {
			t.Errorf("%s: %.0f bytes in a frame on average, want nearly 1514 and never more", p,
				mean)
		}
	}
}

func sent(t *testing.T, h *topo.Host) netlink.LinkStatistics {
	l, err := h.Netlink().LinkByName(h.Link.Name)
	if err != nil {
		t.Fatal(err)
	}
	return *l.Attrs().Statistics
}
