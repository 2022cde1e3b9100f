package daemon_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// fillRole opens sessions and holds them. Its arguments: the socket, the number of sessions.
func fillRole(args []string) error {
	n, _ := strconv.Atoi(args[1])
	var list []*client.Device
	for range n {
		d, err := client.Open(args[0])
		if err != nil {
			return err
		}
		list = append(list, d)
	}
	fmt.Println("full")
	time.Sleep(time.Minute)
	return errors.Join(list[0].Close())
}

// TestPlaces: users take all sessions that daemon.clients allows on the control socket. Root still gets
// budget.RootSessions there, and the operator's socket has its own sessions.
func TestPlaces(t *testing.T) {
	d, socket := kernelKeys(t, "clients = 3\n", "")
	exe := publicExe(t)
	for i, n := range []string{"2", "1"} { // each user may have half of the remaining sessions, rounded up
		if got := start(t, exe, nobody-uint32(i), "fill", socket, n).line(); got != "full" {
			t.Fatal(got)
		}
	}
	for range budget.RootSessions {
		dev, err := client.Open(socket)
		if err != nil {
			t.Fatalf("root: %v", err)
		}
		defer dev.Close()
	}
	if _, err := client.Open(socket); err == nil ||
		!strings.Contains(err.Error(), "daemon.clients") {
		t.Errorf("a program beyond root's places: %v", err)
	}
	for range budget.OperatorSessions {
		dev, err := client.OpenConfig(client.Config{Path: socket, Operator: true})
		if err != nil {
			t.Fatalf("operator: %v", err)
		}
		defer dev.Close()
	}
	if s := d.Snapshot(); len(s.Sessions) != 3+budget.RootSessions+budget.OperatorSessions {
		t.Errorf("%d sessions", len(s.Sessions))
	}
}

// TestOperator: the operator's socket permits each of the actions below, and other users cannot use it, even if its
// file mode lets them connect. On the other socket root may do none of them, because it may be root of a container.
func TestOperator(t *testing.T) {
	_, socket := kernel(t, fmt.Sprintf("[limits]\npds = 1\n[[export]]\nname = \"x\"\nlisten = "+
		"%q\nsize = \"4KiB\"\n", listenAddr(t)))
	path := control.OperatorPath(socket)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", st.Mode(), err)
	}
	root, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	operator, err := client.OpenConfig(client.Config{Path: socket, Operator: true})
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	exe := publicExe(t)
	if s := start(t, exe, nobody, "fill", socket, "1").line(); s != "full" {
		t.Fatal(s)
	}
	privileged := listenPrivileged(t, operator)
	for _, tc := range []struct {
		what string
		do   func(*client.Device) error
	}{
		{"see others", func(d *client.Device) error {
			if s, err := d.Snapshot(t.Context()); err != nil || len(s.Sessions) != 3 {
				return fmt.Errorf("%d sessions, %v, only the operator sees all", len(s.Sessions),
					err)
			}
			return nil
		}},
		{"confirm", func(d *client.Device) error { _, err := d.Confirm(t.Context()); return err }},
		{"capture", func(d *client.Device) error {
			_, err := d.Capture(t.Context(), control.CaptureArgs{})
			if err != nil && strings.Contains(err.Error(), "tcpdump") { // this device has no frames
				err = nil
			}
			return err
		}},
		{"flush", func(d *client.Device) error {
			err := d.FlushExport(t.Context(), "x")
			if err != nil && strings.Contains(err.Error(), "not a range of a file region") { // not a file
				err = nil
			}
			return err
		}},
		{"listen", func(d *client.Device) error {
			l, err := d.Listen(privileged, verbs.ListenConfig{})
			if err == nil {
				l.Close()
			}
			return err
		}},
		{"have more domains than limits allow", func(d *client.Device) error {
			_, err1 := d.AllocPD()
			_, err2 := d.AllocPD()
			return errors.Join(err1, err2)
		}},
	} {
		if err := tc.do(operator); err != nil {
			t.Errorf("the operator may not %s: %v", tc.what, err)
		}
		err := tc.do(root)
		if err == nil {
			t.Errorf("root at the socket for all may %s", tc.what)
		} else if text := err.Error(); strings.Contains(text, "only the operator may") &&
			!strings.Contains(text, path) {
			t.Errorf("%s: %v, want the path of the operator's socket", tc.what, err)
		}
	}
	if s := start(t, exe, nobody, "fill", path, "1").line(); !strings.Contains(s,
		"permission denied") {
		t.Errorf("a user at the operator's socket: %q", s)
	}
	if err := os.Chmod(path, 0o666); err != nil { // the daemon must also check the user itself
		t.Fatal(err)
	}
	if s := start(t, exe, nobody, "fill", path, "1").line(); !strings.Contains(s,
		"may not use the operator socket") {
		t.Errorf("a user at the operator's socket that is open: %q", s)
	}
}

// listenPrivileged returns a free address with a port below 1024.
func listenPrivileged(t *testing.T, d *client.Device) netip.AddrPort {
	t.Helper()
	for port := uint16(700); port < 1024; port++ {
		at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
		if l, err := d.Listen(at, verbs.ListenConfig{Backlog: 1}); err == nil {
			l.Close()
			return at
		}
	}
	t.Fatal("no port below 1024 is free")
	return netip.AddrPort{}
}

// TestOperatorPath: the default operator socket is not in the directory of the default control socket. So a container
// that mounts the latter directory cannot reach it.
func TestOperatorPath(t *testing.T) {
	if filepath.Dir(control.OperatorPath(control.DefaultPath)) == filepath.Dir(
		control.DefaultPath) {
		t.Error("both sockets are in one directory")
	}
}
