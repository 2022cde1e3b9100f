package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"

	"xwarp/bench/endpoint"
	"xwarp/cmd/xwarp/transport"
)

// tests are named like the programs of perftest.
var tests = []string{"write_bw", "read_bw", "send_bw", "write_lat", "read_lat", "send_lat"}

// testFlags are flags of a test: common flags of perftest, and flags of xwarp.
type testFlags struct {
	spec    endpoint.Spec
	all     bool
	seconds int
	port    int
	cpu     int
	device  transport.Flags
	choice  transport.Choice // for the current measurement
	json    bool
	margin  int
}

func newTest(name, version string) *cobra.Command {
	t := &testFlags{}
	verb, mode, _ := strings.Cut(name, "_")
	t.spec.Verb, t.spec.Mode = endpoint.Verb(verb), endpoint.Mode(mode)
	c := &cobra.Command{
		Use:   name + " [server]",
		Short: title(t.spec.Verb, t.spec.Mode) + " between two hosts, like ib_" + name,
		Example: fmt.Sprintf(`  sudo xwarp bench %s                     # on one host: the server
  sudo xwarp bench %s -a 192.0.2.2        # on the other`, name, name),
		Args: cobra.MaximumNArgs(1),
	}
	t.addFlags(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("margin") {
			t.spec.Warmup = time.Duration(t.margin) * time.Second
		}
		if err := t.validate(); err != nil {
			return err
		}
		if !t.spec.Collect {
			endpoint.DisableGC(memoryLimit)
		}
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), minProcs))
		if len(args) == 0 {
			return t.runServer(cmd, version)
		}
		return t.runClient(cmd, version, args[0])
	}
	return c
}

const (
	memoryLimit = 4 << 30 // heap size at which garbage collection starts
	minProcs    = 3       // including one for a spinning worker
)

func title(v endpoint.Verb, m endpoint.Mode) string {
	operation := map[endpoint.Verb]string{endpoint.Write: "RDMA Write", endpoint.Read: "RDMA Read",
		endpoint.Send: "Send"}[v]
	if m == endpoint.Latency {
		return operation + " latency"
	}
	return operation + " bandwidth"
}

func (t *testFlags) addFlags(c *cobra.Command) {
	f, s := c.Flags(), &t.spec
	f.SortFlags = false
	size, iterations, depth, moderation := endpoint.DefaultSize, endpoint.DefaultIterations,
		endpoint.DefaultDepth, 100
	if s.Mode == endpoint.Latency {
		size, iterations, moderation = endpoint.DefaultSizeLat, endpoint.DefaultIterLat, 1
	}
	if s.Verb == endpoint.Read {
		depth, moderation = endpoint.DefaultDepthRead, 1
	}
	f.IntVarP(&s.Size, "size", "s", size, "message size in bytes")
	f.BoolVarP(&t.all, "all", "a", false, "all sizes from 2 to 2^23")
	f.IntVarP(&s.Iterations, "iters", "n", iterations, "messages per connection")
	f.IntVarP(&t.seconds, "duration", "D", 0, "run for this many seconds instead of --iters")
	f.IntVarP(&t.port, "port", "p", endpoint.DefaultPort,
		"port of the control connection; measurements use the next port")
	f.IntVarP(&s.Depth, "tx-depth", "t", depth,
		"outstanding messages per connection (Reads: at most 16)")
	if s.Mode == endpoint.Bandwidth {
		f.IntVarP(&s.Conns, "qp", "q", 1, "number of connections")
		f.IntVarP(&s.Moderation, "cq-mod", "Q", moderation, "messages per completion")
		f.BoolVarP(&s.Bidirectional, "bidirectional", "b", false, "transfer in both directions")
	}
	f.IntVarP(&t.margin, "margin", "f", 0, "with --duration: `seconds` of warm-up that are not "+
		"measured (default: 0.5)")
	t.device.Register(f)
	f.StringVar((*string)(&s.Transmit), "tx", "", "transmit mode of this end with xdp: xdp, "+
		"packet-gso (segmentation offload) or auto")
	f.IntVar(&t.cpu, "cpu", -1, "CPU of the worker (default: any)")
	f.BoolVar(&s.Sleep, "sleep", false, "let an idle worker sleep instead of spin")
	f.BoolVar(&s.Collect, "gc", false, "leave Go's garbage collector on")
	transport.Switch(f, &s.NoMarkers, false, true, "markers",
		"request MPA markers from the peer (default true)")
	transport.Switch(f, &s.NoCRC, false, true, "crc",
		"require CRC32C in every FPDU; off only if both ends agree (default true)")
	f.BoolVarP(&t.json, "json", "j", false, "print one JSON object, with the keys of perftest")
}

func (t *testFlags) validate() error {
	s := &t.spec
	if err := t.device.Check(); err != nil {
		return err
	}
	if t.port < 1 || t.port > 65534 {
		return fmt.Errorf("--port %d: need 1 to 65534", t.port)
	}
	if t.margin < 0 {
		return fmt.Errorf("--margin %d must not be negative", t.margin)
	}
	if t.seconds > 0 {
		s.Iterations, s.Duration, s.Warmup = 0, time.Duration(t.seconds)*time.Second,
			cmp.Or(s.Warmup, warmup)
	}
	try := *s
	try.Peer = endpoint.XDP // the transport is not known yet; all have the same features
	return try.Complete()
}

// warmup is the default of --margin. perftest has 2 s; congestion control here needs less.
const warmup = 500 * time.Millisecond

// sizes returns the message sizes: those of --all, or the single one.
func (t *testFlags) sizes() (n []int) {
	if !t.all {
		return []int{t.spec.Size}
	}
	for i := 1; i <= 23; i++ {
		n = append(n, 1<<i)
	}
	return n
}

// place chooses the transport of this end by the addresses of the control connection, and describes the end. On error
// it closes the connection.
func (t *testFlags) place(c net.Conn, version string) (p endpoint.Place, env endpoint.Env,
	err error) {
	env = endpoint.LocalEnv(version)
	p.CPU = t.cpu
	p.Local = addrOf(c.LocalAddr())
	p.Remote = addrOf(c.RemoteAddr())
	p.Port = uint16(t.port + 1)
	choice, err := t.device.Choose(func() (string, error) { return transport.InterfaceOf(p.Local) })
	if err != nil {
		return p, env, errors.Join(err, c.Close())
	}
	t.choice, t.spec.Peer, t.spec.Ring = choice, peers[choice.Name], t.device.Ring
	p.Interface, p.Socket, p.Queues = choice.Interface, t.device.Socket, t.device.Queues
	if env.Interface = p.Interface; env.Interface == "" {
		env.Interface, _ = transport.InterfaceOf(p.Local) // only for the report
	}
	if l, e := netlink.LinkByName(env.Interface); e == nil {
		env.MTU = l.Attrs().MTU
	}
	return p, env, nil
}

func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// peers maps each transport to the kind of endpoint that measures it.
var peers = map[string]endpoint.Peer{
	transport.XDP: endpoint.XDP, transport.Kernel: endpoint.Layered,
	transport.Daemon: endpoint.Daemon,
}

func (t *testFlags) runServer(cmd *cobra.Command, version string) error {
	ctx := cmd.Context()
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", t.port))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	fmt.Fprintf(cmd.ErrOrStderr(), "Waiting for client to connect on port %d…\n", t.port)
	out := t.output(cmd)
	out.server = true
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return errors.New("interrupted before a client connected")
			}
			return err
		}
		place, env, err := t.place(c, version)
		if err != nil {
			return err
		}
		want := t.spec
		if err := want.Complete(); err != nil {
			c.Close()
			return err
		}
		if t.all {
			want.Size = 0
		}
		rep, err := endpoint.Serve(ctx, c, place, env, &want)
		if err != nil {
			return t.choice.Explain(err)
		}
		out.add(rep)
		if rep.Left == 0 {
			return out.printSummary()
		}
	}
}

func (t *testFlags) runClient(cmd *cobra.Command, version, server string) error {
	ctx := cmd.Context()
	out := t.output(cmd)
	line := newStatus(cmd.ErrOrStderr())
	sizes := t.sizes()
	for i, n := range sizes {
		c, err := dialRetry(ctx, net.JoinHostPort(server, fmt.Sprint(t.port)), i > 0)
		if err != nil {
			return fmt.Errorf("%w (is `xwarp bench %s_%s` running there?)", err, t.spec.Verb,
				t.spec.Mode)
		}
		place, env, err := t.place(c, version)
		if err != nil {
			return err
		}
		s := t.spec
		s.Size = n
		var rep *endpoint.Report
		err = withElapsedTime(line, fmt.Sprintf("%d bytes", n), func() (err error) {
			rep, err = endpoint.Run(ctx, c, place, env, s, len(sizes)-1-i)
			return err
		})
		if err != nil {
			return t.choice.Explain(err)
		}
		out.add(rep)
	}
	return out.printSummary()
}

// dialRetry connects to the server. If again is set, it retries up to 20 times, because the server needs time between
// measurements.
func dialRetry(ctx context.Context, to string, again bool) (net.Conn, error) {
	var d net.Dialer
	for try := 0; ; try++ {
		c, err := d.DialContext(ctx, "tcp", to)
		if err == nil || !again || try == 20 {
			return c, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
