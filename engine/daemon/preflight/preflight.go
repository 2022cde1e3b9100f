// Package preflight checks whether a daemon could start on this host: interfaces, CPUs, addresses and ports,
// directories, files and their permissions. It changes nothing.
package preflight

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/host/holder"
	"xwarp/engine/host/ports"
	"xwarp/engine/host/vlan"
	"xwarp/engine/ranges"
	"xwarp/engine/xdp"
)

// Daemon is the daemon that runs on this host, if any. Check ignores resources that it holds, because a restart frees
// them.
type Daemon struct {
	Pid    int      // 0: no daemon runs
	Listen []string // addresses of its exports
}

// Check returns one error for each reason why a daemon that runs as user could not serve all of cfg. running is the
// daemon that the start would replace.
func Check(cfg *config.Loaded, user User, running Daemon) (errs []error) {
	add := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	owner := map[netip.Addr]string{} // name of the interface with the address
	for i := range cfg.Interface {
		n := &cfg.Interface[i]
		key := fmt.Sprintf("interface[%d] %s", i, n.Name)
		add(key, checkInterface(n, running.Pid))
		for _, a := range addressesOf(n) {
			if other, ok := owner[a.Addr()]; ok {
				add(key, fmt.Errorf("address %v is also on %s, and routes use one of them only "+
					"(ip addr del %v dev %s)", a.Addr(), other, a, n.Name))
			}
			owner[a.Addr()] = n.Name
		}
		for _, cpu := range n.CPUs {
			if !HasCPU(cpu) {
				add(key, fmt.Errorf("cpus has %d, but this machine has CPUs %s", cpu,
					onlineCPUs()))
			}
		}
	}
	for i := range cfg.Export {
		e := &cfg.Export[i]
		key := fmt.Sprintf("export[%d] %s", i, e.Name)
		for _, at := range e.Listen.All() {
			if !slices.Contains(running.Listen, e.Listen.String()) {
				add(key, checkPort(at))
			}
		}
		add(key, user.checkContent(e))
	}
	add("http.listen", checkHTTP(&cfg.HTTP, running.Pid))
	return errs
}

// Warnings returns one sentence for each removed key in the file, and for each setting that makes a daemon less safe
// than the default.
func Warnings(cfg *config.Loaded) (list []string) {
	list = append(list, cfg.Removed...)
	if !cfg.HTTP.Loopback() {
		list = append(list, fmt.Sprintf("http.listen = %q: metrics are exposed to the network "+
			"without authentication or encryption", cfg.HTTP.Listen))
	}
	return list
}

// checkInterface tests an [[interface]] with transport = "xdp". running is the PID of the running daemon, or 0.
func checkInterface(n *config.Interface, running int) error {
	if n.Transport != config.TransportXDP {
		return nil
	}
	nic, err := netlink.LinkByName(n.Name)
	if _, none := errors.AsType[netlink.LinkNotFoundError](err); none {
		return errors.New("no such interface; xwarpd waits for it (see: ip -br link)")
	}
	if err != nil {
		return err
	}
	if len(nic.Attrs().HardwareAddr) != 6 {
		return errors.New("not an Ethernet interface, as AF_XDP requires: use another one, or transport = \"kernel\"")
	}
	if most := nic.Attrs().MTU; n.MTU > most {
		return fmt.Errorf("mtu = %d exceeds the interface's %d "+
			"(ip link set %s mtu %d)", n.MTU, most,
			n.Name, n.MTU)
	}
	trunk, _, _ := vlan.Trunk(nic)
	a := trunk.Attrs()
	if err := checkQueues(a.Name, n.Queues, a.NumRxQueues); err != nil {
		return err
	}
	if a.Xdp == nil || !a.Xdp.Attached {
		return nil
	}
	if found, err := xdp.HasDispatcher(trunk); found || err != nil {
		return err // xwarpd joins the dispatcher
	}
	list := holder.OfProgram(a.Xdp.ProgId)
	ours := func(p holder.Process) bool { return p.Pid == running }
	switch {
	case slices.ContainsFunc(list, ours):
		return nil
	case len(list) > 0:
		return fmt.Errorf("%s has an XDP program attached: stop it, or use another interface",
			holder.Text(list))
	}
	return fmt.Errorf("another XDP program is attached (remove it: ip link set %s %s off)", a.Name,
		xdpKind(a.Xdp.AttachMode))
}

// addressesOf returns the addresses of an interface with transport = "xdp", without link-local ones.
func addressesOf(n *config.Interface) (list []netip.Prefix) {
	nic, err := netlink.LinkByName(n.Name)
	if n.Transport != config.TransportXDP || err != nil {
		return nil
	}
	addrs, _ := netlink.AddrList(nic, netlink.FAMILY_ALL)
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.IsGlobalUnicast() {
			bits, _ := a.Mask.Size()
			list = append(list, netip.PrefixFrom(ip.Unmap(), bits))
		}
	}
	return list
}

// checkQueues tests that an interface has the configured queues. most is the number that the driver allocated.
func checkQueues(name string, queues []int, most int) error {
	has := most
	d, err := ethtool.ReadDriver(name)
	creates := err == nil && d.Name == "virtio_net" // the driver adds queues when an XDP program is attached
	if c, err := ethtool.ReadChannels(name); err == nil && c.Queues() > 0 && !creates {
		has = min(has, c.Queues())
	}
	for _, q := range queues {
		if q < has {
			continue
		}
		next := "see: ethtool -l " + name
		if q < most {
			next = "to add queues: " + ethtool.QueuesCommand(name, q+1)
		}
		return fmt.Errorf("queues has %d, but the interface has queues 0 to %d (%s)", q, has-1,
			next)
	}
	return nil
}

// xdpKind returns the keyword of ip link set that removes an XDP program attached in this mode. A plain "xdp off" would
// leave a generic program on a device whose driver has native XDP.
func xdpKind(mode uint32) string {
	switch mode {
	case nl.XDP_ATTACHED_SKB:
		return "xdpgeneric"
	case nl.XDP_ATTACHED_HW:
		return "xdpoffload"
	}
	return "xdpdrv"
}

// HasCPU reports whether a CPU is online. It returns true if the kernel does not report the online CPUs.
func HasCPU(n int) bool {
	list, err := ranges.Expand(onlineCPUs(), "processor", 1<<20)
	return err != nil || len(list) == 0 || slices.Contains(list, n)
}

// onlineCPUs lists the online CPUs, such as 0-3; empty if the kernel does not report them.
func onlineCPUs() string {
	b, _ := os.ReadFile("/sys/devices/system/cpu/online")
	return strings.TrimSpace(string(b))
}

func checkPort(at netip.AddrPort) error {
	r, err := ports.Reserve(at)
	switch {
	case errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EACCES) && at.Port() < 1024:
		return nil // no IPv6, or missing privileges that the unit has
	case err != nil:
		return err
	}
	return r.Close()
}

// checkHTTP checks the address of the HTTP server. If a daemon runs, it does not try to bind the address, which that
// daemon may use.
func checkHTTP(h *config.HTTP, running int) error {
	network, address, err := h.Address()
	if err != nil || network != "tcp" || running != 0 {
		return err
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		return fmt.Errorf("%w (ss -tlnp shows who uses it)", err)
	}
	return ln.Close()
}

// checkHugePages checks that the kernel has free huge pages for size bytes.
func checkHugePages(size int64) error {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil // unknown
	}
	const page = 2 << 20
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "HugePages_Free:" {
			free, err := strconv.ParseInt(f[1], 10, 64)
			if need := (size + page - 1) / page; err == nil && free < need {
				return fmt.Errorf("needs %d huge pages, but %d are free "+
					"(sysctl vm.nr_hugepages)",
					need, free)
			}
		}
	}
	return nil
}
