package doctor

import (
	"xwarp/ring"
)

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
