package daemon_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// TestWrongRequests: an invalid request gets an error, and does not end the session.
//
//req:rfc5042-3-1 rfc5042-7.1-1 rfc5041-8.3.2-1 rfc5040-8.1.1-9 rfc5040-8.1.2-1
func TestWrongRequests(t *testing.T) {
	_, socket := kernel(t, "")
	for _, tc := range []struct {
		name string
		op   control.Op
		args string
		code control.Code
		text string
	}{
		{"unknown op", "fly", ``, control.CodeUnknown, "unknown request"},
		{"unknown argument", control.OpCreateCQ, `{"depth":1,"colour":"red"}`, control.CodeInvalid,
			"colour"},
		{"arguments of a wrong type", control.OpCreateCQ, `{"depth":"much"}`, control.CodeInvalid,
			""},
		{"deep queue", control.OpCreateCQ, `{"depth":1000000000}`, control.CodeInvalid, ""},
		{"no queue", control.OpCreateCQ, `{"depth":0}`, control.CodeInvalid, ""},
		{"negative queue", control.OpCreateCQ, `{"depth":-5}`, control.CodeInvalid, ""},
		{"foreign handle", control.OpFreePD, `{"handle":77}`, control.CodeUnknown, "77"},
		{"foreign domain", control.OpCreateQP, `{"pd":5,"send_cq":6,"recv_cq":7}`,
			control.CodeUnknown, ""},
		{"deep queue pair", control.OpCreateQP,
			`{"pd":5,"send_cq":6,"recv_cq":7,"send_depth":100000}`, control.CodeInvalid,
			"send_depth"},
		{"region without memory", control.OpRegMR, `{"pd":1,"offset":0,"length":4096,"access":1}`,
			control.CodeInvalid, "descriptor"},
		{"connect to nowhere", control.OpConnect, `{"qp":1,"local":"","remote":""}`,
			control.CodeInvalid, ""},
		{"resolve nowhere", control.OpResolve, `{"remote":"","timeout_ms":1}`,
			control.CodeInvalid, ""},
		{"resolve for ever", control.OpResolve, `{"remote":"127.0.0.1:1","timeout_ms":600001}`,
			control.CodeInvalid, "600000 ms"},
		{"listen nowhere", control.OpListen, `{"addr":""}`, control.CodeInvalid, ""},
		{"listen at the rendezvous", control.OpListen, `{"addr":"127.0.0.1:4791"}`,
			control.CodePermission, "reserved for the daemons"},
		{"connect to the rendezvous", control.OpConnect,
			`{"qp":1,"local":"","remote":"127.0.0.2:4791"}`, control.CodePermission,
			"reserved for the daemons"},
		{"accept nothing", control.OpReject, `{"handle":9}`, control.CodeLapsed, ""},
		{"flush", control.OpFlush, `{"export":"x"}`, control.CodePermission, "only the operator"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := dialRaw(t, socket)
			control.CloseAll(r.hello())
			reply, _ := r.call(tc.op, tc.args)
			if reply.Error == nil || reply.Error.Code != tc.code ||
				!strings.Contains(reply.Error.Text, tc.text) {
				t.Errorf("%s %s: %+v, want %s and %q", tc.op, tc.args, reply.Error, tc.code,
					tc.text)
			}
			if reply, _ := r.call(control.OpAllocPD, ""); reply.Error != nil {
				t.Errorf("an invalid request ended the session: %v", reply.Error)
			}
		})
	}
}

func TestWrongFrames(t *testing.T) {
	_, socket := kernel(t, "")
	for name, data := range map[string]string{
		"no hello":       "\x18\x00\x00\x00\x01\x00\x00\x00" + `{"id":1,"op":"alloc_pd"}`,
		"reply":          "\x02\x00\x00\x00\x02\x00\x00\x00{}",
		"long":           "\xff\xff\xff\xff\x01\x00\x00\x00",
		"kind":           "\x02\x00\x00\x00\x09\x00\x00\x00{}",
		"reserved":       "\x02\x00\x00\x00\x01\x00\x01\x00{}",
		"no descriptors": "\x02\x00\x00\x00\x01\x02\x00\x00{}",
		"no JSON":        "\x03\x00\x00\x00\x01\x00\x00\x00abc",
		"HTTP":           "GET / HTTP/1.1\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := dialRaw(t, socket)
			if _, err := r.sock.Write([]byte(data)); err != nil {
				t.Fatal(err)
			}
			r.dropped()
		})
	}
	for version, want := range map[int]string{
		control.Version - 1: "upgrade the older side: the xwarp package",
		control.Version + 1: "upgrade the older side: the daemon's",
	} {
		t.Run(fmt.Sprintf("version %d", version), func(t *testing.T) {
			r := dialRaw(t, socket)
			reply, _ := r.call(control.OpHello, fmt.Sprintf(`{"version":%d}`, version))
			if reply.Error == nil || reply.Error.Code != control.CodeVersion ||
				!strings.Contains(reply.Error.Text, want) {
				t.Errorf("%+v, want %q", reply.Error, want)
			}
			r.dropped()
		})
	}
	t.Run("too many descriptors", func(t *testing.T) {
		r := dialRaw(t, socket)
		control.CloseAll(r.hello())
		oob := unix.UnixRights(0, 1, 2)
		r.sock.WriteMsgUnix([]byte("\x02\x00\x00\x00\x01\x02\x00\x00{}"), oob, nil)
		r.dropped()
	})
	// After all this the daemon must still serve programs.
	control.CloseAll(dialRaw(t, socket).hello())
}

// TestWrongRings: programs corrupt shared memory. They lose their session, and others are not affected.
func TestWrongRings(t *testing.T) {
	d, socket := kernel(t, "")
	good, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer good.Close()
	verbstest.New(t, good, 4096)
	for name, lie := range map[string]func(q *control.CreateQPResult, mem []byte){
		"send index far ahead": func(q *control.CreateQPResult, mem []byte) {
			poke(mem, q.Send.Offset, 0x8000_0000)
		},
		"send index behind": func(q *control.CreateQPResult, mem []byte) {
			poke(mem, q.Send.Offset, 0xFFFF_FFFF)
		},
		"receive index": func(q *control.CreateQPResult, mem []byte) {
			poke(mem, q.Recv.Offset, q.Recv.Slots+1)
		},
		"pieces of a receive": func(q *control.CreateQPResult, mem []byte) {
			mem[q.Recv.Offset+192+8] = 200
			poke(mem, q.Recv.Offset, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := dialRaw(t, socket)
			session := r.hello()
			defer control.CloseAll(session)
			mapping(t, session[0]) // otherwise the daemon would end the session because that page is missing
			var pd, cq control.Object
			r.must(&pd, control.OpAllocPD, "")
			control.CloseAll(r.must(&cq, control.OpCreateCQ, `{"depth":16}`))
			var q control.CreateQPResult
			files := r.must(&q, control.OpCreateQP,
				string(control.Marshal(control.CreateQPArgs{PD: pd.Handle, SendCQ: cq.Handle,
					RecvCQ: cq.Handle})))
			defer control.CloseAll(files)
			lie(&q, mapping(t, files[0]))
			ring(t, session, q.Bell)
			r.dropped()
		})
	}
	if _, ok := eventually(func() bool {
		return len(d.Snapshot().Sessions) == 1
	}); !ok {
		t.Errorf("sessions: %+v", d.Snapshot().Sessions)
	}
	if _, err := good.AllocPD(); err != nil {
		t.Errorf("an honest program suffers: %v", err)
	}
}

// ring sets the bit of a queue pair and rings the doorbell, as a program does after posting.
func ring(t testing.TB, session []int, bell uint32) {
	control.RingBell(mapping(t, session[0]), bell)
	unix.Write(session[1], []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func poke(mem []byte, offset uint32, v uint32) {
	mem[offset], mem[offset+1], mem[offset+2], mem[offset+3] = byte(v), byte(v>>8), byte(v>>16),
		byte(v>>24)
}

// TestBlockedSignal: a program makes its end of a completion channel blocking, and never reads the daemon's signals.
// The daemon must still answer its requests, and end its session when the control socket closes.
func TestBlockedSignal(t *testing.T) {
	d, socket := kernel(t, "")
	r := dialRaw(t, socket)
	mapping(t, r.hello()[0])
	var pd control.Object
	r.must(&pd, control.OpAllocPD, "")
	var cq control.CreateCQResult
	cqFiles := r.must(&cq, control.OpCreateCQ, `{"depth":64}`)
	ring, err := control.NewConsumer(mapping(t, cqFiles[0]), cq.Ring)
	if err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(cqFiles[1], false)
	// has no effect: a program cannot send to the daemon's end
	unix.Write(cqFiles[1], []byte{0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF})
	var q control.CreateQPResult
	qpFiles := r.must(&q, control.OpCreateQP,
		string(control.Marshal(control.CreateQPArgs{PD: pd.Handle, SendCQ: cq.Handle,
			RecvCQ: cq.Handle})))
	sq, err := control.NewProducer(mapping(t, qpFiles[0]), q.Send)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	b := verbstest.New(t, peer, 4096)
	l, err := peer.Listen(netip.MustParseAddrPort("127.0.0.1:0"), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if c, err := l.Accept(t.Context()); err == nil {
			c.Accept(t.Context(), b.QP, nil)
		}
	}()
	r.must(nil, control.OpConnect,
		string(control.Marshal(control.ConnectArgs{QP: q.Handle, Remote: l.Addr()})))
	for i := range 8 { // each completes with an error and a signal
		control.Arm(ring.Armed())
		slot, err := sq.Next()
		if err != nil || slot == nil {
			t.Fatal(err)
		}
		control.PutSend(slot, q.MaxSGE, &rdmap.SendWR{ID: uint64(i), Op: rdmap.WRLocalInv,
			Flags: rdmap.Signaled, Invalidate: 1})
		sq.Publish()
		r.must(nil, control.OpQueryQP, string(control.Marshal(control.Object{Handle: q.Handle})))
	}
	r.sock.Close() // the descriptors stay open: only the session ends
	if took, ok := eventually(func() bool {
		return len(d.Snapshot().Sessions) == 1
	}); !ok {
		t.Errorf("the session still exists after %v", took)
	}
	control.CloseAll(append(cqFiles, qpFiles...))
}

// TestMemory: memory that must not be registered is refused.
//
//req:rfc5042-7.3-1 rfc5041-8.3.2-4 rfc5040-8.1.2-4
func TestMemory(t *testing.T) {
	_, socket := kernel(t, "[limits]\nmemory = \"64KiB\"\nmrs = 2\n")
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	needs.HugePages(t, 1)
	pipe, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	socketpair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer control.CloseAll(socketpair[:])
	open := func(path string, flags int) int {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	shared := shmFile(t, 1<<20)
	readOnly := open(fmt.Sprintf("/proc/self/fd/%d", shared), unix.O_RDONLY)
	frozen := memfd(t, 1<<20, 0, unix.F_SEAL_SHRINK|unix.F_SEAL_WRITE)
	const kind = "memfd or a file on tmpfs or hugetlbfs"
	for _, tc := range []struct {
		name           string
		fd             int
		offset, length uint64
		text           string
	}{
		{"frozen and can be shortened", memfd(t, 1<<20, 0, unix.F_SEAL_WRITE), 0, 4096,
			"F_SEAL_SHRINK"},
		{"file on disk", open("/proc/self/exe", unix.O_RDONLY), 0, 4096, kind},
		{"directory", open("/dev/shm", unix.O_RDONLY), 0, 4096, kind},
		{"name", open("/dev/shm", unix.O_PATH), 0, 4096, kind},
		{"device", open("/dev/zero", unix.O_RDWR), 0, 4096, kind},
		{"pipe", int(pipe.Fd()), 0, 4096, kind},
		{"socket", socketpair[0], 0, 4096, kind},
		{"open for reading", readOnly, 0, 4096, "reading and writing"},
		{"beyond the end", shared, 1<<20 - 4095, 4096, "exceed the file"},
		{"beyond the end of a huge page", memfd(t, 2<<20, unix.MFD_HUGETLB, 0), 2<<20 - 4095, 4096,
			"exceed the file"},
		{"offset beyond the end", shared, 1 << 30, 4096, "exceed the file"},
		{"offset that wraps", shared, 1<<64 - 4096, 8192, "region"},
		{"length that wraps", shared, 4096, 1<<64 - 4096, "region"},
		{"empty", shared, 0, 0, "region"},
		{"cannot be written", frozen, 0, 4096, "mapping"},
		{"above the quota", shared, 0, 65 << 10, "limits.memory"},
	} {
		if _, err := pd.(*client.PD).RegMRFd(tc.fd, tc.offset, tc.length,
			verbs.LocalWrite); err == nil ||
			!strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.text)
		}
	}
	var mrs []verbs.MR
	for _, tc := range []struct {
		fd             int
		offset, length uint64
		access         ddp.Access
	}{{shared, 4097, 100, verbs.LocalWrite}, {frozen, 0, 4096, verbs.RemoteRead}} {
		m, err := pd.(*client.PD).RegMRFd(tc.fd, tc.offset, tc.length, tc.access)
		if err != nil {
			t.Fatal(err)
		}
		mrs = append(mrs, m)
	}
	if _, err := pd.(*client.PD).RegMRFd(shared, 0, 1, verbs.LocalWrite); err == nil ||
		!strings.Contains(err.Error(), "limits.mrs") {
		t.Errorf("a third region of two: %v", err)
	}
	if err := mrs[0].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := pd.(*client.PD).RegMRFd(shared, 0, 1, verbs.LocalWrite); err != nil {
		t.Errorf("a region in place of one that was closed: %v", err)
	}
	if _, err := pd.RegMR(make([]byte, 100), verbs.LocalWrite); !errors.Is(err,
		verbs.ErrNotShared) {
		t.Errorf("memory of Go's heap: %v", err)
	}
	if err := mrs[1].Close(); err != nil {
		t.Fatal(err)
	}
	// The daemon calls no operation of a file served by a program (FUSE). The session ends when that file is closed.
	if _, err := pd.(*client.PD).RegMRFd(unanswered(t), 0, 4096, verbs.LocalWrite); err == nil ||
		!strings.Contains(err.Error(), kind) {
		t.Errorf("file that a program serves: %v", err)
	}
}

// TestQuotas requests sessions, protection domains, completion queues, queue pairs and listeners up to their limits,
// and a little more. The errors must name the limits, and closed objects must no longer count.
//
//req:rfc5042-3-2 rfc5042-6.4.1-1 rfc5042-6.4.3.2-1 rfc5042-7.2-2 rfc5041-8.3.2-2 rfc5041-8.3.2-5 rfc5040-8.1.2-2
//req:rfc5040-8.1.2-5 rfc5040-8.1.2-6
func TestQuotas(t *testing.T) {
	d, socket := kernel(t, "[limits]\nsessions = 2\npds = 1\ncqs = 2\ncompletions = 300\nqps = "+
		"2\nwork_requests = 300\nlisteners = 1\n")
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	over := func(what string, err error) {
		t.Helper()
		var e *control.Error
		if !errors.As(err, &e) || e.Code != control.CodeQuota || !strings.Contains(e.Text, what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = dev.AllocPD()
	over("limits.pds", err)
	cq, _ := dev.CreateCQ(256)
	qp, err := dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	_, err = dev.CreateCQ(64)
	over("limits.completions", err)
	_, err = dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
	over("limits.work_requests", err)
	small := verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq, SendDepth: 1, RecvDepth: 1}
	if _, err = dev.CreateQP(small); err != nil {
		t.Error(err)
	}
	_, err = dev.CreateQP(small)
	over("limits.qps", err)
	if err := qp.Close(); err != nil {
		t.Error(err)
	}
	if _, err = dev.CreateQP(small); err != nil {
		t.Errorf("a queue pair in place of one that was closed: %v", err)
	}
	at := netip.MustParseAddrPort("127.0.0.1:0")
	if _, err = dev.Listen(at, verbs.ListenConfig{}); err != nil {
		t.Error(err)
	}
	_, err = dev.Listen(at, verbs.ListenConfig{})
	over("limits.listeners", err)
	second, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Open(socket)
	over("limits.sessions", err)
	dev.Close()
	second.Close()
	if _, ok := eventually(func() bool {
		return empty(d)
	}); !ok {
		t.Errorf("left over: %+v", d.Snapshot().Users)
	}
}
