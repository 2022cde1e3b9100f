package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

var firewallCheck = check{
	name: "firewall", nic: true,
	why: "traffic to xwarp ports bypasses the host's firewall and IPsec policies: rules that block " +
		"it have no effect",
	look: func(e *env) finding {
		var found []string
		foreign := func() ([]string, error) { return foreignInboundPolicies(e.ifID()) }
		for _, read := range []func() ([]string, error){nftInput, legacyInput, foreign} {
			list, err := read()
			if err != nil {
				return warn("cannot read the host's rules: %v", err)
			}
			found = append(found, list...)
		}
		if len(found) > 0 {
			return finding{Warn, "bypassed by xwarp: " + strings.Join(found, ", "),
				"set allow = [PREFIXES OF PEERS] in the [[interface]] table of /etc/xwarp/xwarp.toml"}
		}
		return fine("no rules for incoming traffic, no other IPsec policies")
	},
}

// Constants of linux/netfilter/nf_tables.h for the chains of incoming packets.
const (
	nftGetChain = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETCHAIN

	hookPrerouting = 0 // in the family netdev: ingress
	hookInput      = 1
	hookIngress    = 5 // in the family inet
)

var nftFamilies = map[uint8]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip",
	unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_NETDEV: "netdev"}

// nftInput lists the nftables chains that filter incoming packets.
func nftInput() (found []string, err error) {
	req := nl.NewNetlinkRequest(nftGetChain, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{})
	replies, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) ||
		errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil // a kernel without nftables
	}
	if err != nil {
		return nil, fmt.Errorf("nftables chains: %w", err)
	}
	for _, r := range replies {
		if c, ok := parseChain(r); ok && c.filters() {
			found = append(found, fmt.Sprintf("chain %s %s %s (nft list chain %s %s %s)", c.family,
				c.table, c.name, c.family, c.table, c.name))
		}
	}
	return found, nil
}

// chain is a base chain of nftables.
type chain struct {
	family, table, name, kind string
	hook, policy, rules       uint32
}

// filters reports whether the chain may drop frames to this host.
func (c *chain) filters() bool {
	return c.kind == "filter" && (c.rules > 0 || c.policy == 0) &&
		(c.hook == hookPrerouting || c.hook == hookInput && c.family != "netdev" ||
			c.hook == hookIngress && c.family == "inet")
}

// parseChain parses a reply. ok is false for chains without a hook.
func parseChain(b []byte) (c chain, ok bool) {
	if len(b) < nl.SizeofNfgenmsg {
		return c, false
	}
	attrs, err := nl.ParseRouteAttr(b[nl.SizeofNfgenmsg:])
	c.family, c.policy, ok = nftFamilies[b[0]], 1, false
	if err != nil || c.family == "" {
		return c, false
	}
	for _, a := range attrs {
		switch a.Attr.Type & nl.NLA_TYPE_MASK {
		case unix.NFTA_CHAIN_TABLE:
			c.table = unix.ByteSliceToString(a.Value)
		case unix.NFTA_CHAIN_NAME:
			c.name = unix.ByteSliceToString(a.Value)
		case unix.NFTA_CHAIN_TYPE:
			c.kind = unix.ByteSliceToString(a.Value)
		case unix.NFTA_CHAIN_POLICY:
			c.policy = bigWord(a.Value)
		case unix.NFTA_CHAIN_USE:
			c.rules = bigWord(a.Value)
		case unix.NFTA_CHAIN_HOOK:
			hook, err := nl.ParseRouteAttr(a.Value)
			for _, h := range hook {
				if ok = err == nil; ok && h.Attr.Type&nl.NLA_TYPE_MASK == unix.NFTA_HOOK_HOOKNUM {
					c.hook = bigWord(h.Value)
				}
			}
		}
	}
	return c, ok
}

func bigWord(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// legacyInput lists the "filter" tables of legacy iptables that have rules.
func legacyInput() (found []string, err error) {
	for _, t := range []struct {
		command, names string
		family, level  int
	}{
		{"iptables", "ip_tables_names", unix.AF_INET, unix.SOL_IP},
		{"ip6tables", "ip6_tables_names", unix.AF_INET6, unix.SOL_IPV6},
	} {
		// Querying a table that does not exist would create it.
		names, err := os.ReadFile("/proc/thread-self/net/" + t.names)
		if err != nil || !slices.Contains(strings.Fields(string(names)), "filter") {
			continue
		}
		n, err := legacyEntries(t.family, t.level)
		if err != nil {
			return nil, fmt.Errorf("%s rules: %w", t.command, err)
		}
		const empty = 4 // an empty table has the policies of its three chains, and its end
		if n > empty {
			found = append(found, fmt.Sprintf("rules of %s-legacy (%s-legacy -S)", t.command,
				t.command))
		}
	}
	return found, nil
}

// legacyEntries counts the entries of a "filter" table, and creates it if it does not exist.
func legacyEntries(family, level int) (uint32, error) {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	const getInfo = 64 // IPT_SO_GET_INFO, IP6T_SO_GET_INFO
	info := struct {   // struct ipt_getinfo
		name               [32]byte
		_                  [11]uint32
		entries, byteCount uint32
	}{}
	copy(info.name[:], "filter")
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, errno
	}
	return info.entries, nil
}

// foreignInboundPolicies counts the IPsec policies for incoming packets, except those of the engine, which have ifID.
func foreignInboundPolicies(ifID uint32) ([]string, error) {
	list, err := netlink.XfrmPolicyList(netlink.FAMILY_ALL)
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // a kernel without IPsec
	}
	if err != nil {
		return nil, fmt.Errorf("IPsec policies: %w", err)
	}
	n := 0
	for _, p := range list {
		if p.Dir == netlink.XFRM_DIR_IN && (ifID == 0 || uint32(p.Ifid) != ifID) {
			n++
		}
	}
	if n == 0 {
		return nil, nil
	}
	return []string{fmt.Sprintf("inbound IPsec policies: %d (ip xfrm policy list dir in)", n)}, nil
}
