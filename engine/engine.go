// Package engine is iWARP with verbs: devices, memory regions, queue pairs, completion queues and connections. Package
// xdp opens devices over AF_XDP with the engine's own TCP, and package sockets devices over the kernel's sockets. The
// names here are those that both kinds of device share.
//
// What programs do with a device is in package verbs, which is the same for a daemon's device: package
// engine/daemon/client has the constructor for programs without privileges. The examples here are a server and its
// client, whole. On AF_XDP there are plain TCP byte streams as well: xdp.Device.DialStream and ListenStream.
//
// It is no RDMA device of the kernel, so that programs of libibverbs do not find it: they run over xwarpd, by xwarp
// run. It neither authenticates peers nor encrypts (RFC 5042): who may connect is for Options.Policy and
// xdp.Config.Allow. engine/README.md draws the way of a frame and of a Write through the packages below.
package engine

import "xwarp/engine/internal/core"

type (
	// Device is a device of either kind.
	Device = core.Device
	// Options are what both kinds of device have in common.
	Options = core.Options
	// Keepalive says when a silent peer is asked whether it is still there.
	Keepalive = core.Keepalive
	// Policy decides about a peer.
	Policy = core.Policy
	// Override bounds what a connection's own configuration can change.
	Override = core.Override
	// Totals are the sums of what all connections of a device counted.
	Totals = core.Totals
	// Contained counts what ended a part of a device and nothing else.
	Contained = core.Contained
)
