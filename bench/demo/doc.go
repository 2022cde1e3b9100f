// Package demo is the first thing that a newcomer runs: two hosts in network namespaces, one engine in each, data moved
// by every verb and compared byte by byte.
//
//	A: source ── RDMA Write ──► B: target        SHA-256 of both
//	A: sink   ◄── RDMA Read ─── B: target        SHA-256 of both
//	A: source ── Send ────────► B: inbox         SHA-256 of both
//
// Everything between the two hosts is real: veth, eBPF, AF_XDP, and with impairments a relay in a third namespace that
// mistreats the frames.
package demo
