package doctor

import (
	"strconv"

	"xwarp/engine/host/ethtool"
	"xwarp/ring"
)

// shortRing is the receive ring below which a burst of a 64 KiB window's frames overruns the device.
const shortRing = 512

// longRing is what a short ring is made, at most: with zero-copy the device's ring takes its entries from the chunks of
// the socket, and as many must be left for frames that wait in the socket's.
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
