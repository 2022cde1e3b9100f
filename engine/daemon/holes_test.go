package daemon_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// memfd makes memory for a region, with no pages yet.
func memfd(t testing.TB, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

// present returns the bytes of a memfd that have pages.
func present(t testing.TB, fd int) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return 512 * st.Blocks
}

// TestHoles registers memory without pages. A page that the daemon touched first would be charged to its
// control group, and stay so after the region is gone: no registration may make one.
func TestHoles(t *testing.T) {
	_, socket := kernel(t, "")
	r := dialRaw(t, socket)
	control.CloseAll(r.hello())
	var pd control.Object
	r.must(&pd, control.OpAllocPD, "")
	const size = 1 << 20
	for _, access := range []int{1, 2} { // local write, remote read
		for name, fd := range map[string]int{
			"no pages": memfd(t, size, 0), "a hole": memfd(t, size, 0),
			"frozen": memfd(t, size, unix.F_SEAL_FUTURE_WRITE),
		} {
			if name == "a hole" {
				if err := unix.Fallocate(fd, 0, 0, size-4096); err != nil {
					t.Fatal(err)
				}
			}
			before := present(t, fd)
			args := fmt.Sprintf(`{"pd":%d,"offset":0,"length":%d,"access":%d}`, pd.Handle, size,
				access)
			reply, _ := r.call(control.OpRegMR, args, fd)
			if reply.Error == nil || !strings.Contains(reply.Error.Text, "holes") &&
				!(name == "frozen" && access == 1) {
				t.Errorf("%s, access %d: %v, want an error about holes", name, access, reply.Error)
			}
			if got := present(t, fd); got != before {
				t.Errorf("%s, access %d: the daemon made %d bytes of pages", name, access,
					got-before)
			}
		}
	}
}

// TestPunchedHoles takes the pages of a region away after its registration. The daemon makes no new ones: the
// region is lost, with the connection that comes upon the hole, and nothing else.
func TestPunchedHoles(t *testing.T) {
	_, socket := kernel(t, "")
	peer, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	at := listenAddr(t)
	responder(t, peer, at, 2)
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const size = 64 << 10
	fd := memfd(t, size, 0)
	for _, hole := range []bool{true, false} {
		p := verbstest.New(t, dev, size)
		to, err := p.Dial(ctx, at)
		if err != nil {
			t.Fatal(err)
		}
		if hole {
			if p.MR, err = p.PD.(*client.PD).RegMRFd(fd, 0, size, verbs.LocalWrite); err != nil {
				t.Fatal(err)
			}
			if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0,
				size); err != nil {
				t.Fatal(err)
			}
		}
		err = p.Do(ctx, verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{p.MR.SGE(0, size)},
			RemoteSTag: to.STag})
		if hole != (err != nil) {
			t.Errorf("a Write with a hole %v: %v", hole, err)
		}
	}
	if n := present(t, fd); n != 0 {
		t.Errorf("the daemon made %d bytes of pages", n)
	}
}

// listenAddr returns an address of this host that is free.
func listenAddr(t testing.TB) netip.AddrPort {
	t.Helper()
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	l, err := dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr()
}

// TestRingHoles has programs that leave the pages of rings and doorbell to the daemon, or take them away:
// they lose the session, the daemon makes none, and others go on.
func TestRingHoles(t *testing.T) {
	for _, what := range []string{"doorbell", "work queue", "reset", "completion queue"} {
		t.Run(what, func(t *testing.T) {
			_, socket := kernel(t, "")
			r := dialRaw(t, socket)
			session := r.hello()
			bell := mapping(t, session[0])
			var pd control.Object
			var cq control.CreateCQResult
			r.must(&pd, control.OpAllocPD, "")
			cqFiles := r.must(&cq, control.OpCreateCQ, `{"depth":4096}`)
			mapping(t, cqFiles[0])
			var q control.CreateQPResult
			punch := map[string]int{"doorbell": session[0], "completion queue": cqFiles[0]}
			qpFiles := r.must(&q, control.OpCreateQP,
				fmt.Sprintf(`{"pd":%d,"send_cq":%d,"recv_cq":%d}`, pd.Handle, cq.Handle, cq.Handle))
			punch["work queue"], punch["reset"] = qpFiles[0], qpFiles[0]
			if what != "work queue" && what != "reset" {
				mem := mapping(t, qpFiles[0])
				rq, err := control.NewProducer(mem, *q.Recv)
				if err != nil {
					t.Fatal(err)
				}
				slot, err := rq.Next()
				if err != nil {
					t.Fatal(err)
				}
				control.PutRecv(slot, &rdmap.RecvWR{ID: 1})
				rq.Publish()
			}
			switch what {
			case "completion queue": // the receive is flushed into a hole
				peer, err := sockets.Open(sockets.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer peer.Close()
				at := listenAddr(t)
				responder(t, peer, at, 1)
				r.must(nil, control.OpConnect, fmt.Sprintf(`{"qp":%d,"local":"","remote":%q}`,
					q.Handle, at))
				hole(t, punch[what])
				r.send(control.OpDestroyQP,
					string(control.Marshal(control.Object{Handle: q.Handle})))
			case "doorbell":
				hole(t, punch[what])
				unix.Write(session[1], []byte{1, 0, 0, 0, 0, 0, 0, 0})
			case "reset":
				r.send(control.OpSetState, fmt.Sprintf(`{"qp":%d,"state":"reset"}`, q.Handle))
			case "work queue":
				control.RingBell(bell, q.Bell)
				r.send(control.OpQueryQP, string(control.Marshal(control.Object{Handle: q.Handle})))
			}
			r.dropped()
			if n := present(t, punch[what]); n != 0 {
				t.Errorf("the daemon made %d bytes of pages", n)
			}
			good, err := client.Open(socket)
			if err != nil {
				t.Fatal(err)
			}
			defer good.Close()
			verbstest.New(t, good, 4096)
		})
	}
}

// hole takes the pages of a memfd away.
func hole(t *testing.T, fd int) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0,
		st.Size); err != nil {
		t.Fatal(err)
	}
}
