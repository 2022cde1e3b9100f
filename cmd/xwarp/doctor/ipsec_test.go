package doctor

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/engine/daemon/config"
	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
)

// ipsecFile writes a configuration with eth0 and the lines of table, and returns its path.
func ipsecFile(t *testing.T, table string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "xwarp.toml")
	text := "[[interface]]\nname = \"eth0\"\n" + table
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const requireTable = "[[interface.ipsec]]\nif_id = 0x7877\n"

// addPolicy installs the policy of one direction between two hosts in transport mode.
func addPolicy(from, to string, dir netlink.Dir, ifID int) error {
	host := func(s string) *net.IPNet {
		return &net.IPNet{IP: net.ParseIP(s).To4(), Mask: net.CIDRMask(32, 32)}
	}
	return netlink.XfrmPolicyAdd(&netlink.XfrmPolicy{Src: host(from), Dst: host(to), Dir: dir,
		Ifid: ifID, Tmpls: []netlink.XfrmPolicyTmpl{{Proto: netlink.XFRM_PROTO_ESP, Reqid: 1,
			Mode: netlink.XFRM_MODE_TRANSPORT, Src: net.ParseIP(from), Dst: net.ParseIP(to)}}})
}

func TestIPsec(t *testing.T) {
	world(t, topo.Options{}, func(*topo.Net) error {
		file := ipsecFile(t, requireTable)
		look := func(file, name string, want Status, texts ...string) {
			t.Helper()
			lines, err := Look(Options{Interface: "eth0", Only: name, Config: file})
			if err != nil {
				t.Fatal(err)
			}
			l := find(t, lines, name)
			if l.Status != want || (l.Remedy == "") != (want == OK) {
				t.Errorf("%+v", l)
			}
			for _, text := range texts {
				if !strings.Contains(l.What+"\n"+l.Remedy, text) {
					t.Errorf("no %q in %+v", text, l)
				}
			}
		}
		for _, c := range ipsecChecks {
			look(ipsecFile(t, ""), c.name, OK, "IPsec is not required")
		}
		look(ipsecFile(t, "[[interface.ipsec]]\n"), ipsecKernelCheck.name, Warn, "if_id is missing",
			"xwarp config check")
		if tryESP(false) == nil && tryESP(true) == nil {
			look(file, ipsecKernelCheck.name, OK, "supports AES-GCM")
		} else {
			look(file, ipsecKernelCheck.name, Fail, "rejects SAs", "CONFIG_INET_ESP")
		}

		look(file, ipsecDaemonCheck.name, Fail, "no IKE daemon", "systemctl start strongswan")
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_XFRM)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
			unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP,
				nl.XFRMNLGRP_ACQUIRE)); err != nil {
			return err
		}
		look(file, ipsecDaemonCheck.name, OK, "listens")

		const us, peer = "10.99.0.1", "10.99.0.2"
		look(file, ipsecTableCheck.name, Fail, "if_id 0x7877", "mark_in_sa = yes")
		if err := errors.Join(addPolicy(us, peer, netlink.XFRM_DIR_OUT, 0x7877),
			addPolicy(peer, us, netlink.XFRM_DIR_IN, 0x7877)); err != nil {
			return err
		}
		look(file, ipsecTableCheck.name, OK, "policies 2, SAs 0")
		look(file, firewallCheck.name, OK)
		tunnel := ipsecFile(t, requireTable+"mode = \"tunnel\"\n")
		look(tunnel, ipsecTableCheck.name, Fail, "has mode transport", "swanctl.conf")
		// The host has policies without if_id for a peer of the table.
		if err := errors.Join(addPolicy(us, peer, netlink.XFRM_DIR_OUT, 0),
			addPolicy(peer, us, netlink.XFRM_DIR_IN, 0)); err != nil {
			return err
		}
		look(ipsecFile(t, requireTable+"remote = [\""+peer+"/32\"]\n"), ipsecTableCheck.name, Warn,
			"has no if_id", "if_id_out = 0x7877")
		look(file, firewallCheck.name, Warn, "inbound IPsec policies: 1 ")
		return nil
	})
}

var ipsecChecks = []*check{&ipsecKernelCheck, &ipsecDaemonCheck, &ipsecTableCheck}

// TestJudgeTable checks judgeTable with policies and SAs that the test makes itself, since the kernel may not support
// ESP.
func TestJudgeTable(t *testing.T) {
	at := netip.MustParseAddr
	us, peer := at("192.0.2.1"), at("192.0.2.2")
	policy := func(out bool, ifID uint32) *xfrm.Policy {
		p := &xfrm.Policy{Out: out, Local: netip.PrefixFrom(us, 32),
			Remote: netip.PrefixFrom(peer, 32), IfID: ifID, Src: us, Dst: peer, ReqID: 1}
		if !out {
			p.Src, p.Dst = peer, us
		}
		return p
	}
	in := xfrm.SA{SA: esp.SA{SPI: 0x2001}, Src: peer, Dst: us, IfID: 7, ReqID: 1, Mark: 7}
	out := xfrm.SA{SA: esp.SA{SPI: 0x1001}, Src: us, Dst: peer, IfID: 7, ReqID: 1}
	unmarked, another, foreign := in, out, out
	unmarked.Mark, another.ReqID, foreign.IfID = 0, 2, 0
	n := &config.Interface{IPsec: []config.IPsec{{Level: config.LevelRequire,
		Mode: config.ModeTransport, IfID: 7, Mark: 7}}}
	both := []*xfrm.Policy{policy(true, 7), policy(false, 7)}
	for _, c := range []struct {
		name     string
		policies []*xfrm.Policy
		sas      []*xfrm.SA
		want     Status
		text     string
	}{
		{"nothing", nil, nil, Fail, "no outbound policy"},
		{"inbound only", both[1:], nil, Fail, "no outbound policy"},
		{"trap", both, nil, OK, "requested from the IKE daemon on demand"},
		{"pair", both, []*xfrm.SA{&in, &out}, OK, "policies 2, SAs 2"},
		{"a VPN of the host", append(both[:2:2], policy(true, 0)), []*xfrm.SA{&foreign}, OK,
			"SAs 0"},
		{"no mark", both, []*xfrm.SA{&unmarked, &out}, Fail, "mark_in_sa = yes"},
		{"another reqid", both, []*xfrm.SA{&another}, Warn, "matches no policy"},
	} {
		f := judgeTable(n, &xfrm.Table{Policies: c.policies, SAs: c.sas})
		if f.status != c.want || !strings.Contains(f.what, c.text) {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

// TestESPForKernelTransport: with kernel sockets, ESP is required if the host has policies.
func TestESPForKernelTransport(t *testing.T) {
	world(t, topo.Options{}, func(*topo.Net) error {
		file := ipsecFile(t, "transport = \"kernel\"\n")
		look := func() Line {
			t.Helper()
			lines, err := Look(Options{Interface: "eth0", Only: "ipsec-kernel", Config: file})
			if err != nil {
				t.Fatal(err)
			}
			return find(t, lines, "ipsec-kernel")
		}
		if l := look(); l.Status != OK {
			t.Errorf("without policies: %+v", l)
		}
		if err := addPolicy("10.99.0.1", "10.99.0.2", netlink.XFRM_DIR_OUT, 0); err != nil {
			return err
		}
		want := OK
		if tryESP(false) != nil || tryESP(true) != nil {
			want = Fail
		}
		if l := look(); l.Status != want || !strings.Contains(l.What, "policies of the host") {
			t.Errorf("with a policy: %+v", l)
		}
		return nil
	})
}
