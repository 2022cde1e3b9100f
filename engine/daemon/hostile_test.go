package daemon_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
)

func init() { roles["hostile"] = hostileRole }

// acceptAll returns the address of a listener that accepts every connection.
func acceptAll(t testing.TB) netip.AddrPort {
	t.Helper()
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	pd, _ := dev.AllocPD()
	cq, _ := dev.CreateCQ(1 << 14)
	l, err := dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			r, err := l.Accept(t.Context())
			if err != nil {
				return
			}
			qp, err := dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq, SendDepth: 1,
				RecvDepth: 1, MaxSGE: 1, IRD: 1, ORD: 1})
			if err == nil {
				r.Accept(t.Context(), qp, nil)
			}
		}
	}()
	return l.Addr()
}

// foe is a program that knows the protocol and ignores its rules.
type foe struct {
	c     *control.Socket
	sock  *net.UnixConn
	id    uint64
	bell  []byte // the doorbell's memory
	wake  int    // the doorbell's eventfd
	files []int
}

func newFoe(socket string) (f *foe, err error) {
	sock, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	f = &foe{c: control.NewSocket(sock, control.MaxReply), sock: sock}
	files, err := f.ask(control.OpHello, control.HelloArgs{Version: control.Version}, nil)
	if err != nil {
		return nil, err
	}
	f.wake = files[1]
	f.bell, err = unix.Mmap(files[0], 0, control.DoorbellLen, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	return f, err
}

func (f *foe) ask(op control.Op, args, result any, files ...int) ([]int, error) {
	f.id++
	r := control.Request{ID: f.id, Op: op}
	if args != nil {
		r.Args = control.Marshal(args)
	}
	if err := f.c.Send(control.KindRequest, control.Marshal(r), files...); err != nil {
		return nil, err
	}
	for {
		k, body, out, err := f.c.Receive()
		if err != nil {
			return nil, err
		}
		if k != control.KindReply {
			continue
		}
		reply, err := control.ParseReply(body)
		if err == nil && reply.Error != nil {
			err = reply.Error
		}
		if err == nil && result != nil {
			err = json.Unmarshal(reply.Result, result)
		}
		return out, err
	}
}

// unread creates a completion queue whose channel is never read, and tries to make writes to the channel block. arm
// arms the queue, so that its next completion is signalled.
func (f *foe) unread() (h control.Handle, arm func(), err error) {
	var r control.CreateCQResult
	files, err := f.ask(control.OpCreateCQ, control.CreateCQArgs{Depth: 64}, &r)
	if err != nil {
		return 0, nil, err
	}
	mem, err := unix.Mmap(files[0], 0, r.Ring.Len(), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return 0, nil, err
	}
	c, err := control.NewConsumer(mem, r.Ring)
	if err != nil {
		return 0, nil, err
	}
	unix.SetNonblock(files[1], false)
	unix.SetsockoptInt(files[1], unix.SOL_SOCKET, unix.SO_RCVBUF, 1)
	unix.Shutdown(files[1], unix.SHUT_WR)
	f.files = append(f.files, files...)
	return r.Handle, func() { control.Arm(c.Armed()) }, nil
}

// fail connects a queue pair to at and makes all its requests fail. Its two completion queues get more signals than
// their channels can hold.
func (f *foe) fail(pd control.Handle, at netip.AddrPort) error {
	send, armSend, err := f.unread()
	if err != nil {
		return err
	}
	recv, armRecv, err := f.unread()
	if err != nil {
		return err
	}
	var q control.CreateQPResult
	files, err := f.ask(control.OpCreateQP, control.CreateQPArgs{PD: pd, SendCQ: send, RecvCQ: recv,
		SendDepth: 1, RecvDepth: 1, MaxSGE: 1, MaxInline: 1}, &q)
	if err != nil {
		return err
	}
	defer control.CloseAll(files)
	mem, err := unix.Mmap(files[0], 0, int(q.Recv.After()), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	defer unix.Munmap(mem)
	if _, err := f.ask(control.OpConnect, control.ConnectArgs{QP: q.Handle, Remote: at},
		nil); err != nil {
		return err
	}
	sq, err := control.NewProducer(mem, q.Send)
	if err != nil {
		return err
	}
	rq, err := control.NewProducer(mem, *q.Recv)
	if err != nil {
		return err
	}
	for range 12 {
		armSend()
		armRecv()
		slot, _ := rq.Next()
		control.PutRecv(slot, &rdmap.RecvWR{ID: 1})
		rq.Publish()
		slot, _ = sq.Next()
		control.PutSend(slot, 1, &rdmap.SendWR{ID: 2, Op: rdmap.WRLocalInv, Flags: rdmap.Signaled,
			Invalidate: 1})
		sq.Publish()
		control.RingBell(f.bell, q.Bell)
		unix.Write(f.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		// the reply comes after both requests were consumed
		if _, err := f.ask(control.OpQueryQP, control.Object{Handle: q.Handle}, nil); err != nil {
			return err
		}
	}
	return nil
}

// hostileRole is a hostile program of an ordinary user. Its arguments: the socket, the address of a listener, the name
// of an attack.
func hostileRole(args []string) error {
	if os.Getuid() == 0 {
		return errors.New("the test wants an unprivileged user")
	}
	at := netip.MustParseAddrPort(args[1])
	foes := map[string]func(f *foe) error{
		"completions": func(f *foe) error {
			var pd control.Object
			_, err := f.ask(control.OpAllocPD, nil, &pd)
			for i := 0; i < 20 && err == nil; i++ {
				err = f.fail(pd.Handle, at)
			}
			return err
		},
		"doorbell": func(f *foe) error { // the eventfd is at its maximum, so that the next write blocks
			unix.SetNonblock(f.wake, false)
			unix.Write(f.wake, []byte{0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF})
			return nil
		},
		"requests": func(f *foe) error { // each request waits, and the program does not read the replies
			var l control.ListenResult
			_, err := f.ask(control.OpListen,
				control.ListenArgs{Addr: netip.MustParseAddrPort("127.0.0.1:0"),
					ListenConfig: verbs.ListenConfig{Backlog: 1}}, &l)
			for i := 0; i < control.MaxPending-1 && err == nil; i++ {
				op, args := control.OpGetRequest, control.Marshal(control.Object{Handle: l.Handle})
				if i%2 == 1 {
					op, args = control.OpState, nil
				}
				err = f.c.Send(control.KindRequest,
					control.Marshal(control.Request{ID: uint64(1000 + i), Op: op, Args: args}))
			}
			return err
		},
		"descriptors": func(f *foe) error {
			for range 3 {
				fd, err := linger()
				if err != nil {
					return err
				}
				// Send fails once the daemon has dropped the session
				f.c.Send(control.KindRequest,
					control.Marshal(control.Request{ID: 9, Op: control.OpAllocPD}), fd)
				go unix.Close(fd)
			}
			return nil
		},
	}
	for range 8 {
		f, err := newFoe(args[0])
		if err == nil {
			err = foes[args[2]](f)
		}
		if err != nil {
			return err
		}
	}
	for range 50 { // more connections than sessions are allowed, each with a descriptor
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: args[0], Net: "unix"})
		if err == nil {
			fd, err := linger()
			if err != nil {
				return err
			}
			c.WriteMsgUnix([]byte("x"), unix.UnixRights(fd), nil)
		}
	}
	fmt.Println("done")
	time.Sleep(time.Minute)
	return nil
}

// threads returns the number of threads of a process.
func threads(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "Threads:\t")
	n, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.Atoi(n)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestThreads: programs of an ordinary user try to make a daemon start threads. It may have at most 32 threads, plus
// one for each session, and must still serve another program.
func TestThreads(t *testing.T) {
	exe := publicExe(t)
	for _, what := range []string{"completions", "doorbell", "requests", "descriptors"} {
		t.Run(what, func(t *testing.T) {
			const sessions = 9
			path, socket := writeConfig(t, fmt.Sprintf("[[interface]]\nname = \"lo\"\ntransport "+
				"= \"kernel\"\n[limits]\nsessions = %d\ncqs = 4096\n", sessions))
			d := start(t, "/proc/self/exe", 0, "daemon", "/proc/self/ns/net", path)
			if got := d.line(); got != "ready" {
				t.Fatal(got)
			}
			before, most := threads(t, d.Process.Pid), 0
			p := start(t, exe, nobody, "hostile", socket, acceptAll(t).String(), what)
			var said atomic.Pointer[string]
			go func() {
				line := p.line()
				said.Store(&line)
			}()
			eventually(func() bool {
				most = max(most, threads(t, d.Process.Pid))
				return said.Load() != nil
			})
			within(300*time.Millisecond, func() bool {
				most = max(most, threads(t, d.Process.Pid))
				return false
			})
			if got := said.Load(); got == nil {
				t.Error("the program printed nothing")
			} else if *got != "done" {
				t.Errorf("the program: %s", *got)
			}
			t.Logf("%d threads, before %d", most, before)
			if most > 32+sessions {
				t.Errorf("%d threads with %d sessions", most, sessions)
			}
			dev, err := client.Open(socket)
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			if _, err := dev.AllocPD(); err != nil {
				t.Error(err)
			}
		})
	}
}
