package device

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
	"xwarp/engine/daemon/nldev"
)

// payloadInterval is the minimum time between two updates of the counters in the files of SysfsFiles, because summing
// counters wakes every worker.
const payloadInterval = 5 * time.Second

// SysfsFiles returns the files of the device as the kernel has them in /sys, for programs that look for devices there.
// Paths begin with the style of the device: iwarp or roce. A text that begins with / is the target of a symbolic link.
// The values are those that cmd/libxwarp-verbs gives to programs of libibverbs; counters may be payloadInterval old.
// Only one goroutine may call it.
func (d *Device) SysfsFiles() map[string]string {
	if now := time.Now(); now.Sub(d.payloadSummed) >= payloadInterval && d.Core.Stalled() == nil {
		var l control.Statistics
		if d.addTotals(&l) == nil {
			d.past.addTo(&l, true)
			d.payload, d.payloadSummed = l.Values(d.Name, "rdma"), now
		}
	}
	files, nic := map[string]string{}, d.nic()
	d.addSysfs(files, nic, d.payload, true)
	d.addSysfs(files, nic, d.payload, false)
	return files
}

// nic returns the network interface, an empty one when it is gone.
func (d *Device) nic() (nic net.Interface) {
	d.Core.Do(func() error {
		if i, err := net.InterfaceByName(d.ifname()); err == nil {
			nic = *i
		}
		return nil
	})
	return nic
}

// NetlinkDevice returns the device as programs of a style, "iwarp" or "roce", see it over netlink. The counters among
// its files are 0.
func (d *Device) NetlinkDevice(style string) nldev.Device {
	nic := d.nic()
	v := nldev.Device{Name: "xwarp_" + d.Name, Netdev: d.ifname(), Index: nic.Index, Protocol: "iw",
		Files: map[string]string{}}
	if style == "roce" {
		v.Protocol = style
	}
	files := map[string]string{}
	d.addSysfs(files, nic, nil, style != "roce")
	for path, text := range files {
		if name, found := strings.CutPrefix(path, style+"/class/infiniband/"+v.Name+"/"); found {
			v.Files[name] = text
		}
	}
	return v
}

// addSysfs adds the files of one style: of an RNIC, or of a device for RoCE. Bytes are counted in units of four, as
// InfiniBand does.
func (d *Device) addSysfs(files map[string]string, nic net.Interface, rdma counters.Values,
	rnic bool) {
	var mac [6]byte
	copy(mac[:], nic.HardwareAddr)
	guid := fmt.Sprintf("%02x%02x:%02xff:fe%02x:%02x%02x", mac[0]^2, mac[1], mac[2], mac[3], mac[4],
		mac[5])
	style, nodeType, pkey, gidType := "iwarp", "4: RNIC", "0x0000", "IB/RoCE v1" // as in the kernel's files
	var gid [16]byte
	copy(gid[:], mac[:])
	gids := []netip.Addr{netip.AddrFrom16(gid)}
	if !rnic {
		style, nodeType, pkey, gidType = "roce", "1: CA", "0xffff", "RoCE v2"
		gids, _ = d.GIDs() // a removed interface has none
	}
	state, phys := "4: ACTIVE", "5: LinkUp"
	if d.NeverOpened || d.Core.Err() != nil {
		state, phys = "1: DOWN", "3: Disabled"
	}
	name := "xwarp_" + d.Name
	dir := style + "/class/infiniband/" + name
	port := dir + "/ports/1/"
	maps.Copy(files, map[string]string{
		dir + "/node_type":      nodeType,
		dir + "/node_guid":      guid,
		dir + "/sys_image_guid": guid,
		dir + "/node_desc":      name,
		dir + "/fw_ver":         strconv.Itoa(control.Version),
		dir + "/hw_rev":         "1",
		dir + "/hca_type":       "xwarp",
		dir + "/board_id":       "xwarp", // required by node_exporter of Debian 12
		port + "state":          state,
		port + "phys_state":     phys,
		port + "rate":           "10 Gb/sec (1X QDR)",
		port + "lid":            "0x0",
		port + "lid_mask_count": "0",
		port + "sm_lid":         "0x0",
		port + "sm_sl":          "0",
		port + "cap_mask":       "0x00000000",
		port + "link_layer":     "Ethernet",
		port + "pkeys/0":        pkey,
	})
	if real := parent("/sys/class/net", nic); real != "" {
		files[dir+"/device"] = real
	}
	for name, n := range map[string]uint64{
		"port_rcv_data":     counters.PayloadIn.Of(rdma) / 4,
		"port_xmit_data":    counters.PayloadOut.Of(rdma) / 4,
		"port_rcv_packets":  counters.SegmentsIn.Of(rdma),
		"port_xmit_packets": counters.SegmentsOut.Of(rdma),
	} {
		files[port+"counters/"+name] = strconv.FormatUint(n, 10)
	}
	for i, a := range gids {
		n := strconv.Itoa(i)
		files[port+"gids/"+n] = netip.AddrFrom16(a.As16()).StringExpanded()
		files[port+"gid_attrs/types/"+n] = gidType
		files[port+"gid_attrs/ndevs/"+n] = d.ifname()
	}
}

// parent returns the directory of the device of a network interface, such as that of its PCI function, or "" if it has
// none. class is /sys/class/net, which may be that of another network namespace: an interface of the same name counts
// only with the same index and address.
func parent(class string, nic net.Interface) string {
	for name, want := range map[string]string{"ifindex": strconv.Itoa(nic.Index),
		"address": nic.HardwareAddr.String()} {
		text, err := os.ReadFile(filepath.Join(class, nic.Name, name))
		if err != nil || strings.TrimSpace(string(text)) != want {
			return ""
		}
	}
	real, err := filepath.EvalSymlinks(filepath.Join(class, nic.Name, "device"))
	if err != nil {
		return ""
	}
	return real
}
