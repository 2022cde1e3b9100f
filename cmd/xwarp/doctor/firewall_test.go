package doctor

import (
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
)

// nftMessage is one message of an nftables transaction.
func nftMessage(kind, flags uint16, family uint8, subsystem uint16, attrs ...*nl.RtAttr) []byte {
	body := []byte{family, 0, byte(subsystem >> 8), byte(subsystem)}
	for _, a := range attrs {
		body = append(body, a.Serialize()...)
	}
	head := make([]byte, unix.SizeofNlMsghdr)
	binary.NativeEndian.PutUint32(head, uint32(len(head)+len(body)))
	binary.NativeEndian.PutUint16(head[4:], kind)
	binary.NativeEndian.PutUint16(head[6:], unix.NLM_F_REQUEST|flags)
	return append(head, body...)
}

// addChain adds an inet table with a chain at a hook, with the given policy: 0 drops and 1 accepts.
func addChain(table, kind string, hook, policy uint32) error {
	const subsystem = unix.NFNL_SUBSYS_NFTABLES
	word := func(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
	name := func(attr int, s string) *nl.RtAttr { return nl.NewRtAttr(attr, nl.ZeroTerminated(s)) }
	at := nl.NewRtAttr(unix.NFTA_CHAIN_HOOK|unix.NLA_F_NESTED, nil)
	at.AddRtAttr(unix.NFTA_HOOK_HOOKNUM, word(hook))
	at.AddRtAttr(unix.NFTA_HOOK_PRIORITY, word(0))
	batch := slices.Concat(
		nftMessage(unix.NFNL_MSG_BATCH_BEGIN, 0, 0, subsystem),
		nftMessage(subsystem<<8|unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, unix.NFPROTO_INET, 0,
			name(unix.NFTA_TABLE_NAME, table)),
		nftMessage(subsystem<<8|unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE|unix.NLM_F_ACK,
			unix.NFPROTO_INET, 0, name(unix.NFTA_CHAIN_TABLE, table),
			name(unix.NFTA_CHAIN_NAME, "input"), at, nl.NewRtAttr(unix.NFTA_CHAIN_POLICY,
				word(policy)), name(unix.NFTA_CHAIN_TYPE, kind)),
		nftMessage(unix.NFNL_MSG_BATCH_END, 0, 0, subsystem),
	)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, batch, 0,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, b, 0)
	if err == nil && n >= unix.SizeofNlMsghdr+4 {
		if errno := int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); errno != 0 {
			err = unix.Errno(-errno)
		}
	}
	return err
}

// TestFirewall: a host with rules for incoming traffic or with inbound IPsec policies gets a warning that xwarp ports
// bypass them.
func TestFirewall(t *testing.T) {
	world(t, topo.Options{}, func(*topo.Net) error {
		look := func() Line {
			t.Helper()
			lines, err := Look(Options{Interface: "eth0", Only: "firewall"})
			if err != nil {
				t.Fatal(err)
			}
			return find(t, lines, "firewall")
		}
		if l := look(); l.Status != OK {
			t.Errorf("without rules: %+v", l)
		}
		// The query creates the table, as iptables -L does.
		if n, err := legacyEntries(unix.AF_INET, unix.SOL_IP); err == nil && n != 4 {
			t.Errorf("%d entries of an empty table of iptables", n)
		}
		if l := look(); l.Status != OK {
			t.Errorf("with an empty table of iptables: %+v", l)
		}
		const accept, drop = 1, 0
		if err := addChain("empty", "filter", hookInput, accept); err != nil {
			return err
		}
		if l := look(); l.Status != OK {
			t.Errorf("a chain that lets all pass: %+v", l)
		}
		if err := addChain("guard", "filter", hookInput, drop); err != nil {
			return err
		}
		if l := look(); l.Status != Warn || !strings.Contains(l.What, "chain inet guard input") ||
			strings.Contains(l.What, "empty") || !strings.Contains(l.Remedy, "allow") {
			t.Errorf("a chain that drops: %+v", l)
		}
		_, any4, _ := net.ParseCIDR("0.0.0.0/0")
		for _, dir := range []netlink.Dir{netlink.XFRM_DIR_IN, netlink.XFRM_DIR_OUT} {
			if err := netlink.XfrmPolicyAdd(&netlink.XfrmPolicy{Src: any4, Dst: any4, Dir: dir,
				Action: netlink.XFRM_POLICY_BLOCK}); err != nil {
				return err
			}
		}
		if l := look(); !strings.Contains(l.What, "inbound IPsec policies: 1") {
			t.Errorf("with an IPsec policy: %+v", l)
		}
		return nil
	})
}

// TestChains: the chains that see frames to this host are found.
func TestChains(t *testing.T) {
	for name, c := range map[string]struct {
		c    chain
		want bool
	}{
		"rules": {chain{family: "ip", kind: "filter", hook: hookInput, policy: 1,
			rules: 3}, true},
		"policy drop": {chain{family: "inet", kind: "filter", hook: hookInput}, true},
		"nothing in it": {chain{family: "inet", kind: "filter", hook: hookInput, policy: 1},
			false},
		"prerouting": {chain{family: "ip6", kind: "filter", hook: hookPrerouting, rules: 1},
			true},
		"inet ingress": {chain{family: "inet", kind: "filter", hook: hookIngress, rules: 1},
			true},
		"device ingress": {chain{family: "netdev", kind: "filter", hook: 0, rules: 1}, true},
		"device egress":  {chain{family: "netdev", kind: "filter", hook: 1, rules: 1}, false},
		"forward":        {chain{family: "ip", kind: "filter", hook: 2, rules: 1}, false},
		"translation": {chain{family: "ip", kind: "nat", hook: hookPrerouting, rules: 9},
			false},
		"postrouting, ip": {chain{family: "ip", kind: "filter", hook: 4, rules: 1}, false},
	} {
		if got := c.c.filters(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, b := range [][]byte{nil, {1}, {1, 0, 0, 0}, {1, 0, 0, 0, 4, 0, 4, 0}, {99, 0, 0, 0}} {
		if _, ok := parseChain(b); ok {
			t.Errorf("% x is taken for a base chain", b)
		}
	}
}
