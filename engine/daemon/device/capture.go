package device

import (
	"fmt"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/xdp"
	"xwarp/ring"
	"xwarp/ring/monitor"
)

// wrapper returns a function that decorates the port of a queue with other, which may be nil, and with a tap for
// captures if the configuration allows them.
func (d *Device) wrapper(other func(int, ring.Port) (ring.Port, error)) func(int, ring.Port) (
	ring.Port, error) {
	return func(queue int, p ring.Port) (ring.Port, error) {
		if other != nil {
			var err error
			if p, err = other(queue, p); err != nil {
				return nil, err
			}
		}
		if d.hub == nil {
			return p, nil
		}
		return d.hub.Wrap(p, fmt.Sprintf("%s queue %d", d.Name, queue)), nil
	}
}

// observer returns the observer of unencrypted frames for captures of the operator, or nil if the configuration allows
// no captures.
func (d *Device) observer() func(int) xdp.PlainObserver {
	if d.hub == nil {
		return nil
	}
	return func(queue int) xdp.PlainObserver {
		return d.hub.Decrypted(fmt.Sprintf("%s queue %d decrypted", d.Name, queue))
	}
}

// CaptureHub returns the hub for captures. It fails if the frames of the device cannot be captured.
func (d *Device) CaptureHub() (*monitor.Hub, error) {
	switch {
	case d.Config.Transport == config.TransportKernel:
		return nil, control.Errorf(control.CodeInvalid,
			"device %s uses kernel sockets and has no frames of its own (use tcpdump -i "+
				"INTERFACE)", d.Name)
	case d.hub == nil:
		return nil, control.Errorf(control.CodePermission,
			"the daemon was started with daemon.capture = false")
	}
	return d.hub, nil
}
