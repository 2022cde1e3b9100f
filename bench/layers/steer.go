package layers

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"xwarp/bench/topo"
	"xwarp/bpf"
)

// steering measures the XDP program's decision for a segment of an exact flow, in the kernel's own test harness.
func steering() (r Row, err error) {
	net, err := topo.New(topo.Options{})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, net.Close()) }()
	err = net.A.Do(func() (err error) {
		s, err := bpf.Load(bpf.Options{})
		if err != nil {
			return err
		}
		defer s.Close()
		at, err := s.Attach(net.A.Link.Index, bpf.ModeAuto)
		if err != nil {
			return err
		}
		local, remote := netip.MustParseAddrPort("192.0.2.2:2"),
			netip.MustParseAddrPort("192.0.2.1:1")
		if err := s.AddFlow(local, remote); err != nil {
			return err
		}
		p, err := ebpf.NewProgramFromID(ebpf.ProgramID(at.ProgramID))
		if err != nil {
			return fmt.Errorf("the steering program: %w", err)
		}
		defer p.Close()
		f := append(make([]byte, 14), segment(1400)...)
		copy(f, net.A.Link.MAC)
		f[12] = 8
		var ns []float64
		for range rounds {
			_, d, err := p.Benchmark(f, 200_000, nil)
			if err != nil {
				return err
			}
			ns = append(ns, float64(d))
		}
		r = row("steer (BPF), exact flow", "receive", ns, 0)
		return nil
	})
	return r, err
}
