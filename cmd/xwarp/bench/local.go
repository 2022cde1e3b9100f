package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"xwarp/bench/endpoint"
	"xwarp/bench/topo"
	"xwarp/bpf"
)

// newLocal returns the command that runs one measurement between two namespaces, for profiling and experiments.
func newLocal(version string) *cobra.Command {
	var s endpoint.Spec
	var mtu, rounds int
	var profile string
	var ipv6, offloads bool
	c := &cobra.Command{
		Use:   "local",
		Short: "Run one measurement between two namespaces on this machine",
		Example: "  sudo xwarp bench local --peer xdp --verb write --size 1048576 --depth 8 " +
			"--mtu 9000 --cpuprofile /tmp/write",
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVar((*string)(&s.Peer), "peer", string(endpoint.XDP),
		"xdp, kernel (MPA over kernel TCP), tcp, raw or asavie")
	f.StringVar((*string)(&s.ServerPeer), "server-peer", "",
		"xdp or kernel, at the server (default: that of --peer)")
	f.StringVar((*string)(&s.Verb), "verb", string(endpoint.Write),
		"write, read, send or write_send")
	f.StringVar((*string)(&s.Mode), "mode", string(endpoint.Bandwidth), "bw, lat or connect")
	f.IntVar(&s.Size, "size", 0, "message size in bytes; with raw, IP packet size")
	f.IntVar(&s.Depth, "depth", 0, "outstanding messages")
	f.IntVar(&s.Conns, "qps", 1, "number of connections")
	f.IntVar(&s.Moderation, "cq-mod", 1, "messages per completion")
	f.IntVar(&s.StretchAck, "stretch", 0, "maximum segments per ACK (default: chosen by the "+
		"engine)")
	f.IntVar(&s.Window, "window", 0,
		"receive window in bytes (default: chosen by the engine)")
	f.DurationVar(&s.Duration, "duration", time.Second, "duration of a round")
	f.BoolVar(&s.NoMarkers, "no-markers", false, "do not use MPA markers")
	f.BoolVar(&s.NoCRC, "no-crc", false, "do not use CRC32C")
	f.BoolVar(&s.NoPack, "no-pack", false, "one FPDU per segment")
	f.BoolVar(&s.Copy, "copy", false, "with raw: copy payload from and to memory")
	f.StringVar((*string)(&s.Transmit), "tx", "",
		"transmit mode: xdp, packet-gso or auto")
	f.TextVar(&s.XDPMode, "xdp-mode", bpf.ModeAuto, "with xdp: native, generic or auto")
	f.IntVar(&s.ESP, "esp", 0, "with xdp: encrypt by IPsec ESP with fixed AES-GCM keys of 128 or "+
		"256 `BITS`")
	f.StringVar(&s.Congestion, "congestion", "cubic", "congestion control of kernel sockets")
	f.BoolVar(&s.Sleep, "sleep", false, "let idle workers sleep instead of spin")
	f.BoolVar(&s.Bidirectional, "bi", false, "transfer in both directions")
	f.BoolVar(&s.Collect, "gc", false, "leave Go's garbage collector on")
	f.BoolVar(&ipv6, "ipv6", false, "use IPv6 instead of IPv4")
	f.BoolVar(&offloads, "offloads", false, "leave kernel offloads on")
	f.IntVar(&mtu, "mtu", 1500, "MTU of the link")
	f.IntVar(&rounds, "rounds", 1, "number of rounds")
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

// brief returns the result without the latencies.
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
