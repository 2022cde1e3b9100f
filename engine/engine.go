// Package engine is iWARP with verbs: devices, memory regions, queue pairs, completion queues and connections. Package
// xdp opens devices over AF_XDP with the engine's own TCP, and package sockets devices over the kernel's sockets. The
// names here are those that both kinds of device share.
//
// What programs do with a device is in package verbs, which is the same for a daemon's device: package
// engine/daemon/client has the constructor for programs without privileges. The examples here are a server and its
// client, whole. On AF_XDP there are plain TCP byte streams as well: xdp.Device.DialStream and ListenStream.
//
// It is not an RDMA device of the kernel, so programs of libibverbs do not find it: "xwarp run" runs them over xwarpd.
// It does not authenticate peers (RFC 5042): Options.Policy and xdp.Config.Allow decide who may connect, and
// xdp.Config.IPsec encrypts. engine/README.md shows the way of a frame and of a Write through the packages below.
package engine

import "xwarp/engine/internal/core"

// Never is the value of a duration without an end, in Options and Keepalive.
const Never = core.Never

type (
	// Device is a device of either kind.
	Device = core.Device
	// Options are the configuration that both kinds of device share.
	Options = core.Options
	// Keepalive says when a silent peer is probed.
	Keepalive = core.Keepalive
	// Policy decides about a peer.
	Policy = core.Policy
	// Override bounds what a connection's own configuration can change.
	Override = core.Override
	// Totals are the sums of the counters of all connections of a device.
	Totals = core.Totals
	// Contained counts the faults that ended a part of a device and left the rest running.
	Contained = core.Contained
)
