package doctor

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/host/ethtool"
)

// world creates two hosts and calls f in the network namespace of the first.
func world(t *testing.T, o topo.Options, f func(w *topo.Net) error) {
	t.Helper()
	needs.XSK(t)
	needs.XDP(t)
	needs.NetNS(t)
	w, err := topo.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := w.A.Do(func() error { return f(w) }); err != nil {
		t.Fatal(err)
	}
}

func find(t *testing.T, lines []Line, name string) Line {
	t.Helper()
	i := slices.IndexFunc(lines, func(l Line) bool { return l.Check == name })
	if i < 0 {
		t.Fatalf("no line for %s", name)
	}
	return lines[i]
}

// TestGreenOnVeth: a veth passes all checks if its peer computes checksums.
func TestGreenOnVeth(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		world(t, topo.Options{MTU: mtu, OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads},
			func(*topo.Net) error {
				lines, err := Look(Options{Interface: "eth0", Ports: []uint16{7471}})
				if err != nil {
					return err
				}
				if len(lines) != len(checks) {
					t.Errorf("%d lines for %d checks", len(lines), len(checks))
				}
				for _, l := range lines {
					if l.Status != OK {
						t.Errorf("MTU %d: %s is %s: %s", mtu, l.Check, l.Status, l.What)
					}
					if l.Why == "" || l.What == "" {
						t.Errorf("%s does not say what or why", l.Check)
					}
				}
				if l := find(t, lines, "xdp-native"); !strings.Contains(l.What, "eth0") {
					t.Errorf("native mode was not tried on the interface: %s", l.What)
				}
				return nil
			})
	}
}

// Fix reserves a port of the ephemeral range; Undo restores the setting.
func TestFixAndUndo(t *testing.T) {
	state := filepath.Join(t.TempDir(), "xwarp-doctor", "doctor.json")
	world(t, topo.Options{}, func(w *topo.Net) error {
		o := Options{Interface: "eth0", Only: "ports", Ports: []uint16{40000}}
		lines, err := Look(o)
		if err != nil {
			return err
		}
		before := find(t, lines, "ports")
		if before.Status != Warn || !before.Fix {
			t.Errorf("ephemeral port: %+v", before)
		}
		reserved := func() bool {
			t.Helper()
			b, err := os.ReadFile(localReserved)
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(string(b)) == "40000"
		}
		if reserved() {
			t.Fatal("Look changed something")
		}
		if out, err := exec.Command("sh", "-c", before.Remedy).CombinedOutput(); err != nil ||
			!reserved() {
			t.Errorf("%s: %v\n%s", before.Remedy, err, out)
		}
		if err := writeSetting(localReserved, ""); err != nil {
			return err
		}
		if lines, err = Fix(o, state); err != nil {
			return err
		}
		if l := find(t, lines, "ports"); l.Status != OK || !l.Fixed || !reserved() {
			t.Errorf("after Fix: %+v", l)
		}
		if lines, err = Fix(o, state); err != nil || find(t, lines, "ports").Fixed {
			t.Errorf("Fix fixed again what was fixed: %v", err)
		}
		undone, err := Undo(state)
		if err != nil || len(undone) != 1 || undone[0].Check != "ports" ||
			undone[0].Error != "" || reserved() {
			t.Errorf("Undo: %+v, %v", undone, err)
		}
		if _, err := os.Stat(filepath.Dir(state)); !os.IsNotExist(err) {
			t.Errorf("the directory is still there: %v", err)
		}
		if undone, err = Undo(state); err != nil || len(undone) != 0 {
			t.Errorf("second Undo: %+v, %v", undone, err)
		}
		return nil
	})
}

// A feature that merges segments on a port of a bridge is found from the bridge, but not from the port itself.
func TestMerging(t *testing.T) {
	state := filepath.Join(t.TempDir(), "doctor.json")
	world(t, topo.Options{}, func(w *topo.Net) error {
		nl := w.A.Netlink()
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		port, err := nl.LinkByName("eth0")
		err = errors.Join(err, nl.LinkAdd(bridge), nl.LinkSetMaster(port, bridge),
			ethtool.SetFeature("eth0", "rx-gro", true))
		if err != nil {
			return err
		}
		gro := func() bool {
			t.Helper()
			f, err := ethtool.Features("eth0")
			if err != nil {
				t.Fatal(err)
			}
			return f["rx-gro"].On
		}
		lines, err := Look(Options{Interface: "eth0", Only: "merging"})
		if err != nil || find(t, lines, "merging").Status != OK {
			t.Errorf("eth0 itself: %+v, %v", lines, err)
		}
		o := Options{Interface: "br0", Only: "merging"}
		lines, err = Look(o)
		if err != nil {
			return err
		}
		if l := find(t, lines, "merging"); l.Status != Warn || !l.Fix ||
			l.Remedy != "ethtool -K eth0 rx-gro off" || !gro() {
			t.Errorf("the bridge: %+v", l)
		}
		if lines, err = Fix(o, state); err != nil {
			return err
		}
		if l := find(t, lines, "merging"); !l.Fixed || gro() {
			t.Errorf("after Fix: %+v", l)
		}
		if undone, err := Undo(state); err != nil || len(undone) != 1 || undone[0].Error != "" ||
			!gro() {
			t.Errorf("Undo: %+v, %v", undone, err)
		}
		return nil
	})
}

// TestChannels: queues that are not served get a warning, and Fix reduces the number of queues.
func TestChannels(t *testing.T) {
	state := filepath.Join(t.TempDir(), "doctor.json")
	world(t, topo.Options{Queues: 2, OffloadsB: topo.NoOffloads}, func(*topo.Net) error {
		look := func(queues ...int) Line {
			t.Helper()
			lines, err := Look(Options{Interface: "eth0", Queues: queues, Only: "channels"})
			if err != nil {
				t.Fatal(err)
			}
			return find(t, lines, "channels")
		}
		if l := look(0); l.Status != Warn ||
			!strings.Contains(l.What, "only 1 of 2 receive queues served") {
			t.Errorf("one of two: %+v", l)
		}
		if l := look(); l.Status != OK || !strings.Contains(l.What, "2 of 2") {
			t.Errorf("all: %+v", l)
		}
		if l := look(0, 1); l.Status != OK {
			t.Errorf("two of two: %+v", l)
		}
		if l := look(0, 5); l.Status != Fail {
			t.Errorf("queue 5 of two: %+v", l)
		}
		if _, err := Fix(Options{Interface: "eth0", Queues: []int{0}, Only: "channels"},
			state); err != nil {
			return err
		}
		if l := look(0); l.Status != OK {
			t.Errorf("after Fix: %+v", l)
		}
		if _, err := Undo(state); err != nil {
			return err
		}
		if l := look(0); l.Status != Warn {
			t.Errorf("after Undo: %+v", l)
		}
		return nil
	})
}

// TestForeignProgram: an XDP program that is not xwarp's is named and stays attached.
func TestForeignProgram(t *testing.T) {
	world(t, topo.Options{OffloadsB: topo.NoOffloads}, func(w *topo.Net) error {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "somebody", Type: ebpf.XDP, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
		})
		if err != nil {
			return err
		}
		defer prog.Close()
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: w.A.Link.Index})
		if err != nil {
			return err
		}
		defer l.Close()
		lines, err := Look(Options{Interface: "eth0"})
		if err != nil {
			return err
		}
		f := find(t, lines, "foreign-program")
		if f.Status != Fail || !strings.Contains(f.What, `"somebody"`) || f.Fix ||
			!strings.HasSuffix(f.Remedy, "ip link set dev eth0 xdpdrv off") {
			t.Errorf("%+v", f)
		}
		if n := find(t, lines, "xdp-native"); n.Status != OK ||
			!strings.Contains(n.What, "a temporary veth pair") {
			t.Errorf("the trial went to the interface: %+v", n)
		}
		if _, err := l.Info(); err != nil {
			t.Errorf("the program is gone: %v", err)
		}
		return nil
	})
}

func TestInterface(t *testing.T) {
	if _, err := Look(Options{Interface: "nosuch0"}); err == nil ||
		!strings.Contains(err.Error(), "nosuch0") {
		t.Errorf("an interface that is not there: %v", err)
	}
	world(t, topo.Options{OffloadsB: topo.NoOffloads}, func(w *topo.Net) error {
		nic, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		own := w.A.Addr4.Addr()
		if err := w.A.AddVeth("own0", "own1", own); err != nil {
			return err
		}
		lines, err := Look(Options{Interface: "eth0", Only: "interface"})
		if err != nil {
			return err
		}
		what := own.String() + " of eth0 is also on own0"
		if l := find(t, lines, "interface"); l.Status != Warn || !strings.Contains(l.What, what) ||
			l.Remedy != "ip addr del "+w.A.Addr4.String()+" dev eth0" {
			t.Errorf("one address on two interfaces: %+v", l)
		}
		second, err := netlink.LinkByName("own0")
		if err == nil {
			err = netlink.LinkDel(second)
		}
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(nic); err != nil {
			return err
		}
		lines, err = Look(Options{Interface: "eth0", Only: "interface"})
		if l := find(t, lines, "interface"); l.Status != Fail || l.Remedy != "ip link set eth0 up" {
			t.Errorf("down: %+v", l)
		}
		return err
	})
}

// TestPorts checks a port in use, ephemeral ports, and the reservation by which Fix reserves these until Undo.
func TestPorts(t *testing.T) {
	state := filepath.Join(t.TempDir(), "doctor.json")
	world(t, topo.Options{OffloadsB: topo.NoOffloads}, func(*topo.Net) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		taken := netip.MustParseAddrPort(l.Addr().String()).Port()
		lines, err := Look(Options{Ports: []uint16{taken}, Only: "ports"})
		if err != nil {
			return err
		}
		if p := find(t, lines, "ports"); p.Status != Fail ||
			!strings.Contains(p.What, strconv.Itoa(int(taken))) {
			t.Errorf("in use: %+v", p)
		}
		free := Options{Ports: []uint16{7471, 40000}, Only: "ports"}
		if lines, err = Look(free); err != nil {
			return err
		}
		if p := find(t, lines, "ports"); p.Status != Warn ||
			p.Remedy != "sysctl -w net.ipv4.ip_local_reserved_ports=7471,40000" {
			t.Errorf("in the range: %+v", p)
		}
		if lines, err = Fix(free, state); err != nil {
			return err
		}
		if p := find(t, lines, "ports"); p.Status != OK || !p.Fixed {
			t.Errorf("after Fix: %+v", p)
		}
		if _, err = Undo(state); err != nil {
			return err
		}
		if lines, err = Look(free); find(t, lines, "ports").Status != Warn {
			t.Error("Undo did not take the reservation back")
		}
		return err
	})
}

func TestJudgements(t *testing.T) {
	if f := lockdown("none integrity [confidentiality]\n"); f.status != Warn {
		t.Errorf("confidentiality: %+v", f)
	}
	if f := lockdown("none [integrity] confidentiality\n"); f.status != OK ||
		f.what != "lockdown is integrity" {
		t.Errorf("integrity: %+v", f)
	}
	unit := uint64(1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_BPF |
		1<<unix.CAP_PERFMON | 1<<unix.CAP_NET_BIND_SERVICE)
	if f := capabilities(unit); f.status != OK {
		t.Errorf("what the unit gives: %+v", f)
	}
	if f := capabilities(1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW |
		1<<unix.CAP_SYS_ADMIN); f.status != OK {
		t.Errorf("CAP_SYS_ADMIN holds CAP_BPF and CAP_PERFMON: %+v", f)
	}
	if f := capabilities(unit &^ (1 << unix.CAP_PERFMON)); f.status != Fail ||
		!strings.Contains(f.remedy, "AmbientCapabilities=CAP_PERFMON") {
		t.Errorf("without CAP_PERFMON: %+v", f)
	}
}

// A damaged file is an error, not an empty list of fixes. An entry that cannot be undone stays in the file.
func TestDamagedState(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doctor.json")
	os.WriteFile(file, []byte("[{"), 0o600)
	if _, err := Undo(file); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("Undo: %v", err)
	}
	os.WriteFile(file, []byte(`[{"check":"hugepages","before":{"/etc/passwd":"x"}}]`), 0o600)
	if u, err := Undo(file); err != nil || len(u) != 1 || u[0].Error == "" {
		t.Errorf("a file outside the kernel's settings: %+v, %v", u, err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("what was not undone is forgotten: %v", err)
	}
}
