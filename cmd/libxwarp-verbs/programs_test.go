package libxwarpverbs_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"xwarp/bpf/needs"
	"xwarp/engine/daemon/control"
)

// TestDevices runs the programs that only query devices.
func TestDevices(t *testing.T) {
	a, b := pair(t)
	if out := a.start(t, "ibv_devices", b).wait(t); !regexp.MustCompile(`xwarp_eth0\s+[0-9a-f]{16}`).MatchString(out) {
		t.Errorf("ibv_devices:\n%s", out)
	}
	out := a.start(t, "ibv_devinfo -v", b).wait(t)
	for _, want := range []string{
		`hca_id:\s+xwarp_eth0`, `transport:\s+iWARP`, `max_qp_wr:\s+8192`, `state:\s+PORT_ACTIVE`,
		`active_mtu:\s+1024`, `link_layer:\s+Ethernet`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}

// exchange is a server and a client of one program, with the output that each must print.
type exchange struct {
	server, client         string
	wantServer, wantClient string // regular expressions
}

// Before a perftest program prints figures, it measures the processor's clock by the system's clock. On a loaded
// machine it gives up and prints noClock. Such a measurement is repeated, up to clockTries runs in all.
const (
	noClock    = "Can't produce a report"
	clockTries = 10
)

func (x *exchange) run(t *testing.T, a, b *end) {
	t.Helper()
	x.runWith(t, a, b, func() *program {
		b.wait(t, "an earlier server listens", func(s control.Snapshot) bool {
			return len(s.Listeners) == 0
		})
		s := b.start(t, x.server, a)
		b.listening(t, s)
		return s
	})
}

// runWith runs a server on b, started by serve, and a client on a.
func (x *exchange) runWith(t *testing.T, a, b *end, serve func() *program) {
	t.Helper()
	for n := 1; ; n++ {
		s := serve()
		c := a.start(t, x.client, b)
		if strings.Contains(c.end(t)+s.end(t), noClock) && n < clockTries {
			t.Logf("try %d: perftest could not measure the processor's clock", n)
			continue
		}
		x.check(t, c, x.wantClient)
		x.check(t, s, x.wantServer)
		return
	}
}

func (x *exchange) check(t *testing.T, p *program, want string) {
	t.Helper()
	if out := p.wait(t); !regexp.MustCompile(want).MatchString(out) {
		t.Errorf("%s printed no %s:\n%s", p.line, want, out)
	}
}

// TestCM runs the librdmacm programs of rdma-core.
func TestCM(t *testing.T) {
	a, b := pair(t)
	const last, complete = "rdma-ping-4: EFGHIJ", "test complete\nreturn status 0"
	for name, x := range map[string]exchange{
		"rping":      {"rping -s -v -V -C 5", "rping -c -v -V -C 5 -a @", last, last},
		"rping size": {"rping -s -V -S 60000 -C 3", "rping -c -V -S 60000 -C 3 -a @", "", ""},
		"rping IPv6": {"rping -s -v -C 5 -a ::0", "rping -c -v -C 5 -a %", last, last},
		"rping own":  {"rping -s -q -v -C 5", "rping -c -q -v -C 5 -a @", last, last},
		"rping port": {
			"rping -s -p 9999 -d -C 2", "rping -c -p 9999 -d -C 2 -a @",
			"server rdma write complete", "ESTABLISHED",
		},
		"rdma_client": {
			"rdma_server", "rdma_client -s @", "rdma_server: end 0", "rdma_client: end 0",
		},
		"ucmatose": {
			"ucmatose -C 20 -S 1000 -c 4", "ucmatose -s @ -C 20 -S 1000 -c 4", complete, complete,
		},
	} {
		t.Run(name, func(t *testing.T) { x.run(t, a, b) })
	}
}

// TestBacklog opens 200 connections at once. The listener has backlog 0, which means the maximum, so none may be
// rejected.
func TestBacklog(t *testing.T) {
	a, b := pair(t)
	b.listening(t, b.start(t, "cmtime -c 200", a))
	out := a.start(t, "cmtime -s @ -c 200", b).wait(t)
	all := regexp.MustCompile(`connect +: +\d`).MatchString(out)
	if !all || strings.Contains(out, "REJECTED") {
		t.Error(out)
	}
}

// TestPersistentServer runs a server whose clients exit in different ways; the server must survive them.
func TestPersistentServer(t *testing.T) {
	a, b := pair(t)
	s := b.start(t, "rping -s -P -v", a)
	b.listening(t, s)
	for range 3 {
		a.start(t, "rping -c -V -C 3 -a @", b).wait(t)
	}
	c := a.start(t, "rping -c -v -a @", b)
	a.until(t, c, "pinged", func() bool { return strings.Contains(c.out.String(), "rdma-ping-1:") })
	c.Process.Signal(syscall.SIGKILL)
	<-c.done
	a.start(t, "rping -c -V -C 3 -a @", b).wait(t)
	select {
	case <-s.done:
		t.Errorf("the server ended: %v\n%s", s.err, s.out.String())
	default:
	}
}

// TestPerftest runs common measurements and ignores their figures. ib_send_bw -e and --use-srq -q 4 are excluded: see
// the README.
func TestPerftest(t *testing.T) {
	a, b := pair(t)
	run := func(lines ...string) {
		for _, line := range lines {
			t.Run(line, func(t *testing.T) { measurement(line).run(t, a, b) })
		}
	}
	run("ib_write_bw -b -q 4 -n 50", "ib_write_lat -n 50", "ib_read_bw -e -n 50",
		"ib_send_bw --use-srq -b -n 100", "ib_send_lat -e -n 20")
	needs.Long(t)
	run("ib_write_bw -n 100", "ib_write_bw -a -n 5", "ib_read_bw -n 50", "ib_read_lat -n 20",
		"ib_send_bw --use-srq -n 100", "ib_send_lat --use-srq -n 50",
		"ib_send_lat --use-srq -e -n 20", "ib_send_bw -n 100", "ib_send_bw -b -q 2 -n 50",
		"ib_send_lat -n 50")
}

// measurement is a perftest program, which prints a table. With -a it has a row for each power of two from 2 bytes to 8
// MiB, otherwise one row.
func measurement(line string) *exchange {
	rows := 1
	if slices.Contains(strings.Fields(line), "-a") {
		rows = 23
	}
	return &exchange{
		server: line + " -R", client: line + " -R @",
		wantClient: fmt.Sprintf(`#bytes +#iterations.*(\n *\d+ +\d+ +\d.*){%d}\n---`, rows),
	}
}
