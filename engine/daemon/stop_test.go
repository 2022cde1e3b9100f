package daemon_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
)

var stops = flag.Int("stops", 2, "ends of the daemon for each of the programs that hold it up")

// linger returns a descriptor whose last close takes a minute: a socket with SO_LINGER and more unsent bytes than the
// other end's receive buffer can take.
func linger() (int, error) {
	small := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		e := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)
		})
		return errors.Join(e, err)
	}}
	l, err := small.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return -1, err
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return -1, err
	}
	defer c.Close()
	c.(*net.TCPConn).SetLinger(60)
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		return -1, err
	}
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		return -1, err
	}
	filled := 0
	for b := make([]byte, 64<<10); err == nil; { // until the send buffer is full, too
		n := 0
		n, err = unix.SendmsgN(fd, b, nil, nil, unix.MSG_DONTWAIT)
		filled += max(n, 0)
	}
	if err != unix.EAGAIN || filled < 64<<10 {
		return -1, fmt.Errorf("%d bytes sent, then: %w", filled, err)
	}
	lingered = append(lingered, l) // the other end, not accepted yet, belongs to the listener
	return fd, nil
}

var lingered []net.Listener

// lingering is linger for a descriptor whose close returns once the test has ended.
func lingering(t testing.TB) int {
	t.Helper()
	fd, err := linger()
	if err != nil {
		t.Fatal(err)
	}
	l := lingered[len(lingered)-1]
	t.Cleanup(func() { l.Close() })
	return fd
}

// unanswered returns a file whose close blocks on its server, which never responds: a FUSE file system of one file.
func unanswered(t testing.TB) int {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("test", path, "fuse", 0,
		fmt.Sprintf("fd=%d,rootmode=100600,user_id=0,group_id=0", dev)); err != nil {
		t.Fatal(err)
	}
	const getattr, open, opInit = 3, 14, 26
	go func() {
		b := make([]byte, 1<<17)
		for {
			n, err := unix.Read(dev, b)
			if err != nil || n < 40 {
				return
			}
			var answer []byte
			switch binary.NativeEndian.Uint32(b[4:]) {
			case opInit:
				answer = make([]byte, 64)
				binary.NativeEndian.PutUint32(answer, 7)
				binary.NativeEndian.PutUint32(answer[4:], 31)
				binary.NativeEndian.PutUint32(answer[20:], 4096) // max_write
			case getattr:
				answer = make([]byte, 104)
				binary.NativeEndian.PutUint64(answer[16:], 1)       // inode
				binary.NativeEndian.PutUint32(answer[76:], 0100600) // mode
			case open:
				answer = make([]byte, 16)
			default:
				continue
			}
			out := binary.NativeEndian.AppendUint32(nil, uint32(16+len(answer)))
			out = append(out, 0, 0, 0, 0)
			unix.Write(dev, append(append(out, b[8:16]...), answer...))
		}
	}()
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Unmount(path, unix.MNT_DETACH|unix.MNT_FORCE) // waiting calls fail with ECONNABORTED
		unix.Close(fd)
		unix.Close(dev)
	})
	return fd
}

// leave sends a request with the descriptor fd and closes fd, so that the daemon holds the last reference.
func (r *raw) leave(fd int) {
	r.t.Helper()
	body := control.Marshal(control.Request{ID: 999, Op: control.OpAllocPD})
	if _, _, err := r.sock.WriteMsgUnix([]byte{byte(len(body)), 0, 0, 0, 1, 1, 0, 0},
		unix.UnixRights(fd), nil); err != nil {
		r.t.Fatal(err)
	}
	r.read()
	unix.Close(fd)
	r.sock.Write(body)
}

// read returns when the daemon has read everything that was sent.
func (r *raw) read() {
	r.t.Helper()
	raw, err := r.sock.SyscallConn()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, ok := eventually(func() bool {
		n := -1
		raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		return n == 0 && err == nil
	}); !ok {
		r.t.Fatalf("the daemon does not read: %v", err)
	}
}

// slack is the maximum duration of a stop on a loaded machine. The delays in these tests last until the test ends, so a
// stop that waits for one takes longer.
const slack = 10 * time.Second

// held are ways in which a program tries to delay the daemon's stop.
var held = map[string]func(t *testing.T, socket string){
	"a descriptor that lingers": func(t *testing.T, socket string) {
		r := dialRaw(t, socket)
		control.CloseAll(r.hello())
		r.leave(lingering(t))
	},
	"descriptors that linger in the socket": func(t *testing.T, socket string) {
		r := dialRaw(t, socket)
		control.CloseAll(r.hello())
		r.leave(lingering(t))
		for range 3 { // after the one whose close blocks
			fd := lingering(t)
			r.send(control.OpAllocPD, "", fd)
			unix.Close(fd)
		}
		r.sock.Close()
	},
	"a file of a dead FUSE server": func(t *testing.T, socket string) {
		r := dialRaw(t, socket)
		control.CloseAll(r.hello())
		r.send(control.OpAllocPD, "", unanswered(t))
	},
	"a file of a dead FUSE server for a region": func(t *testing.T, socket string) {
		r := dialRaw(t, socket)
		control.CloseAll(r.hello())
		var pd control.Object
		r.must(&pd, control.OpAllocPD, "")
		r.send(control.OpRegMR, fmt.Sprintf(`{"pd":%d,"offset":0,"length":4096,"access":1}`,
			pd.Handle), unanswered(t))
	},
	"replies that nobody reads": func(t *testing.T, socket string) {
		r := dialRaw(t, socket)
		control.CloseAll(r.hello())
		r.sock.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		for {
			if _, err := r.sock.Write([]byte("\x1b\x00\x00\x00\x01\x00\x00\x00" +
				`{"id":1,"op":"no such one"}`)); err != nil {
				return
			}
		}
	},
}

// TestStopInTime closes a daemon, as xwarpd does on SIGTERM, while programs try to delay it. That must take at most
// slack.
func TestStopInTime(t *testing.T) {
	for name, hold := range held {
		t.Run(name, func(t *testing.T) {
			for range *stops {
				d, socket := kernel(t, "")
				hold(t, socket)
				if _, ok := eventually(func() bool {
					return len(d.Snapshot().Sessions) == 1
				}); !ok {
					t.Fatal("the program has no session")
				}
				time.Sleep(20 * time.Millisecond) // the daemon reads what the program sent
				begin := time.Now()
				d.Close()
				if took := time.Since(begin); took > slack {
					t.Errorf("the stop took %v with a grace period of 1s", took)
				}
			}
		})
	}
}

// TestUndoInTime: programs try to delay a daemon that gets no confirmation. It must detach the XDP program within a
// second, and end within slack.
func TestUndoInTime(t *testing.T) {
	for name, hold := range held {
		t.Run(name, func(t *testing.T) {
			a := await(t, hosts(t), netip.Addr{}, within90)
			hold(t, a.socket)
			time.Sleep(20 * time.Millisecond) // the daemon reads what the program sent
			begin := time.Now()
			a.fire <- time.Time{}
			if _, ok := eventually(func() bool {
				return !attached(t, a.net.A)
			}); !ok {
				t.Error("the program is still attached to the interface")
			}
			off := time.Since(begin)
			if err := a.end(); !errors.Is(err, daemon.ErrUnconfirmed) {
				t.Errorf("Run: %v", err)
			}
			if took := time.Since(begin); off > time.Second || took > slack {
				t.Errorf("the program is off the interface after %v, everything is undone after %v",
					off, took)
			}
		})
	}
}

// TestDescriptorsThatLinger: sessions of a user count against its limit while closes of their descriptors block, and no
// longer.
func TestDescriptorsThatLinger(t *testing.T) {
	d, socket := kernel(t, "[limits]\nsessions = 3\n")
	for range 2 {
		r := dialRaw(t, socket)
		control.CloseAll(r.hello())
		r.leave(lingering(t))
	}
	_, ok := eventually(func() bool {
		v := d.Snapshot()
		s := v.Sessions
		return len(s) == 2 && s[0].Ending && s[1].Ending && len(v.PDs) == 0
	})
	if s := d.Snapshot(); !ok || used(d, uint32(os.Getuid()), "sessions") != 2 || len(s.PDs) != 0 {
		t.Errorf("%+v, %+v, %+v; want two sessions that are ending", s.Sessions, s.Users, s.PDs)
	}
	if n := d.Snapshot().Counters["sessions_held_up"]; n != 2 {
		t.Errorf("%d sessions were held up, the counter says", n)
	}
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dev.AllocPD(); err != nil {
		t.Error(err)
	}
	dev.Close()
	for _, l := range lingered {
		l.Close() // this resets the connections, so that the closes return
	}
	if _, ok := eventually(func() bool {
		return empty(d)
	}); !ok {
		t.Errorf("left over: %+v", d.Snapshot())
	}
}

// TestRefusedWithDescriptors: programs that are not admitted leave descriptors in their sockets, whose closes block.
// The daemon must still admit a program once the limit permits it.
func TestRefusedWithDescriptors(t *testing.T) {
	_, socket := kernel(t, "[limits]\nsessions = 1\n")
	good, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		r := dialRaw(t, socket)
		fd := lingering(t)
		// since Linux 6.16 the daemon can refuse descriptors; then the close must not linger
		if _, _, err := r.sock.WriteMsgUnix([]byte("x"), unix.UnixRights(fd), nil); err != nil {
			unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
		}
		unix.Close(fd)
	}
	good.Close()
	if took, ok := eventually(func() bool {
		dev, err := client.Open(socket)
		if err == nil {
			dev.Close()
		}
		return err == nil
	}); !ok {
		t.Errorf("no program is admitted after %v", took)
	}
}
