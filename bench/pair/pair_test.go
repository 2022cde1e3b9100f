package pair_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/bench/pair"
	"xwarp/bench/perf"
	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine"
)

// TestMain makes the test binary an end when the runner starts it as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == pair.Argument {
		if err := pair.Main(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestPeers runs every peer shortly. What they measure is not judged here; that they measure anything is.
func TestPeers(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	net, err := topo.New(topo.Options{OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	cpus, err := pair.Processors()
	if err != nil {
		t.Fatal(err)
	}
	run := pair.Runner{CPUs: cpus, Env: perf.Platform("test")}
	const short, warm = 60 * time.Millisecond, 10 * time.Millisecond
	for _, tc := range []struct {
		spec perf.Spec
		ipv6 bool
	}{
		{spec: perf.Spec{Peer: perf.XDP, Verb: perf.Write, Mode: perf.Bandwidth, Size: 1 << 20, Depth: 8}},
		{spec: perf.Spec{Peer: perf.XDP, Verb: perf.Read, Mode: perf.Bandwidth, Size: 1 << 16, Depth: 16}, ipv6: true},
		{spec: perf.Spec{Peer: perf.XDP, Verb: perf.Send, Mode: perf.Bandwidth, Size: 64, Depth: 512, Moderation: 64}},
		{spec: perf.Spec{Peer: perf.XDP, Verb: perf.Send, Mode: perf.Bandwidth, Size: 4096, Bidirectional: true}},
		{spec: perf.Spec{Peer: perf.XDP, Verb: perf.WriteSend, Mode: perf.Bandwidth, Size: 4096}},
		{spec: perf.Spec{Peer: perf.XDP, Verb: perf.Write, Mode: perf.Bandwidth, Size: 4096, Conns: 16, Depth: 8, NoMarkers: true, NoCRC: true}},
		{spec: perf.Spec{Peer: perf.XDP, Verb: perf.Write, Mode: perf.Bandwidth, Size: 4096, Iterations: 100}},
		{spec: perf.Spec{Peer: perf.XDP, Verb: perf.Write, Mode: perf.Latency, Size: 64}},
		{spec: perf.Spec{Peer: perf.XDP, Verb: perf.Read, Mode: perf.Latency, Size: 64, Iterations: 100}},
		{spec: perf.Spec{Peer: perf.XDP, Verb: perf.Send, Mode: perf.Latency, Size: 4096}},
		{spec: perf.Spec{Peer: perf.XDP, Verb: perf.Write, Mode: perf.Connect}},
		{spec: perf.Spec{Peer: perf.Layered, Verb: perf.Write, Mode: perf.Bandwidth, Size: 1 << 16}},
		{spec: perf.Spec{Peer: perf.Layered, Verb: perf.Write, Mode: perf.Latency, Size: 64}},
		{spec: perf.Spec{Peer: perf.Layered, Verb: perf.Send, Mode: perf.Bandwidth, Size: 4096, Depth: 64, Moderation: 8}},
		{spec: perf.Spec{Peer: perf.TCP, Verb: perf.Write, Mode: perf.Bandwidth, Size: 1 << 16}},
		{spec: perf.Spec{Peer: perf.TCP, Verb: perf.Write, Mode: perf.Latency, Size: 64}, ipv6: true},
		{spec: perf.Spec{Peer: perf.TCP, Verb: perf.Write, Mode: perf.Connect}},
		{spec: perf.Spec{Peer: perf.GSO, Mode: perf.Bandwidth, Size: 1500}},
		{spec: perf.Spec{Peer: perf.XDP, Verb: perf.Write, Mode: perf.Bandwidth, Size: 1 << 16, NoMarkers: true, Transmit: engine.TransmitGSO, Collect: true}},
		{spec: perf.Spec{Peer: perf.Raw, Verb: perf.Write, Mode: perf.Bandwidth, Size: 1500}},
		{spec: perf.Spec{Peer: perf.Raw, Verb: perf.Write, Mode: perf.Latency, Size: 128}},
		{spec: perf.Spec{Peer: perf.Asavie, Verb: perf.Write, Mode: perf.Bandwidth, Size: 1500}},
		{spec: perf.Spec{Peer: perf.Asavie, Verb: perf.Write, Mode: perf.Latency, Size: 128}},
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
				t.Errorf("%d messages, want %d on each of %d connections", r.Messages, n, max(1, s.Conns))
			}
			if s.Mode == perf.Latency && (r.Latency == nil || r.Latency.P50 <= 0) {
				t.Errorf("latency %+v", r.Latency)
			}
			t.Logf("%.0f messages/s, %.3f Gbit/s, %d mallocs, %d collections %s", r.MessageRate(), r.Rate()*8e-9, r.Mallocs, r.GCs, lat(r.Latency))
		})
	}
}

func lat(l *perf.Latencies) string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("p50 %.1f p99 %.1f max %.1f us", l.P50, l.P99, l.Max)
}

// TestSameFrames: without offloads the kernel's TCP puts no more into a frame than we do, so that a comparison is one of the
// same frames.
func TestSameFrames(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	net, err := topo.New(topo.Options{OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	cpus, err := pair.Processors()
	if err != nil {
		t.Fatal(err)
	}
	run := pair.Runner{CPUs: cpus, Env: perf.Platform("test")}
	for _, p := range []perf.Peer{perf.TCP, perf.XDP} {
		before := sent(t, net.A)
		s := perf.Spec{Peer: p, Mode: perf.Bandwidth, Size: 1 << 20, Depth: 8, Iterations: 40}
		if _, err := run.Run(t.Context(), net, s, false); err != nil {
			t.Fatal(err)
		}
		after := sent(t, net.A)
		mean := float64(after.TxBytes-before.TxBytes) / float64(after.TxPackets-before.TxPackets)
		if mean < 1400 || mean > 1514 {
			t.Errorf("%s: %.0f octets in a frame on average, want nearly 1514 and never more", p, mean)
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
