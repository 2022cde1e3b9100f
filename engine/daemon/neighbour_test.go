package daemon_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

func init() {
	roles["honest"], roles["spin"] = honestRole, spinRole
	roles["burn"] = func([]string) error {
		for n := uint64(1); n != 0; n += 2 { // never 0
		}
		return nil
	}
}

// honestRole is a program that writes 8 bytes in a loop for some time, and prints the number of writes. Its arguments:
// the socket, the peer's address, the duration.
func honestRole(args []string) error {
	dev, err := client.Open(args[0])
	if err != nil {
		return err
	}
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	cq, err := dev.CreateCQ(64)
	if err != nil {
		return err
	}
	qp, err := dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := dev.Dial(ctx, netip.MustParseAddrPort(args[1]), qp, verbs.DialConfig{}); err != nil {
		return err
	}
	remote, err := verbs.ParseRemoteMR(qp.Params().PrivateData)
	if err != nil {
		return err
	}
	wr := verbs.SendWR{Op: rdmap.WRWrite, Flags: rdmap.Signaled, Inline: make([]byte, 8),
		RemoteSTag: remote.STag, RemoteTO: remote.Base}
	long, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	n := 0
	var c [1]verbs.Completion
	for end := time.Now().Add(long); time.Now().Before(end); n++ {
		if err := qp.PostSend(&wr); err != nil {
			return err
		}
		if _, err := cq.Wait(ctx, c[:]); err != nil || c[0].Status != rdmap.Success {
			return fmt.Errorf("write %d: %v, %w", n, c[0].Status, err)
		}
	}
	fmt.Println(n)
	return nil
}

// spun is a connected queue pair. The program posts its whole send ring again and again, with requests that complete
// without sending anything.
type spun struct {
	f            *foe
	send, cq     []byte
	q            control.CreateQPResult
	done         control.Geometry
	posted, head uint32
}

// newSpun connects a queue pair of f to at.
func newSpun(f *foe, pd control.Handle, at netip.AddrPort, depth int) (*spun, error) {
	s := &spun{f: f}
	var cq control.CreateCQResult
	files, err := f.ask(control.OpCreateCQ, control.CreateCQArgs{Depth: 2 * depth}, &cq)
	if err != nil {
		return nil, err
	}
	if s.cq, err = shared(files[0]); err != nil {
		return nil, err
	}
	s.done = cq.Ring
	if files, err = f.ask(control.OpCreateQP, control.CreateQPArgs{PD: pd,
		SendCQ: cq.Handle, RecvCQ: cq.Handle, SendDepth: depth, RecvDepth: 1, MaxSGE: 2,
		MaxInline: -1, IRD: 1, ORD: 1}, &s.q); err != nil {
		return nil, err
	}
	if s.send, err = shared(files[0]); err != nil {
		return nil, err
	}
	_, err = f.ask(control.OpConnect, control.ConnectArgs{QP: s.q.Handle, Remote: at}, nil)
	return s, err
}

func shared(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	return unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
}

func word(b []byte, at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&b[at])) }

// fill writes the same request to all slots of the send ring: with binds, one that binds a memory window, otherwise a
// Read into two pieces, which is refused.
func (s *spun) fill(pd control.Handle, binds bool) error {
	wr := rdmap.SendWR{Op: rdmap.WRRead, SGL: []rdmap.SGE{{STag: 1, Len: 1}, {STag: 1, Len: 1}}}
	if binds {
		fd, err := unix.MemfdCreate("spin", unix.MFD_ALLOW_SEALING)
		if err != nil {
			return err
		}
		unix.Ftruncate(fd, 4096)
		unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
		if _, err := shared(fd); err != nil {
			return err
		}
		var mr control.RegMRResult
		var mw control.AllocMWResult
		if _, err := s.f.ask(control.OpRegMR, control.RegMRArgs{PD: pd, Length: 4096,
			Access: verbs.LocalWrite | verbs.BindMW}, &mr, fd); err != nil {
			return err
		}
		if _, err := s.f.ask(control.OpAllocMW, control.AllocMWArgs{PD: pd}, &mw); err != nil {
			return err
		}
		wr = rdmap.SendWR{Op: rdmap.WRBindMW, RemoteSTag: mw.STag, Region: mr.STag, Data: 64,
			Access: verbs.RemoteRead}
	}
	s.put(&wr)
	return nil
}

// put writes wr to all slots of the send ring. The low byte of the STag, its key, differs between neighbouring slots.
func (s *spun) put(wr *rdmap.SendWR) {
	for i := range s.q.Send.Slots {
		wr.RemoteSTag = wr.RemoteSTag&^0xff | ddp.STag(i&0xff)
		at := s.q.Send.Offset + 192 + i*s.q.Send.SlotSize
		control.PutSend(s.send[at:at+s.q.Send.SlotSize], s.q.MaxSGE, wr)
	}
}

// turn posts the requests in all free slots, and consumes all completions.
func (s *spun) turn() {
	head := atomic.LoadUint32(word(s.send, s.q.Send.Offset+64))
	atomic.StoreUint32(word(s.cq, s.done.Offset+64), atomic.LoadUint32(word(s.cq, s.done.Offset)))
	if head == s.head && s.posted != 0 { // nothing new to post; the daemon delays a program that rings without posting
		return
	}
	s.head, s.posted = head, head+s.q.Send.Slots
	atomic.StoreUint32(word(s.send, s.q.Send.Offset), s.posted)
	control.RingBell(s.f.bell, s.q.Bell)
	if control.Disarm(control.SleepWord(s.f.bell)) {
		unix.Write(s.f.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// spinRole is a program that keeps a worker of the daemon busy with requests that send nothing. Its arguments: the
// socket, the address of a listener, "bind" or "refused", the number of sessions, the number of queue pairs of each
// session.
func spinRole(args []string) error {
	sessions, _ := strconv.Atoi(args[3])
	qps, _ := strconv.Atoi(args[4])
	var all []*spun
	for range sessions {
		f, err := newFoe(args[0])
		if err != nil {
			return err
		}
		var pd control.Object
		if _, err := f.ask(control.OpAllocPD, nil, &pd); err != nil {
			return err
		}
		for range qps {
			s, err := newSpun(f, pd.Handle, netip.MustParseAddrPort(args[1]), 8191)
			if err != nil {
				return err
			}
			if err := s.fill(pd.Handle, args[2] == "bind"); err != nil {
				return err
			}
			all = append(all, s)
		}
	}
	fmt.Println("begins")
	for {
		for _, s := range all {
			s.turn()
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// TestHonestBesideHostile: one user writes 8 bytes at a time while another floods the worker with requests that send
// nothing. In one of three tries, the first must have at least 1/20 of its rate beside two processes that only use CPU
// time. Without the limits on a turn of a worker it has 0.1 % to 1 % of that rate.
func TestHonestBesideHostile(t *testing.T) {
	tn := hosts(t)
	exe := publicExe(t)
	path, socket := writeConfig(t, ethTable)
	d := start(t, exe, 0, "daemon", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), tn.A.Fd()), path)
	if got := d.line(); got != "ready" {
		t.Fatalf("daemon: %q", got)
	}
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	responder(t, embedded(t, tn.B.Do), at, 1000)
	writes := func() int {
		line := start(t, exe, nobody, "honest", socket, at.String(), "700ms").line()
		n, err := strconv.Atoi(line)
		if err != nil {
			t.Fatalf("honest user: %q", line)
		}
		return n
	}
	burning := func() int {
		for range 2 {
			c := start(t, exe, nobody, "burn")
			defer c.kill()
		}
		return writes()
	}
	for _, attack := range [][]string{{"refused", "8", "1"}, {"bind", "15", "2"}} {
		t.Run(attack[0], func(t *testing.T) {
			const tries, share = 3, 20
			for try := 1; ; try++ {
				control := burning()
				c := start(t, exe, nobody-1, "spin", append([]string{socket, at.String()},
					attack...)...)
				if got := c.line(); got != "begins" {
					t.Fatalf("hostile user: %q", got)
				}
				n := writes()
				c.kill()
				t.Logf("%d Writes beside the hostile user, %d beside busy processors", n, control)
				if n >= control/share {
					return
				}
				if try == tries { // a busy machine may slow down either
					t.Fatalf("%d Writes beside a hostile user, and %d beside busy processors", n,
						control)
				}
			}
		})
	}
}
