package doctor

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
)

// configured returns the interface in the daemon's configuration, or nil if it is not configured.
func (e *env) configured() (*config.Interface, error) {
	l, err := e.config()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(l.Interface, func(n config.Interface) bool {
		return n.Name == e.name() || slices.Contains(e.nic.Attrs().AltNames, n.Name)
	})
	if i < 0 {
		return nil, nil
	}
	return &l.Interface[i], nil
}

// ifID returns the if_id of the engine's SAs and policies, 0 for an interface without IPsec.
func (e *env) ifID() uint32 {
	n, err := e.configured()
	if err != nil || n == nil || n.Protection() == nil {
		return 0
	}
	return uint32(n.Protection().IfID)
}

// withIPsec wraps the look function of a check that only applies to interfaces that require IPsec.
func withIPsec(look func(*env, *config.Interface) finding) func(*env) finding {
	return func(e *env) finding {
		n, err := e.configured()
		switch {
		case err != nil:
			return fine("not checked: see ipsec-kernel")
		case n == nil || n.Protection() == nil:
			return fine("IPsec is not required on %s", e.name())
		}
		return look(e, n)
	}
}

var ipsecKernelCheck = check{
	name: "ipsec-kernel", nic: true,
	why: "xwarpd gets the SAs of the IKE daemon from the kernel, which must support their " +
		"algorithm; otherwise connections wait for an SA forever",
	look: func(e *env) finding {
		n, err := e.configured()
		switch {
		case err != nil:
			return warn("cannot determine if IPsec is required: %v", err).
				advise("xwarp config check")
		case n == nil:
			return fine("%s is not in the configuration of xwarpd", e.name())
		case n.Protection() != nil:
			return espFinding(e, "the configuration of "+e.name()+" requires ESP")
		case n.Transport == config.TransportKernel:
			t, err := xfrm.Read()
			if err == nil && slices.ContainsFunc(t.Policies, func(p *xfrm.Policy) bool {
				return p.IfID == 0
			}) {
				return espFinding(e, "policies of the host require ESP")
			}
		}
		return fine("IPsec is not required on %s", e.name())
	},
}

// espFinding tests adding an SA for each address family of the interface, in a temporary network namespace.
func espFinding(e *env, reason string) finding {
	for _, v6 := range e.families() {
		err := tryESP(v6)
		module := "esp4"
		if v6 {
			module = "esp6"
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, unix.EPERM):
			return warn("%s; cannot test kernel support: %v", reason, err).
				advise("sudo xwarp doctor --interface %s", e.name())
		case errors.Is(err, unix.EPROTONOSUPPORT) && !hasXFRM():
			return fail("%s, but the kernel has no XFRM: %v", reason, err).
				advise("modprobe xfrm_user; or use a kernel with CONFIG_XFRM_USER")
		}
		return fail("%s, but the kernel rejects SAs with rfc4106(gcm(aes)) (%s): %v", reason,
			module, err).advise("modprobe -a %s gcm aes_generic; or use a kernel with "+
			"CONFIG_INET_ESP, CONFIG_INET6_ESP and CONFIG_CRYPTO_GCM", module)
	}
	return fine("%s, and the kernel supports AES-GCM", reason)
}

// families returns the address families of the interface; true is IPv6. An interface without addresses has IPv4.
func (e *env) families() (v6 []bool) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		addrs, _ := netlink.AddrList(e.top, family)
		if slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.IsGlobalUnicast() }) {
			v6 = append(v6, family == unix.AF_INET6)
		}
	}
	if len(v6) == 0 {
		v6 = []bool{false}
	}
	return v6
}

func hasXFRM() bool {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_XFRM)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// tryESP adds an SA with AES-GCM in a network namespace that ends with the thread.
func tryESP(v6 bool) error {
	src, dst := net.IPv4(192, 0, 2, 1), net.IPv4(192, 0, 2, 2)
	if v6 {
		src, dst = net.ParseIP("2001:db8::1"), net.ParseIP("2001:db8::2")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			key := make([]byte, 20)
			key[0] = 1
			err = netlink.XfrmStateAdd(&netlink.XfrmState{Src: src, Dst: dst, Spi: 0x1001,
				Proto: netlink.XFRM_PROTO_ESP, Aead: &netlink.XfrmStateAlgo{
					Name: "rfc4106(gcm(aes))", Key: key, ICVLen: 128}})
		}
		done <- err
	}()
	return <-done
}

var ipsecDaemonCheck = check{
	name: "ipsec-ike", nic: true,
	why: "xwarpd does not negotiate keys: it requests SAs from an IKE daemon through the kernel. " +
		"Protected connections wait for an SA",
	look: withIPsec(func(e *env, _ *config.Interface) finding {
		t, err := xfrm.Read()
		switch {
		case err != nil:
			return unreadable(e, err)
		case t.Daemon != nil:
			return fail("%v", t.Daemon).advise("systemctl start strongswan in the network " +
				"namespace of xwarpd, then swanctl --load-all")
		}
		return fine("an IKE daemon listens for XFRM_MSG_ACQUIRE")
	}),
}

func unreadable(e *env, err error) finding {
	return warn("cannot read the SAs and policies of the kernel: %v", err).
		advise("sudo xwarp doctor --interface %s", e.name())
}

var ipsecTableCheck = check{
	name: "ipsec-sas", nic: true,
	why: "xwarpd uses SAs and policies with its if_id; inbound SAs need its mark so that the kernel " +
		"ignores their packets; an SA that the kernel also uses for sending is refused",
	look: withIPsec(func(e *env, n *config.Interface) finding {
		t, err := xfrm.Read()
		if err != nil {
			return unreadable(e, err)
		}
		links, err := netlink.LinkList()
		if err != nil {
			return warn("interfaces: %v", err)
		}
		for _, l := range links {
			if x, ok := l.(*netlink.Xfrmi); ok && x.Ifid == uint32(n.Protection().IfID) {
				return fail("XFRM interface %s has if_id %#x: the kernel sends with the SAs, "+
					"so xwarpd refuses them", x.Attrs().Name, x.Ifid).
					advise("ip link del %s; or use another if_id in /etc/xwarp/xwarp.toml and the "+
						"IKE daemon", x.Attrs().Name)
			}
		}
		return judgeTable(n, &t)
	}),
}

// judgeTable checks the SAs and policies of the kernel for an interface that requires IPsec.
func judgeTable(n *config.Interface, t *xfrm.Table) finding {
	p := n.Protection()
	var ours []*xfrm.Policy
	out := 0
	for _, x := range t.Policies {
		switch {
		case x.IfID == uint32(p.IfID):
			ours = append(ours, x)
			if x.Out {
				out++
			}
			if x.Out && requires(n, x.Remote) && !hasMode(n, x) {
				return fail("%v has mode %s, unlike the [[interface.ipsec]] tables for these peers", x, x.Mode).
					advise("set the same mode in the CHILD_SA (swanctl.conf) and in [[interface.ipsec]]")
			}
		case x.Out && x.IfID == 0 && len(p.Remote) > 0 && requires(n, x.Remote):
			return warn("%v has no if_id: the kernel encrypts to these peers, but xwarpd cannot", x).
				advise("set if_id_in = if_id_out = %#x in the CHILD_SA (swanctl.conf), then swanctl "+
					"--load-all", p.IfID)
		}
	}
	if out == 0 {
		return fail("no outbound policy of the kernel has if_id %#x: connections wait for an SA that "+
			"is never requested", p.IfID).
			advise("add a CHILD_SA with if_id_in = if_id_out = mark_in = %#x, mark_in_sa = yes and "+
				"start_action = trap (swanctl.conf), then swanctl --load-all", p.IfID)
	}
	sas, waits := 0, "SAs are requested from the IKE daemon on demand; if none comes, see its log"
	for _, sa := range t.SAs {
		if sa.IfID != uint32(p.IfID) {
			continue
		}
		i := slices.IndexFunc(ours, func(x *xfrm.Policy) bool { return x.Uses(sa) })
		err := sa.Usable()
		if err == nil && i >= 0 && !ours[i].Out {
			err = sa.Receivable(uint32(p.Mark))
		}
		if err != nil {
			return fail("%v with if_id %#x cannot be used: %v", sa, sa.IfID, err).
				advise("fix it in swanctl.conf, then swanctl --load-all and swanctl --rekey --child NAME")
		}
		if i < 0 {
			return warn("%v matches no policy with its if_id %#x", sa, sa.IfID).
				advise("compare reqid, mode and addresses: ip xfrm state; ip xfrm policy; then " +
					"swanctl --load-all")
		}
		sas, waits = sas+1, "all usable"
	}
	return fine("if_id %#x: policies %d, SAs %d: %s", p.IfID, len(ours), sas, waits)
}

// requires reports whether a table of n requires IPsec to any host of remote.
func requires(n *config.Interface, remote netip.Prefix) bool {
	return slices.ContainsFunc(n.IPsec, func(t config.IPsec) bool { return isFor(&t, remote) })
}

// hasMode reports whether a table of n that is for hosts of p has the mode of p.
func hasMode(n *config.Interface, p *xfrm.Policy) bool {
	return slices.ContainsFunc(n.IPsec, func(t config.IPsec) bool {
		return isFor(&t, p.Remote) && (t.Mode == config.ModeTunnel) == (p.Mode == esp.Tunnel)
	})
}

func isFor(t *config.IPsec, remote netip.Prefix) bool {
	return t.Level == config.LevelRequire && (len(t.Remote) == 0 ||
		slices.ContainsFunc(t.Remote, remote.Overlaps))
}
