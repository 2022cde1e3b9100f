package xdp

import "xwarp/bpf"

// SteeringOf returns the steering of an AF_XDP device.
func SteeringOf(d *Device) *bpf.Steering { return d.x.steer }
