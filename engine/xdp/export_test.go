package xdp

import "xwarp/bpf"

// SteeringOf returns the steering of a device on AF_XDP.
func SteeringOf(d *Device) *bpf.Steering { return d.x.steer }
