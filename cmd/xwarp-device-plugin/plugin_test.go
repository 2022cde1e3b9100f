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
	"slices"
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
	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// regions is the maximum number of memory regions of a tenant.
const regions = 3

// node is a host with directories for the sockets of the daemon and the kubelet.
type node struct {
	t                                   *testing.T
	socket, tenants, kubelet, container string
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "xwarp") // short: the name of a socket has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &node{t, filepath.Join(dir, "xwarp", "control.sock"), filepath.Join(dir, "tenants"),
		filepath.Join(dir, "plugins"), filepath.Join(dir, "root")}
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

// daemon starts an xwarpd on kernel sockets, with sockets for the given number of tenants, each limited to three
// regions.
func (n *node) daemon(tenants int) *daemon.Daemon {
	n.t.Helper()
	file := filepath.Join(n.t.TempDir(), "xwarp.toml")
	text := fmt.Sprintf("[daemon]\nsocket = %q\ngrace = \"1s\"\n"+
		"[tenants]\ncount = %d\ndirectory = %q\n[[user]]\nname = \"tenants\"\nmrs = %d\n"+
		"[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n", n.socket, tenants, n.tenants,
		regions)
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

// plugin runs the plugin until the test ends.
func (n *node) plugin(socket string) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	c := config{daemonSocket: socket, kubelet: n.kubelet, pace: 5 * time.Millisecond,
		replyTimeout: 200 * time.Millisecond, log: slog.New(slog.DiscardHandler)}
	go func() { newPlugin(&c).serveLoop(ctx); close(ended) }()
	n.t.Cleanup(func() { stop(); <-ended })
}

// Unprivileged containers get a socket each and can use it. Restarts of the daemon and of the kubelet are handled.
func TestPlugin(t *testing.T) {
	n := newNode(t)
	n.plugin(n.socket) // starts before the kubelet and the daemon
	k := startKubelet(t, n.kubelet)
	k.plugin()
	k.until(0, v1beta1.Unhealthy)
	d := n.daemon(5)
	k.until(5, v1beta1.Healthy)

	r, err := k.allocate([]string{"tenant-0"}, []string{"tenant-4"})
	if err != nil || len(r.ContainerResponses) != 2 {
		t.Fatalf("%v, %v", r, err)
	}
	for i, c := range r.ContainerResponses {
		want := filepath.Join(n.tenants, []string{"tenant-0", "tenant-4"}[i])
		if len(c.Mounts) != 1 || !c.Mounts[0].ReadOnly || c.Mounts[0].HostPath != want ||
			len(c.Devices) != 0 || c.Envs["XWARP_SOCKET"] !=
			filepath.Join(c.Mounts[0].ContainerPath, "control.sock") {
			t.Errorf("a container gets %v", c)
		}
	}
	if _, err := k.allocate([]string{"tenant-5"}); status.Code(err) != codes.NotFound {
		t.Errorf("a device that is not there: %v", err)
	}
	if _, err := k.allocate([]string{"tenant-1", "tenant-2"}); status.Code(err) !=
		codes.InvalidArgument {
		t.Errorf("two for one container: %v", err)
	}
	t.Run("containers", func(t *testing.T) {
		needs.NetNS(t)
		n.containers(t, r.ContainerResponses)
	})

	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	k.until(5, v1beta1.Unhealthy)
	if _, err := k.allocate([]string{"tenant-0"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("without a daemon: %v", err)
	}
	n.daemon(7)
	k.until(7, v1beta1.Healthy)

	k.stop()
	k = startKubelet(t, n.kubelet)
	k.plugin()
	k.until(7, v1beta1.Healthy)
	if err := os.Remove(filepath.Join(n.kubelet, endpoint)); err != nil { // as a kubelet that restarts between polls
		t.Fatal(err)
	}
	k.plugin()
	k.until(7, v1beta1.Healthy)
}

// containers runs two users in the first container, which together use up its quota. A program in the second container,
// with the user of one of them, must have its own quota and must not see the objects of the first container.
func (n *node) containers(t *testing.T, c []*v1beta1.ContainerAllocateResponse) {
	t.Helper()
	var held []*client.Device
	defer func() {
		for _, d := range held {
			d.Close()
		}
	}()
	n.inContainer(t, c[0], 65534, func(socket string) error {
		d, err := client.Open(socket)
		if err != nil {
			return err
		}
		held = append(held, d)
		// The path exists in this container only because the test's containers share the files of the host.
		other := control.TenantPath(n.tenants, "tenant-4")
		if _, err := client.Open(other); !errors.Is(err, unix.EACCES) {
			return fmt.Errorf("the socket of another tenant: %w", err)
		}
		return full(register(d, regions+1))
	})
	n.inContainer(t, c[0], 0, func(socket string) error {
		if err := os.Remove(socket); !errors.Is(err, unix.EROFS) {
			return fmt.Errorf("root removes the socket: %w", err)
		}
		d, err := client.Open(socket)
		if err != nil {
			return err
		}
		held = append(held, d)
		return full(register(d, 1))
	})
	n.inContainer(t, c[1], 65534, func(socket string) error {
		d, err := client.Open(socket)
		if err != nil {
			return err
		}
		held = append(held, d)
		if err := register(d, regions); err != nil {
			return fmt.Errorf("the second container: %w", err)
		}
		s, err := d.Snapshot(t.Context())
		if err != nil || len(s.Sessions) != 1 || len(s.MRs) != regions ||
			!slices.Contains(s.Users, control.UserState{Tenant: "tenant-4", Resource: "mrs",
				Used: regions, Limit: regions}) {
			return fmt.Errorf("the second container sees %+v, %w", s, err)
		}
		return nil
	})
}

// register registers count memory regions with the daemon.
func register(d *client.Device, count int) error {
	pd, err := d.AllocPD()
	if err != nil {
		return err
	}
	for range count {
		mem, err := d.Alloc(4096)
		if err == nil {
			_, err = pd.RegMR(mem, verbs.LocalWrite)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// full returns an error unless err says that the quota of the tenant is used up.
func full(err error) error {
	if err == nil || !strings.Contains(err.Error(), "tenant-0 has 3 of at most 3 mrs") ||
		!strings.Contains(err.Error(), `named "tenants"`) {
		return fmt.Errorf("more than the quota: %w", err)
	}
	return nil
}

// inContainer calls f on a thread with the mounts of a container, in its own mount namespace, as the user uid. Only
// root keeps its capabilities.
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

// A daemon without tenants has no sockets for containers.
func TestNoTenants(t *testing.T) {
	n := newNode(t)
	n.daemon(0)
	n.plugin(n.socket)
	refuses(t, n, "tenants.count")
}

// A daemon that accepts connections but does not respond is unhealthy.
func TestSilentDaemon(t *testing.T) {
	n := newNode(t)
	ln, err := net.Listen("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	n.plugin(n.socket)
	refuses(t, n, "does not respond")
}

// refuses waits until Allocate fails with an error that contains why, and checks that no device was listed as healthy.
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
	for _, args := range [][]string{{"now"}, {"--socket", "control.sock"}, {"--wrong"}} {
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
