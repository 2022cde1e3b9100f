package preflight

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/daemon/config"
	"xwarp/engine/host/ethtool"
)

// TestRemedyOfForeignProgram: the command that the check names removes a program of another owner, native or generic.
func TestRemedyOfForeignProgram(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tn.Close()
	remedy := regexp.MustCompile(`\(remove it: ([^)]*)\)`)
	for _, flags := range []int{nl.XDP_FLAGS_SKB_MODE, nl.XDP_FLAGS_DRV_MODE} {
		err := tn.A.Do(func() error {
			p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
			if err != nil {
				return err
			}
			nic, err := netlink.LinkByName("eth0")
			if err == nil {
				err = netlink.LinkSetXdpFdWithFlags(nic, p.FD(), flags)
			}
			p.Close() // only the interface holds it
			if err != nil {
				return err
			}
			text := checkInterface(&config.Interface{Name: "eth0",
				Transport: config.TransportXDP}, 0)
			if text == nil {
				t.Fatal("a foreign program is not noticed")
			}
			m := remedy.FindStringSubmatch(text.Error())
			if m == nil {
				t.Fatalf("no remedy: %v", text)
			}
			words := strings.Fields(m[1])
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", m[1], err, out)
			}
			nic, err = netlink.LinkByName("eth0")
			if err == nil && nic.Attrs().Xdp != nil && nic.Attrs().Xdp.Attached {
				t.Errorf("%s leaves the program", m[1])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestQueuesInUse: a queue that the driver allocated but does not use is an error, which opening the device would
// report, and the command that the error names adds the queue.
func TestQueuesInUse(t *testing.T) {
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{Queues: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer tn.Close()
	remedy := regexp.MustCompile(`\(to add queues: ([^)]*)\)`)
	check := func(queues ...int) error {
		return checkInterface(&config.Interface{Name: "eth0", Transport: config.TransportXDP,
			Queues: queues}, 0)
	}
	err = tn.A.Do(func() error {
		if err := check(0, 1); err != nil {
			t.Errorf("two queues: %v", err)
		}
		if err := ethtool.SetQueues("eth0", 1); err != nil {
			return err
		}
		if err := check(0); err != nil {
			t.Errorf("the queue in use: %v", err)
		}
		err := check(0, 1)
		if err == nil || !strings.HasPrefix(err.Error(),
			"queues has 1, but the interface has queues 0 to 0 ") {
			t.Fatalf("a queue that is not in use: %v", err)
		}
		m := remedy.FindStringSubmatch(err.Error())
		if m == nil {
			t.Fatalf("no remedy: %v", err)
		}
		words := strings.Fields(m[1])
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", m[1], err, out)
		}
		if err := check(0, 1); err != nil {
			t.Errorf("after %s: %v", m[1], err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSharedAddress: two interfaces of a configuration have one address, with different prefix lengths. The check names
// both and the command that removes it from one.
func TestSharedAddress(t *testing.T) {
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{IPv4Only: true})
	if err != nil {
		t.Fatal(err)
	}
	defer tn.Close()
	at := tn.A.Addr4.Addr()
	if err := tn.A.AddVeth("own0", "own1", at); err != nil {
		t.Fatal(err)
	}
	cfg := &config.Loaded{}
	for _, name := range []string{"eth0", "own0"} {
		cfg.Interface = append(cfg.Interface,
			config.Interface{Name: name, Transport: config.TransportXDP})
	}
	var text string
	if err := tn.A.Do(func() error {
		text = fmt.Sprint(errors.Join(Check(cfg, User{}, Daemon{})...))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("interface[1] own0: address %v is also on eth0, and routes use one of them only "+
		"(ip addr del %[1]v/32 dev own0)", at)
	if text != want {
		t.Errorf("%s, want %s", text, want)
	}
}
