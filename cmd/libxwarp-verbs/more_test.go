package libxwarpverbs_test

import (
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"xwarp/bpf/needs"
	"xwarp/engine/daemon/control"
)

// TestAtomics runs perftest's atomic measurements: the client adds to, and compares and swaps, memory of the server.
func TestAtomics(t *testing.T) {
	a, b := pair(t)
	for _, line := range []string{"ib_atomic_bw -n 100", "ib_atomic_lat -n 20 -A CMP_AND_SWAP"} {
		t.Run(line, func(t *testing.T) { measurement(line).run(t, a, b) })
	}
}

// TestFio runs the rdma engine of fio. The receiver verifies the data of Sends.
func TestFio(t *testing.T) {
	a, b := pair(t)
	const job = "fio --name=x --ioengine=rdma --port=7501 --size=1m --bs=64k "
	const toPeer = job + "--hostname=@ --rw=write --iodepth=4 --verb="
	for verb, x := range map[string]exchange{
		"write": {server: job + "--rw=read --iodepth=16", client: toPeer + "write"},
		"read":  {server: job + "--rw=read --iodepth=16", client: toPeer + "read"},
		"send": {
			server: job + "--rw=read --iodepth=16 --verb=recv --verify=crc32c --verify_fatal=1",
			client: toPeer + "send --verify=crc32c --do_verify=0",
		},
		"sends beyond the receives": {
			server: job + "--rw=read --iodepth=2 --verb=recv --verify=crc32c --verify_fatal=1",
			client: toPeer + "send --iodepth=16 --verify=crc32c --do_verify=0",
		},
	} {
		x.wantServer, x.wantClient = "err= 0", `WRITE: bw=.*io=1024KiB`
		t.Run(verb, func(t *testing.T) { x.run(t, a, b) })
	}
}

// TestQperf runs the connection tests of qperf. Its rc_bw sends more messages than there are receives.
func TestQperf(t *testing.T) {
	a, b := pair(t)
	s := b.start(t, "qperf", a)
	out := a.start(t, "qperf @ -ws 30 -to 30 -cm 1 -t 1 "+
		"rc_lat rc_bw rc_rdma_read_lat rc_rdma_read_bw", b).wait(t)
	if len(regexp.MustCompile(`(latency|bw) +=`).FindAllString(out, -1)) != 4 {
		t.Errorf("qperf:\n%s\n%s", out, s.out.String())
	}
}

// TestRefused runs a program that needs datagrams, which must fail with that reason, and a client of a port without a
// listener, which must be rejected.
func TestRefused(t *testing.T) {
	a, b := pair(t)
	p := a.start(t, "udaddy -s @", b)
	<-p.done
	if p.err == nil || !strings.Contains(p.out.String(), "iWARP has no datagrams") {
		t.Errorf("udaddy: %v\n%s", p.err, p.out.String())
	}
	p = a.start(t, "rping -c -C 1 -a @ -p 7175", b)
	<-p.done
	if !strings.Contains(p.out.String(), "RDMA_CM_EVENT_REJECTED") {
		t.Errorf("rping to a port at which nobody listens: %v\n%s", p.err, p.out.String())
	}
}

// busy starts an rping that runs until it is killed.
func busy(t *testing.T, a, b *end) (server, client *program) {
	server = b.start(t, "rping -s -v", a)
	b.listening(t, server)
	client = a.start(t, "rping -c -v -a @", b)
	a.until(t, client, "pinged", func() bool {
		return strings.Contains(client.out.String(), "rdma-ping-1:")
	})
	return server, client
}

// TestKilled kills a program: its peer must notice and exit, and both daemons must release all their resources.
func TestKilled(t *testing.T) {
	a, b := pair(t)
	server, client := busy(t, a, b)
	client.Process.Signal(syscall.SIGKILL)
	<-client.done
	select {
	case <-server.done:
	case <-time.After(patience):
		t.Fatalf("the server goes on:\n%s", server.out.String())
	}
	if out := server.out.String(); !strings.Contains(out, "DISCONNECT EVENT") &&
		!strings.Contains(out, "cq completion failed") { // whichever rping looks at first
		t.Errorf("the server:\n%s", server.out.String())
	}
	for _, e := range []*end{a, b} {
		e.wait(t, "sessions", func(s control.Snapshot) bool { return len(s.Sessions) == 0 })
		for _, u := range e.daemon.Snapshot().Users {
			if u.Used != 0 {
				t.Errorf("%d %s are left over", u.Used, u.Resource)
			}
		}
	}
}

// TestDaemonEnds stops a daemon. ibv_asyncwatch and a listening rping must get the event that their device is gone; a
// connected rping must end with that event or with an error.
func TestDaemonEnds(t *testing.T) {
	a, b := pair(t)
	watch := a.start(t, "stdbuf -oL ibv_asyncwatch", b)
	a.until(t, watch, "watched", func() bool {
		return strings.Contains(watch.out.String(), "async event FD")
	})
	listener := a.start(t, "rping -s -v -a "+a.addr, b)
	a.listening(t, listener)
	_, client := busy(t, a, b)
	a.daemon.Close()
	a.until(t, watch, "got the event", func() bool {
		return strings.Contains(watch.out.String(), "IBV_EVENT_DEVICE_FATAL")
	})
	for p, want := range map[*program]string{
		listener: "device removal",
		client:   "device removal|cq completion failed|DISCONNECT EVENT|poll error", // whatever it looks at first
	} {
		select {
		case <-p.done:
		case <-time.After(patience):
			t.Fatalf("%s goes on:\n%s", p.line, p.out.String())
		}
		if !regexp.MustCompile(want).MatchString(p.out.String()) {
			t.Errorf("%s: %v\n%s", p.line, p.err, p.out.String())
		}
	}
}

// sanitizer returns the library of gcc's address ("address") or thread ("thread") sanitizer.
func sanitizer(t *testing.T, kind string) string {
	t.Helper()
	name := map[string]string{"address": "libasan.so", "thread": "libtsan.so"}[kind]
	path, err := exec.Command("gcc", "-print-file-name="+name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(path))
}

// sanitize runs the programs of e over the library with sanitizers.
func (e *end) sanitize(t *testing.T) {
	t.Helper()
	e.library = sanitizer(t, "address") + ":" + library(t,
		"-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	e.env = append(e.env, "ASAN_OPTIONS=detect_leaks=0") // the programs themselves leak memory
}

// TestSanitized runs programs over the library with the address and undefined behaviour sanitizers.
func TestSanitized(t *testing.T) {
	needs.Long(t)
	a, b := pair(t)
	a.sanitize(t)
	b.sanitize(t)
	const last = "rdma-ping-4"
	x := exchange{"rping -s -V -v -C 5", "rping -c -V -v -C 5 -a @", last, last}
	t.Run("rping", func(t *testing.T) { x.run(t, a, b) })
	for _, line := range []string{"ib_send_bw -n 300", "ib_send_lat -e -n 20",
		"ib_write_bw -a -n 5", "ib_write_lat -I 64 -n 20", "ib_read_bw -n 50",
		"ib_atomic_bw -n 50"} {
		t.Run(line, func(t *testing.T) { measurement(line).run(t, a, b) })
	}
	ownTests(t, a, b, "cm")
	line := "rstream -T v -S 100000 -C 50"
	t.Run(line, func(t *testing.T) {
		x := exchange{line, line + " -s @", `custom +\d`, `custom +\d`}
		x.run(t, a, b)
	})
}

// TestSanitizedRoCE is TestSanitized for programs that connect by ibv_modify_qp.
func TestSanitizedRoCE(t *testing.T) {
	needs.Long(t)
	a, b := rocePair(t, "xdp")
	a.sanitize(t)
	b.sanitize(t)
	const line, done = "ibv_rc_pingpong -g 0 -n 100", `iters in .* seconds`
	pingpong := exchange{line, line + " @", done, done}
	t.Run(line, func(t *testing.T) { pingpong.runRoCE(t, a, b) })
	for _, line := range []string{"ib_write_bw -a -n 5", "ib_write_lat -I 64 -n 20",
		"ib_write_bw -b -q 16 -n 20", "ib_read_bw -e -n 50", "ib_send_bw --use-srq -q 4 -n 100",
		"ib_send_lat -e -n 20", "ib_atomic_bw -n 50"} {
		t.Run(line, func(t *testing.T) {
			x := measurement(line)
			x.server, x.client = line, line+" @"
			x.runRoCE(t, a, b)
		})
	}
	for _, name := range []string{"states", "roce"} {
		path := own(t, name)
		t.Run(name, func(t *testing.T) {
			line := path
			if name == "roce" {
				line += " self"
			}
			if out := a.start(t, line, a).wait(t); !strings.Contains(out, "all is well") {
				t.Error(out)
			}
		})
	}
}
