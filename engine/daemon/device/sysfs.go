package device

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"xwarp/engine/daemon/control"
)

// SysfsFiles returns the files of the device as the kernel has them below /sys/class/infiniband, by their paths there,
// for programs that look for devices in files. An RNIC is a device of iWARP, else it is one of RoCE. The values are
// those that cmd/libxwarp-verbs gives programs of libibverbs.
func (d *Device) SysfsFiles(rnic bool) map[string]string {
	var mac [6]byte
	d.Core.Do(func() error {
		if i, err := net.InterfaceByName(d.Name); err == nil {
			copy(mac[:], i.HardwareAddr)
		}
		return nil
	})
	guid := fmt.Sprintf("%02x%02x:%02xff:fe%02x:%02x%02x", mac[0]^2, mac[1], mac[2], mac[3], mac[4],
		mac[5])
	nodeType, pkey, gids := "4: RNIC", "0x0000", []netip.Addr(nil)
	if rnic {
		var gid [16]byte
		copy(gid[:], mac[:])
		gids = append(gids, netip.AddrFrom16(gid))
	} else {
		nodeType, pkey = "1: CA", "0xffff"
		gids, _ = d.GIDs() // an interface that is gone has none
	}
	state, phys := "4: ACTIVE", "5: LinkUp"
	if d.Absent || d.Core.Err() != nil {
		state, phys = "1: DOWN", "3: Disabled"
	}
	name := "xwarp_" + d.Name
	port := name + "/ports/1/"
	files := map[string]string{
		name + "/node_type":      nodeType,
		name + "/node_guid":      guid,
		name + "/sys_image_guid": guid,
		name + "/node_desc":      name,
		name + "/fw_ver":         strconv.Itoa(control.Version),
		name + "/hw_rev":         "1",
		port + "state":           state,
		port + "phys_state":      phys,
		port + "rate":            "10 Gb/sec (1X QDR)",
		port + "lid":             "0x0",
		port + "lid_mask_count":  "0",
		port + "sm_lid":          "0x0",
		port + "sm_sl":           "0",
		port + "cap_mask":        "0x00000000",
		port + "link_layer":      "Ethernet",
		port + "pkeys/0":         pkey,
	}
	for i, a := range gids {
		b := a.As16()
		text := fmt.Sprintf("%x", b[:2])
		for at := 2; at < len(b); at += 2 {
			text += fmt.Sprintf(":%x", b[at:at+2])
		}
		n := strconv.Itoa(i)
		files[port+"gids/"+n] = text
		if !rnic {
			files[port+"gid_attrs/types/"+n] = "RoCE v2"
			files[port+"gid_attrs/ndevs/"+n] = d.Name
		}
	}
	return files
}
