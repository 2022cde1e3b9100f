package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"xwarp/engine/host/ethtool"
	"xwarp/ring"
)

// shortRing is the receive ring below which a burst of a 64 KiB window's frames overruns the device.
const shortRing = 512

// longRing is the largest size that a short ring gets. With zero-copy the device's ring takes its entries from the
// chunks of the socket, and as many must be left for frames that wait in the socket's.
const longRing = ring.DefaultRxFrames / 2

var ringCheck = check{
	name: "device-ring", nic: true,
	why: "a short receive ring of the device drops frames in bursts, before anybody counts them",
	look: func(e *env) finding {
		now, most, err := ethtool.RxRing(e.name())
		switch {
		case err != nil || most == 0:
			return fine("%s has no setting for it", e.name())
		case now < shortRing && now < most:
			return warn("%d of at most %d entries", now, most).
				advise("ethtool -G %s rx %d", e.name(), min(most, longRing))
		}
		return fine("%d of at most %d entries", now, most)
	},
	save: func(e *env) (settings, error) {
		now, _, err := ethtool.RxRing(e.name())
		return settings{"rx": strconv.Itoa(int(now))}, err
	},
	fix: func(e *env) error {
		_, most, err := ethtool.RxRing(e.name())
		if err != nil {
			return err
		}
		return ethtool.SetRxRing(e.name(), min(most, longRing))
	},
	undo: func(e *env, s settings) error {
		n, err := strconv.ParseUint(s["rx"], 10, 32)
		if err != nil {
			return err
		}
		return ethtool.SetRxRing(e.name(), uint32(n))
	},
}

// singleBuffer is the largest MTU whose frames fit one 4096-byte chunk with the room that XDP takes.
const singleBuffer = 3506

var mtuCheck = check{
	name: "mtu", nic: true,
	why: "up to MTU 3506 a frame is one buffer; above it the driver must give XDP frames of " +
		"several buffers",
	look: func(e *env) finding {
		mtu := e.nic.Attrs().MTU
		if mtu <= singleBuffer {
			return fine("%d: one buffer for each frame (larger frames cost less per byte)", mtu)
		}
		if d, err := ring.QueryDriver(e.nic.Attrs().Index); err == nil && !d.RxSegments {
			return fail("%d, but the driver gives XDP no frames of several buffers", mtu).
				advise("ip link set %s mtu %d", e.name(), singleBuffer)
		}
		return fine("%d: several buffers for each frame", mtu)
	},
}

var numaCheck = check{
	name: "numa", nic: true,
	why: "threads and frames should be on the device's own memory node: give its processors in cpus",
	look: func(e *env) finding {
		nodes, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*")
		node, err := readNumber("/sys/class/net/" + e.name() + "/device/numa_node")
		switch {
		case len(nodes) < 2:
			return fine("the host has one memory node")
		case err != nil || node < 0:
			return fine("%s belongs to no memory node", e.name())
		}
		cpus, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", node))
		if err != nil {
			return warn("node %d: %v", node, err)
		}
		return fine("node %d: cpus should be of %s", node, strings.TrimSpace(string(cpus)))
	},
}
