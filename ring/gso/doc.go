// Package gso transmits TCP segments in blocks through the kernel's segmentation offload. A block is segments
// of one connection that follow each other, as one frame with one set of headers. A Port, a decorator of
// ring.Ports, hands it to a packet socket with PACKET_VNET_HDR (packet(7), linux/virtio_net.h), and the
// kernel or the NIC cuts it: at the borders of the segments, so that each begins with an FPDU. Everything
// else leaves through the Port below, and everything arrives there.
//
// A block goes through the host's own output path: its queueing discipline applies, and packet sockets see it. Where no
// device completes checksums, as on veth with AF_XDP at the other end, transmit checksums of the interface must be off
// (ethtool -K INTERFACE tx off), or the frames arrive with the pseudo header's sum alone.
//
// What does not help: a transmit ring of the packet socket (PACKET_TX_RING), because software segmentation
// copies pages of user space (skb_orphan_frags), 0.93 of the rate at MTU 1500 and 0.88 at
// 9000; shorter blocks, 0.93 and 0.84 at 32 KiB; PACKET_QDISC_BYPASS, which drops whatever must be segmented.
package gso
