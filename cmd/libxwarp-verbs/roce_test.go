package libxwarpverbs_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"xwarp/bpf/needs"
)

// rocePair is pairOn for programs that connect by ibv_modify_qp. Kernel-transport daemons are separate processes, so
// that their sockets are in the namespace of their host.
func rocePair(t *testing.T, transport string) (a, b *end) {
	t.Helper()
	a, b = pairOn(t, transport)
	for _, e := range []*end{a, b} {
		if transport == "kernel" {
			e.process(t)
		}
		e.env = append(e.env, "XWARP_STYLE=roce")
	}
	return a, b
}

// setupPort is the TCP port on which perftest and the pingpongs wait for their clients.
const setupPort = 18515

// listensForSetup waits until a program listens on setupPort, over which it exchanges GID and QPN.
func (e *end) listensForSetup(t *testing.T, p *program) {
	t.Helper()
	e.until(t, p, fmt.Sprintf("listens at port %d", setupPort), func() bool {
		for _, family := range []string{"tcp", "tcp6"} {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", p.Process.Pid, family))
			if regexp.MustCompile(fmt.Sprintf(`:%04X [0-9A-F]+:0000 0A `, setupPort)).Match(b) {
				return true
			}
		}
		return false
	})
}

// runRoCE runs a server on b, which waits at setupPort, and a client on a.
func (x *exchange) runRoCE(t *testing.T, a, b *end) {
	t.Helper()
	x.runWith(t, a, b, func() *program {
		s := b.start(t, x.server, a)
		b.listensForSetup(t, s)
		return s
	})
}

// roceTransports runs f over both transports.
func roceTransports(t *testing.T, f func(t *testing.T, a, b *end)) {
	for _, transport := range []string{"xdp", "kernel"} {
		t.Run(transport, func(t *testing.T) {
			a, b := rocePair(t, transport)
			f(t, a, b)
		})
	}
}

// TestPingpong runs the pingpongs of ibverbs-utils. With -c the server prints additional lines for wrong data.
func TestPingpong(t *testing.T) {
	roceTransports(t, func(t *testing.T, a, b *end) {
		for _, line := range []string{
			"ibv_rc_pingpong -g 0 -n 100 -c -m 256", "ibv_rc_pingpong -g 0 -n 100 -c -m 512",
			"ibv_rc_pingpong -g 0 -n 100 -c", "ibv_rc_pingpong -g 0 -n 100 -c -m 2048",
			"ibv_rc_pingpong -g 0 -n 100 -c -m 4096", "ibv_rc_pingpong -g 0 -n 50 -c -e -s 100000",
			"ibv_srq_pingpong -g 0 -n 100",
		} {
			t.Run(line, func(t *testing.T) {
				const done = `iters in .* seconds = .*/iter\n$`
				x := exchange{line, line + " @", done, done}
				x.runRoCE(t, a, b)
			})
		}
	})
}

// TestPerftestRoCE runs the measurements of perftest without rdma_cm.
func TestPerftestRoCE(t *testing.T) {
	roceTransports(t, func(t *testing.T, a, b *end) {
		run := func(lines ...string) {
			for _, line := range lines {
				runPerftestRoCE(t, a, b, line)
			}
		}
		run("ib_write_bw -b -q 16 -n 20", "ib_write_lat -I 64 -n 20", "ib_read_bw -e -n 50",
			"ib_send_bw --use-srq -q 4 -n 1000", "ib_send_lat -e -n 20", "ib_atomic_bw -n 100")
		needs.Long(t)
		run("ib_write_bw -n 100", "ib_write_bw -a -n 5", "ib_write_lat -n 50", "ib_read_bw -n 50",
			"ib_read_lat -n 20", "ib_send_lat -n 50", "ib_send_bw -n 100", "ib_send_bw -e -n 100",
			"ib_send_bw -b -q 2 -n 50", "ib_send_bw --use-srq -n 100",
			"ib_send_lat --use-srq -n 50", "ib_atomic_lat -n 20 -A CMP_AND_SWAP",
			"ib_write_bw -x 0 -c RC -n 50")
	})
}

// runPerftestRoCE runs a measurement of perftest without rdma_cm.
func runPerftestRoCE(t *testing.T, a, b *end, line string) {
	t.Run(line, func(t *testing.T) {
		x := measurement(line)
		x.server, x.client = line, line+" @"
		x.runRoCE(t, a, b)
	})
}

// TestPeerKilled kills the server of ib_write_bw: a Write of the client must fail with the status that InfiniBand
// defines for that (12).
func TestPeerKilled(t *testing.T) {
	a, b := rocePair(t, "xdp")
	const line = "ib_write_bw -n 10000000"
	s := b.start(t, line, a)
	b.listensForSetup(t, s)
	c := a.start(t, line+" @", b)
	a.until(t, c, "writes", func() bool {
		list := b.daemon.Snapshot().QPs
		return len(list) == 1 && list[0].RDMA["payload_in"] > 0
	})
	s.Process.Kill()
	if out := c.end(t); c.err == nil || !strings.Contains(out, "Failed status 12") {
		t.Errorf("%v:\n%s", c.err, out)
	}
}

// TestTypesRefused runs programs with other queue pair types: the library must report that they are not supported.
func TestTypesRefused(t *testing.T) {
	a, b := rocePair(t, "xdp")
	for line, want := range map[string]string{
		"ibv_ud_pingpong -g 0":   "not supported: queue pair types other than IBV_QPT_RC",
		"ibv_xsrq_pingpong -g 0": "not supported: XRC domains",
	} {
		p := a.start(t, line, b)
		if out := p.end(t); p.err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v:\n%s", line, p.err, out)
		}
	}
}

// TestPeerWithoutGID runs a program that addresses its peer by LID: the message must say what is needed.
func TestPeerWithoutGID(t *testing.T) {
	a, b := rocePair(t, "xdp")
	server := b.start(t, "ibv_rc_pingpong", a)
	b.listensForSetup(t, server)
	a.start(t, "ibv_rc_pingpong @", b).end(t)
	if out := server.end(t); server.err == nil || !strings.Contains(out, "need -g 0 at both ends") {
		t.Errorf("%v:\n%s", server.err, out)
	}
}

// TestSameHost runs both programs of an exchange on one host.
func TestSameHost(t *testing.T) {
	roceTransports(t, func(t *testing.T, a, _ *end) {
		x := exchange{"ibv_rc_pingpong -g 0 -n 100", "ibv_rc_pingpong -g 0 -n 100 @",
			`iters in .* seconds`, `iters in .* seconds`}
		x.runRoCE(t, a, a)
		for _, line := range []string{
			"ib_write_bw -b -q 16 -n 20", "ib_read_lat -e -n 20", "ib_send_lat -I 64 -s 64 -n 20",
			"ib_send_bw --use-srq -b -q 4 -n 30", "ib_atomic_bw -e -n 50",
		} {
			runPerftestRoCE(t, a, a, line)
		}
	})
}

// TestStates moves queue pairs through their states three times each. A move that names a GID index of no GID says so
// once. With XWARP_DEBUG each request with such an index says so.
func TestStates(t *testing.T) {
	a, _ := rocePair(t, "kernel")
	for debug, want := range map[string][]int{
		"0": {202},
		"1": {200, 201, 202, 203, 200, 201, 202, 203, 200, 201, 202, 203},
	} {
		e := *a
		e.env = append(slices.Clone(a.env), "XWARP_DEBUG="+debug)
		out := e.start(t, own(t, "states"), a).wait(t)
		var lines []string
		for _, index := range want {
			lines = append(lines, fmt.Sprintf(
				"xwarp: GID index %d: the device has 2 (ibv_devinfo -v lists them)", index))
		}
		got := regexp.MustCompile(".*GID index.*").FindAllString(out, -1)
		if !strings.Contains(out, "all is well") || !slices.Equal(got, lines) {
			t.Errorf("XWARP_DEBUG=%s: %s", debug, out)
		}
	}
}

// TestRoCESemantics runs programs with the access patterns of Mooncake and 3FS, and programs whose peer rejects a
// Write or has no receive.
func TestRoCESemantics(t *testing.T) {
	path := own(t, "roce")
	roceTransports(t, func(t *testing.T, a, b *end) {
		for _, test := range []string{"transfer", "messages", "denied", "notready", "crossed"} {
			t.Run(test, func(t *testing.T) {
				line := path + " " + test
				x := exchange{line, line + " @", "all is well", "all is well"}
				x.runRoCE(t, a, b)
			})
		}
		for _, test := range []string{"self", "two"} {
			t.Run(test, func(t *testing.T) {
				out := a.start(t, path+" "+test, a).wait(t)
				if !strings.Contains(out, "all is well") {
					t.Error(out)
				}
			})
		}
	})
}
