package daemon_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// TestOwnHost connects two programs of one daemon over each address of their host. The snapshot must say that these
// connections use kernel sockets. A tenant may reach listeners of the daemon in this way, but no other service of the
// host.
func TestOwnHost(t *testing.T) {
	tn := hosts(t, topo.Options{OffloadsB: topo.NoOffloads})
	dir := filepath.Join(t.TempDir(), "tenants")
	d, socket := run(t, tn.A, ethTable+fmt.Sprintf("[[user]]\nname = \"tenants\"\nsessions = 8\n"+
		"[tenants]\ncount = 1\ndirectory = %q\n", dir))
	end := func(path string) *verbstest.End {
		dev, err := client.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		return verbstest.New(t, dev, 1<<20)
	}
	tenant := control.TenantPath(dir, "tenant-0")
	for _, path := range []string{socket, tenant} {
		for _, at := range []netip.Addr{tn.A.Addr4.Addr(), tn.A.Addr6.Addr(),
			netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()} {
			a, b := end(path), end(socket)
			verbstest.Connect(t, a, b, netip.AddrPortFrom(at, 0))
			verbstest.Exercise(t, a, b)
			if q := d.Snapshot().QPs; len(q) == 0 || q[len(q)-1].Transport != "kernel" {
				t.Errorf("at %v: queue pairs %+v", at, q)
			}
			a.QP.Close()
			b.QP.Close()
		}
	}
	var ln net.Listener
	if err := tn.A.Do(func() (err error) {
		ln, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	at := ln.Addr().(*net.TCPAddr).AddrPort()
	e := end(tenant)
	if err := e.Dev.Dial(t.Context(), at, e.QP, verbs.DialConfig{}); !errors.Is(err,
		syscall.ECONNREFUSED) {
		t.Errorf("a tenant connects to another service of the host: %v", err)
	}
	ln.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Millisecond))
	if c, err := ln.Accept(); err == nil {
		t.Errorf("the service has a connection of %v", c.RemoteAddr())
	}
}
