package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"xwarp/bench/endpoint"
	"xwarp/bench/topo"
)

// newLocal measures one spec between two namespaces of this machine: for profiles and for trying changes.
func newLocal(version string) *cobra.Command {
	var s endpoint.Spec
	var mtu, rounds int
	var profile string
	var ipv6, offloads bool
	c := &cobra.Command{
		Use:   "local",
		Short: "Run one measurement between two namespaces of this machine, some rounds",
		Example: "  sudo xwarp bench local --peer xdp --verb write --size 1048576 --depth 8 " +
			"--mtu 9000 --cpuprofile /tmp/write",
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVar((*string)(&s.Peer), "peer", string(endpoint.XDP),
		"xdp, kernel (MPA over kernel TCP), tcp, raw or asavie")
	f.StringVar((*string)(&s.Verb), "verb", string(endpoint.Write),
		"write, read, send or write_send")
	f.StringVar((*string)(&s.Mode), "mode", string(endpoint.Bandwidth), "bw, lat or connect")
	f.IntVar(&s.Size, "size", 0, "bytes of a message; of raw frames, of the IP packet")
	f.IntVar(&s.Depth, "depth", 0, "messages under way")
	f.IntVar(&s.Conns, "qps", 1, "connections")
	f.IntVar(&s.Moderation, "cq-mod", 1, "messages with one completion")
	f.IntVar(&s.StretchAck, "stretch", 0, "segments that one acknowledgement may cover; 0: the "+
		"engine's choice")
	f.IntVar(&s.Window, "window", 0,
		"bytes that the peer may have under way; 0: the engine's choice")
	f.DurationVar(&s.Duration, "duration", time.Second, "of one round")
	f.BoolVar(&s.NoMarkers, "no-markers", false, "without MPA markers")
	f.BoolVar(&s.NoCRC, "no-crc", false, "without CRC32C")
	f.BoolVar(&s.NoPack, "no-pack", false, "one FPDU per segment")
	f.BoolVar(&s.Copy, "copy", false, "raw frames: copy payload from memory and to memory")
	f.StringVar((*string)(&s.Transmit), "tx", "",
		"how segments leave: xdp, packet-gso, xdp-live or auto")
	f.IntVar(&s.ESP, "esp", 0, "with xdp: encrypt by IPsec ESP with AES-GCM keys of 128 or 256 "+
		"`BITS`, which are no secret")
	f.StringVar(&s.Congestion, "congestion", "cubic", "of kernel sockets")
	f.BoolVar(&s.Sleep, "sleep", false, "idle workers sleep instead of spinning")
	f.BoolVar(&s.Bidirectional, "bi", false, "both directions")
	f.BoolVar(&s.Collect, "gc", false, "leave Go's garbage collector on, as programs have it")
	f.BoolVar(&ipv6, "ipv6", false, "IPv6 instead of IPv4")
	f.BoolVar(&offloads, "offloads", false, "leave the kernel's offloads on")
	f.IntVar(&mtu, "mtu", 1500, "of the link")
	f.IntVar(&rounds, "rounds", 1, "how often")
	f.StringVar(&profile, "cpuprofile", "", "write CPU profiles of both ends to "+
		"`NAME`-client.pprof and NAME-server.pprof")
	c.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		s.Warmup = s.Duration / 10
		if err := s.Complete(); err != nil {
			return err
		}
		run, end, err := runner(version)
		if err != nil {
			return err
		}
		defer end()
		run.Profile = profile
		o := topo.Options{MTU: mtu}
		if !offloads {
			o.OffloadsA, o.OffloadsB = topo.NoOffloads, topo.NoOffloads
		}
		net, err := topo.New(o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, net.Close()) }()
		for range rounds {
			rep, err := run.Run(cmd.Context(), net, s, ipv6)
			if err != nil {
				return err
			}
			r := rep.Main()
			b, _ := json.Marshal(struct{ Client, Server endpoint.Result }{brief(rep.Client),
				brief(rep.Server)})
			fmt.Fprintf(cmd.OutOrStdout(), "%.3f Gbit/s, %.0f messages/s %s\n%s\n", r.Rate()*8e-9,
				r.MessageRate(), latLine(r.Latency), b)
		}
		return nil
	}
	return c
}

// brief leaves the long parts out.
func brief(r *endpoint.Result) endpoint.Result {
	v := *r
	v.Latency = nil
	return v
}

func latLine(l *endpoint.Latencies) string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("min %.2f p50 %.2f p99 %.2f p99.9 %.2f max %.2f us", l.Min, l.P50, l.P99,
		l.P999, l.Max)
}
