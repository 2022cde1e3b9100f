// Package topo makes and removes test topologies: two hosts, each a network namespace, joined by a veth pair
// or by a third namespace in which a relay can stand.
//
//	direct:     A eth0 ────────────────────────────── eth0 B
//	with relay: A eth0 ───── toA  [relay]  toB ────── eth0 B
//
// It speaks netlink and ioctl itself and starts no program. Namespaces are anonymous: they live as long as
// this process holds their file descriptors, so that a killed process leaves nothing behind.
//
// The links keep veth's noqueue discipline on purpose: with a queueing discipline a full ring that is
// detached wedges the veth pair for good.
package topo
