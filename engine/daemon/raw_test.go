package daemon_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon"
	"xwarp/engine/daemon/control"
)

// kernel starts a daemon with one device on kernel sockets, which is enough for tests of programs.
func kernel(t testing.TB, text string) (*daemon.Daemon, string) {
	t.Helper()
	return kernelKeys(t, "", text)
}

// kernelKeys is kernel with additional keys of [daemon].
func kernelKeys(t testing.TB, keys, text string) (*daemon.Daemon, string) {
	t.Helper()
	cfg, socket := load(t, keys+"[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n"+text)
	d, err := daemon.New(cfg, daemon.Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, socket
}

// raw is a program that writes the messages of the control protocol itself, also invalid ones.
type raw struct {
	t    testing.TB
	c    *control.Socket
	sock *net.UnixConn
	id   uint64
}

func dialRaw(t testing.TB, socket string) *raw {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &raw{t: t, c: control.NewSocket(c, control.MaxReply), sock: c}
}

func (r *raw) send(op control.Op, args string, files ...int) {
	r.t.Helper()
	r.id++
	body := control.Marshal(control.Request{ID: r.id, Op: op, Args: json.RawMessage(args)})
	if err := r.c.Send(control.KindRequest, body, files...); err != nil {
		r.t.Fatal(err)
	}
}

// call returns the reply to a request.
func (r *raw) call(op control.Op, args string, files ...int) (control.Reply, []int) {
	r.t.Helper()
	r.send(op, args, files...)
	for {
		k, body, out, err := r.c.Receive()
		if err != nil {
			r.t.Fatalf("%s: %v", op, err)
		}
		if k != control.KindReply {
			control.CloseAll(out)
			continue
		}
		reply, err := control.ParseReply(body)
		if err != nil {
			r.t.Fatal(err)
		}
		return reply, out
	}
}

// must is call for requests that must succeed. It decodes the result into result, unless that is nil.
func (r *raw) must(result any, op control.Op, args string, files ...int) []int {
	r.t.Helper()
	reply, out := r.call(op, args, files...)
	if reply.Error != nil {
		r.t.Fatalf("%s %s: %v", op, args, reply.Error)
	}
	if result != nil {
		if err := json.Unmarshal(reply.Result, result); err != nil {
			r.t.Fatal(err)
		}
	}
	return out
}

func (r *raw) hello() []int {
	r.t.Helper()
	return r.must(nil, control.OpHello,
		string(control.Marshal(control.HelloArgs{Version: control.Version})))
}

// dropped waits for the daemon to close the session.
func (r *raw) dropped() {
	r.t.Helper()
	r.sock.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		_, _, files, err := r.c.Receive()
		control.CloseAll(files)
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			r.t.Fatal("the daemon keeps a program that violates the protocol")
		}
		return
	}
}

// mapping maps memory that the daemon shares, and touches all its pages.
func mapping(t testing.TB, fd int) []byte {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	if err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE); err != nil {
		t.Fatal(err)
	}
	return mem
}

func snapshotOf(t testing.TB, r *control.Reply) (s control.Snapshot) {
	t.Helper()
	if err := json.Unmarshal(r.Result, &s); err != nil {
		t.Fatal(err)
	}
	return s
}
