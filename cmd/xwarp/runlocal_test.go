package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Unprivileged users.
const (
	someUser  = 65534
	otherUser = 65533
)

// local returns the command `xwarp run --local` with args, which runs as an unprivileged user.
func local(t *testing.T, xwarp string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(xwarp, append([]string{"run", "--local"}, args...)...)
	c.Env = append(os.Environ(), asCommand+"=1", "XDG_RUNTIME_DIR=")
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: someUser, Gid: someUser}
	}
	return c
}

// forAll is like installed, but makes the directories above the copy accessible to all users. It returns the path of
// xwarp.
func forAll(t *testing.T) (xwarp string) {
	t.Helper()
	xwarp = installed(t, true)
	for dir := filepath.Dir(xwarp); dir != filepath.Clean(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return xwarp
}

// exchangeScript starts a server, and then a client again and again until it succeeds. The exit status is that of the
// server.
const exchangeScript = `set -e; timeout 60 %s & i=0
until timeout 60 %s; do i=$((i + 1)); [ $i -lt 100 ]; sleep 0.1; done; wait $!`

// TestRunLocal runs unmodified programs over a private daemon. The cases "self" and "two" are one program: a queue pair
// connected to itself, and two queue pairs of one process, as in the tests of rust-ibverbs.
func TestRunLocal(t *testing.T) {
	xwarp := forAll(t)
	roce := filepath.Join(filepath.Dir(xwarp), "roce")
	gcc := exec.Command("gcc", "-o", roce, "../libxwarp-verbs/testdata/roce.c", "-libverbs",
		"-lrdmacm")
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct{ name, style, server, client, want string }{
		{"ibv_devinfo", "iwarp", "ibv_devinfo -l", "ibv_devinfo", "iWARP (1)"},
		{"ibv_devinfo roce", "roce", "ibv_devices", "ibv_devinfo -v", "::ffff:127.0.0.1, RoCE v2"},
		{"rping", "iwarp", "rping -s -v -C 5 -p 27174", "rping -c -C 5 -p 27174 -a 127.0.0.1",
			"server ping data: rdma-ping-4"},
		{"rping IPv6", "iwarp", "rping -s -v -C 5 -p 27176 -a ::1",
			"rping -c -C 5 -p 27176 -a ::1", "server ping data: rdma-ping-4"},
		{"ibv_rc_pingpong", "roce", "ibv_rc_pingpong -g 0 -p 27178 -n 100 -c",
			"ibv_rc_pingpong -g 0 -p 27178 -n 100 -c localhost", "100 iters in"},
		{"ib_write_bw", "roce", "ib_write_bw -F -p 27180 -n 50",
			"ib_write_bw -F -p 27180 -n 50 localhost", "65536      50"},
		{"self", "roce", roce + " self", "true", "all is well"},
		{"two", "roce", roce + " two", "true", "all is well"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // the programs of each case meet at a TCP port of their own
			p := local(t, xwarp, "--style", c.style, "--", "sh", "-c",
				fmt.Sprintf(exchangeScript, c.server, c.client))
			out, err := p.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, no %q in\n%s", err, c.want, out)
			}
		})
	}
}

// TestRunLocalDirectory sets XDG_RUNTIME_DIR and TMPDIR to a directory of another user, who could replace entries. The
// control socket must be below /tmp instead, and nothing may stay in that directory.
func TestRunLocalDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("root is needed, for a directory of another user")
	}
	foreign, err := os.MkdirTemp("/tmp", "foreign") // short, as a control socket has to be
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(foreign)
	if err := errors.Join(os.Chown(foreign, otherUser, otherUser),
		os.Chmod(foreign, 0o777)); err != nil {
		t.Fatal(err)
	}
	c := local(t, forAll(t), "--", "sh", "-c", "echo $XWARP_SOCKET")
	c.Env = append(c.Env, "XDG_RUNTIME_DIR="+foreign, "TMPDIR="+foreign)
	out, err := c.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "/tmp/xwarp-local-") {
		t.Errorf("%v, control socket %s", err, out)
	}
	if left, err := os.ReadDir(foreign); err != nil || len(left) > 0 {
		t.Errorf("%v stays, %v", left, err)
	}
}

// TestRunLocalEnds kills a program: its daemon must exit and leave no files. Before that, no other user can reach the
// daemon, which only root can test.
func TestRunLocalEnds(t *testing.T) {
	xwarp := forAll(t)
	c := local(t, xwarp, "--", "sh", "-c", "echo $XWARP_SOCKET; exec sleep 100")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	socket := strings.TrimSpace(line)
	if st, err := os.Stat(filepath.Dir(socket)); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if os.Getuid() == 0 {
		other := exec.Command("ibv_devices")
		other.Env = append(os.Environ(), "XWARP_SOCKET="+socket,
			"LD_PRELOAD="+filepath.Join(filepath.Dir(xwarp), verbsLibrary))
		other.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: otherUser, Gid: otherUser}}
		if out, _ := other.CombinedOutput(); !strings.Contains(string(out), "Permission denied") {
			t.Errorf("another user: %s", out)
		}
	}
	daemon := serverOf(t, socket)
	c.Process.Kill()
	c.Wait()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, err := os.Stat(filepath.Dir(socket))
		gone := errors.Is(unix.Kill(daemon, 0), unix.ESRCH) || isZombie(daemon)
		if errors.Is(err, fs.ErrNotExist) && gone {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("process %d is gone: %v; its directory: %v", daemon, gone, err)
		}
	}
}

// isZombie reports whether a process has exited but was not reaped, as process 1 of a container may not do.
func isZombie(pid int) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Contains(string(b), ") Z ")
}

// serverOf returns the process that listens on a socket.
func serverOf(t *testing.T, socket string) (pid int) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			t.Fatal(err)
		}
		pid = int(cred.Pid)
	})
	return pid
}

// TestRunLocalWithoutLoopback runs in a network namespace whose loopback interface is down: the error must name the
// command that sets it up.
func TestRunLocalWithoutLoopback(t *testing.T) {
	c := local(t, forAll(t), "--", "true")
	c.Args = append([]string{"unshare", "--map-root-user", "--net"}, c.Args...)
	c.Path, c.Err = exec.LookPath("unshare")
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "ip link set lo up") {
		t.Errorf("%v:\n%s", err, out)
	}
}
