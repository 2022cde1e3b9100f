package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestInterfaceNames: the daemon, cp, link, dev, resource and doctor find an interface by its name, by an alternative
// name longer than 15 letters, and by its new name after it was renamed under a running daemon. cp also reaches a
// link-local peer whose zone is any of these names or the number of the interface (RFC 4007, 11.2).
func TestInterfaceNames(t *testing.T) {
	const alt = "uplink-to-the-storage-network"
	h := newNamedHosts(t, alt)
	dir := t.TempDir()
	srv, at := serving(t, h.B, "--transport=xdp", "--interface=eth0", dir, "--listen=:0")
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	peer4 := net.JoinHostPort(h.B.Addr4.Addr().String(), port)
	index, linkLocal := h.link(t)
	check := func(name string) {
		t.Helper()
		for i, c := range []struct{ transport, to string }{
			{"", peer4}, {"--interface=" + alt, peer4}, {"--interface=" + name, peer4},
			{"--transport=daemon", peer4},
			{"", "[" + linkLocal + "%" + name + "]:" + port},
			{"", "[" + linkLocal + "%" + alt + "]:" + port},
			{"", "[" + linkLocal + "%" + strconv.Itoa(index) + "]:" + port},
			{"--transport=kernel", "[" + linkLocal + "%" + alt + "]:" + port},
		} {
			file := name + strconv.Itoa(i)
			write(t, filepath.Join(h.dir, file), []byte(file))
			args := []string{"cp", "--socket=" + h.socket, filepath.Join(h.dir, file),
				c.to + "/"}
			if c.transport != "" {
				args = append(args, c.transport)
			}
			cp := onHost(t, h.A, args...)
			if err := cp.run(t, h.A); err != nil {
				t.Errorf("%q: %v: %s", args, err, &cp.stderr)
			}
			if got, err := os.ReadFile(filepath.Join(dir, file)); string(got) != file {
				t.Errorf("%q: %q, %v", args, got, err)
			}
		}
		for _, shown := range []string{name, alt} {
			for _, args := range [][]string{{"link", "show", shown}, {"dev", "show", shown},
				{"resource", "show", "listener", "dev", shown},
				{"doctor", "--interface", shown, "--json"}} {
				c := onHost(t, h.A, append([]string{"--socket=" + h.socket}, args...)...)
				err := c.run(t, h.A)
				if args[0] != "doctor" && err != nil ||
					strings.Contains(c.stderr.String(), "no such") {
					t.Errorf("%q: %v: %s", args, err, &c.stderr)
				}
			}
		}
		d := snapshotOf(t, h.socket).Devices[0]
		if d.Name != alt || d.Interface != name {
			t.Errorf("device %s on interface %s, want %s", d.Name, d.Interface, name)
		}
		if d.Mapper != "" {
			t.Errorf("port mapper: %s", d.Mapper)
		}
	}
	check("eth0")
	h.ip(t, "link", "set", "eth0", "name", "lan0")
	h.ip(t, "link", "show", alt) // fails unless A's interface still has the name alt
	check("lan0")
	srv.end(t)
}

// link returns the index of A's interface and the link-local address of B's.
func (h *daemonHosts) link(t *testing.T) (index int, peer string) {
	t.Helper()
	if err := h.A.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			index = i.Index
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := h.B.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		all, err := i.Addrs()
		for _, a := range all {
			if ip := a.(*net.IPNet).IP; ip.To4() == nil && ip.IsLinkLocalUnicast() {
				peer = ip.String()
			}
		}
		return err
	}); err != nil || peer == "" {
		t.Fatalf("no link-local address: %v", err)
	}
	return index, peer
}
