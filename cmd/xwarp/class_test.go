package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
)

// TestClassOfCommands: --dscp of cp and serve is the class of the packets that each sends, over each transport.
func TestClassOfCommands(t *testing.T) {
	t.Run("xdp", func(t *testing.T) {
		checkClasses(t, hosts(t, topo.NoOffloads, topo.NoOffloads), transportArgs("xdp")...)
	})
	t.Run("daemon", func(t *testing.T) {
		h := newDaemonHosts(t)
		checkClasses(t, h.Net, "--transport=daemon", "--socket="+h.socket)
	})
}

// checkClasses copies a file from A, whose commands have the flags of, to B, whose commands use kernel sockets, and
// from B to A. It looks at the frames at B's interface.
func checkClasses(t *testing.T, n *topo.Net, of ...string) {
	frames := tap(t, n.B)
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, make([]byte, 100_000))
	ends := []struct {
		host  *topo.Host
		flags []string
	}{{n.A, of}, {n.B, transportArgs("kernel")}}
	for i, server := range ends {
		client := ends[1-i]
		srv, at := serving(t, server.host, append(slices.Clip(server.flags),
			t.TempDir(), "--dscp=12", "--listen="+server.host.Addr4.Addr().String())...)
		cp := onHost(t, client.host, append(slices.Clip(client.flags),
			"cp", "--dscp=34", file, at+"/")...)
		if err := cp.run(t, client.host); err != nil {
			t.Fatalf("%v\n%s", err, &cp.stderr)
		}
		srv.end(t)
		got := classesOf(t, frames, netip.MustParseAddrPort(at))
		want := map[netip.Addr]map[uint8]bool{
			client.host.Addr4.Addr(): {34: true}, server.host.Addr4.Addr(): {12: true}}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("server %v: the classes by sender are %v, want %v", at, got, want)
		}
	}
}

// tap returns a packet socket that has the frames of both directions at a host's interface.
func tap(t *testing.T, h *topo.Host) (fd int) {
	t.Helper()
	err := h.Do(func() (err error) {
		all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			int(all))
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: h.Link.Index}))
	})
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// classesOf reads the frames of a packet socket, and returns the DSCPs of the TCP segments over IPv4 to and from at, by
// sender. It ignores RSTs: the one for a closed connection has the class of the interface.
func classesOf(t *testing.T, fd int, at netip.AddrPort) map[netip.Addr]map[uint8]bool {
	t.Helper()
	const ip, headers, rst = 14, 14 + 20 + 20, 4
	seen := map[netip.Addr]map[uint8]bool{}
	b := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err == unix.EAGAIN {
			return seen
		} else if err != nil {
			t.Fatal(err)
		}
		if n < headers || b[ip] != 0x45 || b[ip+9] != unix.IPPROTO_TCP || b[ip+33]&rst != 0 {
			continue
		}
		src, _ := netip.AddrFromSlice(b[ip+12 : ip+16])
		dst, _ := netip.AddrFromSlice(b[ip+16 : ip+20])
		from := netip.AddrPortFrom(src, binary.BigEndian.Uint16(b[ip+20:]))
		to := netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[ip+22:]))
		if from != at && to != at {
			continue
		}
		if seen[src] == nil {
			seen[src] = map[uint8]bool{}
		}
		seen[src][b[ip+1]>>2] = true
	}
}
