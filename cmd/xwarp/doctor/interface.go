package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"xwarp/engine/host/ethtool"
	"xwarp/ring"
)

// shortRing is the receive ring size below which bursts overrun the device.
const shortRing = 512

// longRing is the largest ring size that --fix sets. With zero-copy the device's ring uses chunks of the socket. The
// other half of the chunks must remain for frames in the socket's rings.
const longRing = ring.DefaultRxFrames / 2

var ringCheck = check{
	name: "device-ring", nic: true,
	why: "a short device receive ring drops frames in bursts, and the drops are not counted",
	look: func(e *env) finding {
		now, most, err := ethtool.RxRing(e.name())
		switch {
		case err != nil || most == 0:
			return fine("%s has no ring setting", e.name())
		case now < shortRing && now < most:
			return warn("%d entries, at most %d", now, most).
				advise("ethtool -G %s rx %d", e.name(), min(most, longRing))
		}
		return fine("%d entries, at most %d", now, most)
	},
	want: func(e *env) (settings, error) {
		_, most, err := ethtool.RxRing(e.name())
		return settings{"rx": fmt.Sprint(min(most, longRing))}, err
	},
	get: func(e *env, _ string) (string, error) {
		now, _, err := ethtool.RxRing(e.name())
		return fmt.Sprint(now), err
	},
	put: putNumber(ethtool.SetRxRing),
}

// singleBuffer is the largest MTU whose frames fit a 4096-byte chunk with the headroom of XDP.
const singleBuffer = 3506

var mtuCheck = check{
	name: "mtu", nic: true,
	why: "up to MTU 3506 a frame fits one buffer; above, the driver must support multi-buffer " +
		"XDP",
	look: func(e *env) finding {
		mtu := e.nic.Attrs().MTU
		if mtu <= singleBuffer {
			return fine("%d: one buffer per frame (a larger MTU costs less CPU per byte)", mtu)
		}
		if d, err := ring.QueryDriver(e.nic.Attrs().Index); err == nil && !d.RxSegments {
			return fail("%d, but the driver does not support multi-buffer XDP", mtu).
				advise("ip link set %s mtu %d", e.name(), singleBuffer)
		}
		return fine("%d: several buffers per frame", mtu)
	},
}

var numaCheck = check{
	name: "numa", nic: true,
	why: "workers and frames should be on the NUMA node of the device: list its CPUs in cpus",
	look: func(e *env) finding {
		nodes, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*")
		node, err := readNumber("/sys/class/net/" + e.name() + "/device/numa_node")
		switch {
		case len(nodes) < 2:
			return fine("the host has one NUMA node")
		case err != nil || node < 0:
			return fine("%s has no NUMA node", e.name())
		}
		cpus, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", node))
		if err != nil {
			return warn("node %d: %v", node, err)
		}
		return fine("node %d: set cpus to CPUs of %s", node, strings.TrimSpace(string(cpus)))
	},
}
