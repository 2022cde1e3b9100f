package daemon_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/config"
	"xwarp/engine/testkit/verbstest"
	xsk "xwarp/ring"
)

// underLoad runs disturb while a program of the daemon on host A writes to host B and reads back. All data must arrive.
func underLoad(t *testing.T, disturb func(tn *topo.Net, nic netlink.Link) error) {
	t.Helper()
	tn := hosts(t)
	_, socket := run(t, tn.A, ethTable)
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	responder(t, embedded(t, tn.B.Do), at, 1)
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	const half = 512 << 10
	p := verbstest.New(t, dev, 2*half)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	peer, err := p.Dial(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	nic, err := tn.A.Netlink().LinkByName(tn.A.Link.Name)
	if err != nil {
		t.Fatal(err)
	}
	disturbed := make(chan error, 1)
	go func() { disturbed <- disturb(tn, nic) }()
	for i, after := 0, 0; after < 3; i++ { // two more rounds after the last disturbance
		if err := p.WriteAndRead(ctx, peer); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		select {
		case err := <-disturbed:
			if err != nil {
				t.Fatal(err)
			}
			disturbed, after = nil, 1
		default:
			if disturbed == nil {
				after++
			}
		}
	}
}

// pause lets some traffic pass between two disturbances.
const pause = 50 * time.Millisecond

func TestLinkDownUnderLoad(t *testing.T) {
	underLoad(t, func(tn *topo.Net, nic netlink.Link) error {
		for range 3 {
			time.Sleep(pause)
			if err := tn.A.Netlink().LinkSetDown(nic); err != nil {
				return err
			}
			time.Sleep(pause)
			if err := tn.A.Netlink().LinkSetUp(nic); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestMTUChangeUnderLoad: the MTU shrinks and grows while frames of the old size are in flight.
func TestMTUChangeUnderLoad(t *testing.T) {
	underLoad(t, func(tn *topo.Net, nic netlink.Link) error {
		for _, mtu := range []int{1400, 1500} {
			time.Sleep(pause)
			if err := tn.A.Netlink().LinkSetMTU(nic, mtu); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestAddressRemovedUnderLoad: the address is removed and restored. The connection must survive.
func TestAddressRemovedUnderLoad(t *testing.T) {
	underLoad(t, func(tn *topo.Net, nic netlink.Link) error {
		a := &netlink.Addr{IPNet: &net.IPNet{IP: tn.A.Addr4.Addr().AsSlice(),
			Mask: net.CIDRMask(tn.A.Addr4.Bits(), 32)}}
		time.Sleep(pause)
		if err := tn.A.Netlink().AddrDel(nic, a); err != nil {
			return err
		}
		time.Sleep(4 * pause)
		return tn.A.Netlink().AddrAdd(nic, a)
	})
}

// TestNeighbourMovesUnderLoad: the neighbour entry has another Ethernet address for a while.
func TestNeighbourMovesUnderLoad(t *testing.T) {
	underLoad(t, func(tn *topo.Net, nic netlink.Link) error {
		for _, mac := range []net.HardwareAddr{{2, 0, 0, 0, 0xbe, 0xef}, tn.B.Link.MAC} {
			time.Sleep(pause)
			if err := tn.A.Netlink().NeighSet(&netlink.Neigh{
				LinkIndex: nic.Attrs().Index, IP: tn.B.Addr4.Addr().AsSlice(), HardwareAddr: mac,
				State: netlink.NUD_REACHABLE,
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// startFails returns the error of a daemon that must not start on the host.
func startFails(t *testing.T, h *topo.Host, text string) string {
	t.Helper()
	cfg, _ := load(t, text)
	var d *daemon.Daemon
	err := h.Do(func() (err error) {
		d, err = daemon.New(cfg, daemon.Options{Log: slog.New(slog.DiscardHandler)})
		return err
	})
	if err == nil {
		d.Close()
		t.Fatal("the daemon starts")
	}
	return err.Error()
}

func says(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%q lacks %q", got, w)
		}
	}
}

// TestForeignProgram: the error names a foreign XDP program and the next step. The program stays attached.
func TestForeignProgram(t *testing.T) {
	tn := hosts(t)
	if err := tn.A.Do(func() error {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "somebody", Type: ebpf.XDP, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
		})
		if err != nil {
			return err
		}
		t.Cleanup(func() { prog.Close() })
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: tn.A.Link.Index})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	says(t, startFails(t, tn.A, ethTable), "interface eth0", `"somebody"`, "bpftool net show dev eth0")
	if !attached(t, tn.A) {
		t.Error("the foreign program was detached")
	}
}

// TestBusyQueue: the error names the interface and the queue, and says that another AF_XDP socket uses it.
func TestBusyQueue(t *testing.T) {
	tn := hosts(t)
	if err := tn.A.Do(func() error {
		s, err := xsk.Open(xsk.Config{Ifindex: tn.A.Link.Index})
		if err == nil {
			t.Cleanup(func() { s.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	says(t, startFails(t, tn.A, ethTable), "interface eth0", "queue 0", "another AF_XDP socket")
}

// TestAnotherDaemon: the error names the interface, and says that another xwarp process uses it.
func TestAnotherDaemon(t *testing.T) {
	tn := hosts(t)
	embedded(t, tn.A.Do)
	says(t, startFails(t, tn.A, ethTable), "interface eth0", "another xwarp process uses")
}

// TestMissingCapabilities: the error of a daemon without capabilities says how to start it.
func TestMissingCapabilities(t *testing.T) {
	tn := hosts(t)
	path, _ := writeConfig(t, ethTable)
	var got string
	if err := tn.A.Do(func() error {
		c := start(t, publicExe(t), nobody, "here", path)
		got = c.line()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	says(t, got, "interface eth0", "operation not permitted", "systemctl start xwarpd")
}

// hereRole starts a daemon in the network namespace of its process, and closes it. Its argument: the configuration.
func hereRole(args []string) error {
	cfg, err := config.Load(config.Source{Path: args[0]})
	if err != nil {
		return err
	}
	d, err := daemon.New(cfg, daemon.Options{})
	if err != nil {
		return err
	}
	return d.Close()
}

// TestWrongRights: the error of a program that may not use the socket names the key socket_group.
func TestWrongRights(t *testing.T) {
	_, socket := kernel(t, "")
	if err := os.Chmod(socket, 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, publicExe(t), nobody, "transfer", socket, "127.0.0.1:1")
	says(t, c.line(), "permission denied", "socket_group")
}
