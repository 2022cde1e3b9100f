package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
)

// named runs c in a mount namespace of its own, whose /etc/hosts gives name the addresses addrs.
func (c *command) named(t *testing.T, name string, addrs ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hosts")
	text := ""
	for _, a := range addrs {
		text += fmt.Sprintf("%s %s\n", a, name)
	}
	unshare, err := exec.LookPath("unshare")
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Args = append([]string{"unshare", "--mount", "sh", "-c",
		`mount --bind "$0" /etc/hosts && exec "$@"`, file, c.Path}, c.Args[1:]...)
	c.Path = unshare
}

// A name has several addresses (RFC 6724). cp tries each until one connects, whether the previous address refuses or is
// silent, over kernel TCP and over the daemon. If none connects, the error names each of them.
func TestEachAddressOfNameIsTried(t *testing.T) {
	h := newDaemonHosts(t)
	good := h.B.Addr4.Addr().String()
	srv, _ := serving(t, h.B, "--transport=kernel", t.TempDir(), "--listen="+good+":7300")
	const refuses, silent = "198.51.100.2", "198.51.100.77"
	for on, text := range map[*topo.Host]string{h.A: "198.51.100.1/24", h.B: refuses + "/24"} {
		a, err := netlink.ParseAddr(text)
		var link netlink.Link
		if err == nil {
			link, err = on.Netlink().LinkByName(on.Link.Name)
		}
		if err == nil {
			err = on.Netlink().AddrAdd(link, a)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(h.dir, "file")
	write(t, file, []byte("content"))
	for _, transport := range []string{"--transport=kernel", "--socket=" + h.socket} {
		copied := func(timeout string, addrs ...string) (string, error) {
			c := onHost(t, h.A, "cp", transport, file, "two.example:7300/", "--timeout="+timeout)
			c.named(t, "two.example", addrs...)
			err := c.run(t, h.A)
			return c.stderr.String(), err
		}
		for _, first := range []string{refuses, silent} {
			if said, err := copied("20s", first, good); err != nil {
				t.Errorf("%s, first %s: %v\n%s", transport, first, err, said)
			}
		}
		said, err := copied("4s", refuses, silent)
		if err == nil {
			t.Errorf("%s: a copy succeeds without a server", transport)
		}
		for _, want := range []string{refuses + ":7300: ", "refused", silent + ":7300: "} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: the error lacks %q: %s", transport, want, said)
			}
		}
	}
	srv.end(t)
}
