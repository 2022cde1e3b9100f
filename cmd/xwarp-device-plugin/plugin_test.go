package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"xwarp/bpf/needs"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	daemonconfig "xwarp/engine/daemon/config"
)

// node is a host with directories for the daemon's sockets and the kubelet's.
type node struct {
	t                                 *testing.T
	socket, admin, kubelet, container string
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "xwarp") // short: the name of a socket has 107 octets at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &node{t, filepath.Join(dir, "xwarp", "control.sock"), filepath.Join(dir, "xwarpd",
		"admin.sock"), filepath.Join(dir, "plugins"), filepath.Join(dir, "root")}
	for _, d := range []string{dir, filepath.Dir(n.socket), n.kubelet, n.container} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// daemon starts an xwarpd on the kernel's sockets that has places for so many programs.
func (n *node) daemon(places int) *daemon.Daemon {
	n.t.Helper()
	file := filepath.Join(n.t.TempDir(), "xwarp.toml")
	text := fmt.Sprintf("[daemon]\nsocket = %q\nadmin_socket = %q\nsocket_mode = "+
		"\"0666\"\nclients = %d\ngrace = \"1s\"\n"+
		"[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n", n.socket, n.admin, places)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	cfg, err := daemonconfig.Load(daemonconfig.Source{Path: file})
	if err != nil {
		n.t.Fatal(err)
	}
	d, err := daemon.New(cfg, daemon.Options{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { d.Close() })
	return d
}

// plugin runs the plugin until the test is over.
func (n *node) plugin(socket string) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	c := config{socket: socket, kubelet: n.kubelet, pace: 5 * time.Millisecond,
		replyTimeout: 200 * time.Millisecond, log: slog.New(slog.DiscardHandler)}
	go func() { newPlugin(&c).run(ctx); close(ended) }()
	n.t.Cleanup(func() { stop(); <-ended })
}

// A container without privilege gets the socket and can use it; the daemon's and the kubelet's new starts are followed.
func TestPlugin(t *testing.T) {
	n := newNode(t)
	n.plugin(n.socket) // before anybody else
	k := startKubelet(t, n.kubelet)
	k.plugin()
	k.until(0, v1beta1.Unhealthy)
	d := n.daemon(5)
	k.until(5, v1beta1.Healthy)

	r, err := k.allocate([]string{"place-0"}, []string{"place-3", "place-4"})
	if err != nil || len(r.ContainerResponses) != 2 {
		t.Fatalf("%v, %v", r, err)
	}
	for _, c := range r.ContainerResponses {
		if len(c.Mounts) != 1 || !c.Mounts[0].ReadOnly ||
			c.Mounts[0].HostPath != filepath.Dir(n.socket) || len(c.Devices) != 0 ||
			c.Envs["XWARP_SOCKET"] != n.socket {
			t.Errorf("a container gets %v", c)
		}
		if strings.Contains(c.String(), filepath.Dir(n.admin)+"\"") {
			t.Errorf("the operator's socket is among what a container gets: %v", c)
		}
	}
	if _, err := k.allocate([]string{"place-5"}); status.Code(err) != codes.NotFound {
		t.Errorf("a device that is not there: %v", err)
	}
	t.Run("container", func(t *testing.T) {
		needs.NetNS(t)
		n.inContainer(t, r.ContainerResponses[0], 65534, use)
		n.inContainer(t, r.ContainerResponses[0], 0, func(socket string) error {
			if err := os.Remove(socket); !errors.Is(err, unix.EROFS) {
				return fmt.Errorf("root removes the socket: %w", err)
			}
			return use(socket)
		})
	})

	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	k.until(5, v1beta1.Unhealthy)
	if _, err := k.allocate([]string{"place-0"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("without a daemon: %v", err)
	}
	n.daemon(7)
	k.until(7, v1beta1.Healthy)

	k.stop()
	k = startKubelet(t, n.kubelet)
	k.plugin()
	k.until(7, v1beta1.Healthy)
	if err := os.Remove(filepath.Join(n.kubelet, endpoint)); err != nil { // what a kubelet does that started in between
		t.Fatal(err)
	}
	k.plugin()
	k.until(7, v1beta1.Healthy)
}

// use is a program: it takes something of the daemon.
func use(socket string) error {
	d, err := client.Open(socket)
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = d.AllocPD()
	return err
}

// inContainer calls f on a thread that has the mounts of a container in a mount namespace of its own, is a
// user, and has no capability unless it is root.
func (n *node) inContainer(t *testing.T, c *v1beta1.ContainerAllocateResponse, uid int,
	f func(socket string) error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			for _, m := range c.Mounts {
				if err := unix.Mount(m.HostPath, n.container, "", unix.MS_BIND, ""); err != nil {
					return err
				}
				if err := unix.Mount("", n.container, "",
					unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
					return err
				}
			}
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid),
				uintptr(uid)); e != 0 {
				return e
			}
			return f(filepath.Join(n.container, filepath.Base(c.Envs["XWARP_SOCKET"])))
		}()
	}()
	if err := <-done; err != nil {
		t.Errorf("user %d in a container: %v", uid, err)
	}
}

// The operator's socket is not handed out, whether it is named or lies in the directory that containers get.
func TestOperatorsSocketStays(t *testing.T) {
	t.Run("named", func(t *testing.T) {
		n := newNode(t)
		n.daemon(5)
		n.plugin(n.admin)
		refuses(t, n, "operator")
	})
	t.Run("beside", func(t *testing.T) {
		n := newNode(t)
		n.admin = n.socket + ".admin"
		n.daemon(5)
		n.plugin(n.socket)
		refuses(t, n, "control.sock.admin")
	})
}

// A daemon that takes connections and says nothing is none.
func TestSilentDaemon(t *testing.T) {
	n := newNode(t)
	ln, err := net.Listen("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	n.plugin(n.socket)
	refuses(t, n, "does not answer")
}

// refuses waits until the plugin says why it hands out nothing.
func refuses(t *testing.T, n *node, why string) {
	t.Helper()
	k := startKubelet(t, n.kubelet)
	k.plugin()
	for end := time.Now().Add(long); ; time.Sleep(5 * time.Millisecond) {
		_, err := k.allocate(nil)
		if status.Code(err) != codes.FailedPrecondition {
			t.Fatalf("allocated: %v", err)
		}
		if strings.Contains(err.Error(), why) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v, want %q", err, why)
		}
	}
	for len(k.lists) > 0 {
		for _, d := range <-k.lists {
			if d.Health == v1beta1.Healthy {
				t.Errorf("%v", d)
			}
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, args := range [][]string{{"now"}, {"--socket", "control.sock"},
		{"--socket", "/control.sock"}, {"--devices", "-1"}, {"--wrong"}} {
		var out bytes.Buffer
		if code := run(t.Context(), args, io.Discard, &out); code != exitUsage || out.Len() == 0 {
			t.Errorf("%q: status %d, %s", args, code, &out)
		}
	}
	var out bytes.Buffer
	if code := run(t.Context(), []string{"--version"}, &out, io.Discard); code != exitOK ||
		!strings.HasPrefix(out.String(), "xwarp-device-plugin ") {
		t.Errorf("--version: status %d, %s", code, &out)
	}
}
