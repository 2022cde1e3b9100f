package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// memfd returns a memfd of size bytes that has no pages yet, with the given flags and seals.
func memfd(t testing.TB, size int64, flags, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", flags|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

// shmFile returns a new file in /dev/shm, as shm_open creates one.
func shmFile(t testing.TB, size int64) int {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "xwarp-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Close()
		os.Remove(f.Name())
	})
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return int(f.Fd())
}

// present returns the number of bytes of a file for which pages are allocated.
func present(t testing.TB, fd int) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return 512 * st.Blocks
}

// dialForPD returns a client with a protection domain.
func dialForPD(t testing.TB, socket string) (r *raw, pd control.Object) {
	t.Helper()
	r = dialRaw(t, socket)
	control.CloseAll(r.hello())
	r.must(&pd, control.OpAllocPD, "")
	return r, pd
}

// TestHoles registers memory of which pages are missing. The registration must be refused, and must not allocate pages:
// a page that the daemon touches first is charged to the cgroup of the daemon, even after the region is gone.
func TestHoles(t *testing.T) {
	_, socket := kernel(t, "")
	r, pd := dialForPD(t, socket)
	const size = 1 << 20
	for _, access := range []int{1, 2} { // local write, remote read
		for name, fd := range map[string]int{
			"no pages": memfd(t, size, 0, 0), "a hole": memfd(t, size, 0, 0),
			"shm":    shmFile(t, size),
			"frozen": memfd(t, size, 0, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SHRINK),
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
				t.Errorf("%s, access %d: the daemon allocated %d bytes of pages", name, access,
					got-before)
			}
		}
	}
}

// losses are ways to remove the pages of a file.
var losses = map[string]func(fd int, size int64) error{
	"punched": func(fd int, size int64) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size)
	},
	"cut off": func(fd int, _ int64) error { return unix.Ftruncate(fd, 0) },
	"cut off and longer again": func(fd int, size int64) error {
		return errors.Join(unix.Ftruncate(fd, 0), unix.Ftruncate(fd, size))
	},
}

// TestLostPages removes the pages of a region after its registration. A connection that accesses a missing page must
// end, and the daemon must not allocate new pages. A new connection of the same program must work.
func TestLostPages(t *testing.T) {
	needs.HugePages(t, 2)
	_, socket := kernel(t, "")
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	peer, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	const size = 2 << 20
	for kind, fd := range map[string]int{"memfd": memfd(t, size, 0, 0), "shm": shmFile(t, size),
		"huge pages": memfd(t, size, unix.MFD_HUGETLB, 0)} {
		for loss, lose := range losses {
			for _, access := range []string{"sent", "received", "written", "read"} {
				t.Run(kind+" "+loss+" "+access, func(t *testing.T) {
					a, b := verbstest.New(t, dev, 4096), verbstest.New(t, peer, 4096)
					verbstest.Connect(t, b, a, listenAddr(t))
					if err := unix.Ftruncate(fd, size); err != nil {
						t.Fatal(err)
					}
					mr, err := a.PD.(*client.PD).RegMRFd(fd, 4096, size-4096,
						verbs.LocalWrite|verbs.RemoteRights)
					if err != nil {
						t.Fatal(err)
					}
					touch(t, a, b, mr, access) // with all pages, the access works
					if err := lose(fd, size); err != nil {
						t.Fatal(err)
					}
					if err := touch(nil, a, b, mr, access); err == nil {
						t.Error("the connection did not end")
					}
					if n := present(t, fd); n != 0 {
						t.Errorf("the daemon allocated %d bytes of pages", n)
					}
					c, d := verbstest.New(t, dev, 4096), verbstest.New(t, peer, 4096)
					verbstest.Connect(t, c, d, listenAddr(t))
					verbstest.Exercise(t, c, d)
				})
			}
		}
	}
}

// touch makes the connection of a and b access mr, a region of a, in one way: "sent", "received", "written" or "read".
// It returns the error of the operation. If t is not nil, an error fails the test.
func touch(t *testing.T, a, b *verbstest.End, mr verbs.MR, access string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	own := b.MR.SGE(0, 4096)
	var err error
	switch access {
	case "sent":
		err = a.Do(ctx, verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{mr.SGE(0, 4096)},
			RemoteSTag: b.MR.STag()})
	case "received":
		err = a.QP.PostRecv(&verbs.RecvWR{ID: 1, SGL: []verbs.SGE{mr.SGE(0, 4096)}})
		if err == nil {
			b.Do(ctx, verbs.SendWR{Op: rdmap.WRSend, SGL: []verbs.SGE{own}})
			_, err = a.Next(ctx)
		}
	case "written": // a Read after it proves that it was placed
		b.Do(ctx, verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{own}, RemoteSTag: mr.STag()})
		err = b.Do(ctx, verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{own},
			RemoteSTag: a.MR.STag()})
	case "read":
		err = b.Do(ctx, verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{own},
			RemoteSTag: mr.STag()})
	}
	if t != nil && err != nil {
		t.Fatal(err)
	}
	if err != nil && ctx.Err() != nil {
		panic("nothing ended")
	}
	return err
}

// TestShortenedMeanwhile truncates memory while it is being registered. A registration may succeed or be refused. The
// daemon must survive.
func TestShortenedMeanwhile(t *testing.T) {
	_, socket := kernel(t, "")
	r, pd := dialForPD(t, socket)
	const size = 1 << 20
	fd := shmFile(t, size)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			unix.Ftruncate(fd, 0)
			unix.Ftruncate(fd, size)
			unix.Fallocate(fd, 0, 0, size)
			time.Sleep(200 * time.Microsecond)
		}
	}()
	refused := 0
	for range 500 {
		var mr control.RegMRResult
		reply, _ := r.call(control.OpRegMR, fmt.Sprintf(`{"pd":%d,"length":%d,"access":7}`, pd.Handle,
			size), fd)
		if reply.Error != nil {
			if why := reply.Error.Text; !strings.Contains(why, "has holes or was truncated") &&
				!strings.Contains(why, "exceed the file") {
				t.Fatal(why)
			}
			refused++
			continue
		}
		if err := json.Unmarshal(reply.Result, &mr); err != nil {
			t.Fatal(err)
		}
		r.must(nil, control.OpDeregMR, string(control.Marshal(control.Object{Handle: mr.Handle})))
	}
	cancel()
	<-done
	t.Logf("%d of 500 were refused", refused)
	good, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer good.Close()
	verbstest.New(t, good, 4096)
}

// listenAddr returns an unused address of this host.
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

// TestRingHoles: programs leave the pages of rings and doorbell unallocated, or remove them. They lose their session,
// the daemon allocates no pages, and other programs continue.
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
			case "completion queue": // the completion of the flushed receive falls into a hole
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
				t.Errorf("the daemon allocated %d bytes of pages", n)
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

// hole removes all pages of a memfd.
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
