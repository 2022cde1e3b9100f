package rdmap

import (
	"unsafe"

	"xwarp/ddp"
)

// Footprint returns the most bytes that a queue pair allocates: its queues, whose sizes are powers of two, with the
// memory of each work request, and the tables of Reads and atomics.
func (c *Config) Footprint() int {
	sends, recvs := ringSize(c.SendDepth), ringSize(c.RecvDepth)
	pieces, regions := c.MaxSGE*int(unsafe.Sizeof([]byte(nil))),
		c.MaxSGE*int(unsafe.Sizeof((*ddp.MR)(nil)))
	groups := max(1, sends/inlineStep)
	return int(unsafe.Sizeof(QP{})) +
		Allocated(sends*int(unsafe.Sizeof(sendWQE{}))) + Allocated(sends*pieces) + Allocated(
		sends*regions) +
		groups*Allocated(sends/groups*c.MaxInline) +
		Allocated(recvs*int(unsafe.Sizeof(recvWQE{}))) + Allocated(recvs*pieces) + Allocated(
		recvs*regions) +
		Allocated(ringSize(max(c.MaxORD, 1))*int(unsafe.Sizeof(outboundRead{}))) +
		Allocated(ringSize((1+ackSlack)*max(c.MaxIRD, 1))*int(unsafe.Sizeof(inboundRequest{})))
}

// Footprint returns the number of bytes that a shared receive queue allocates.
func (c *SRQConfig) Footprint() int {
	n := ringSize(c.Depth)
	piece := int(unsafe.Sizeof([]byte(nil))) + int(unsafe.Sizeof((*ddp.MR)(nil)))
	return int(unsafe.Sizeof(SRQ{})) + Allocated(c.Depth*int(unsafe.Sizeof(recvWQE{}))) +
		Allocated(c.Depth*c.MaxSGE*piece) + 2*Allocated(n*4)
}

// Allocated estimates how many bytes of the heap an allocation of n bytes takes: whole pages for a large one, otherwise
// n and the usual waste of a size class.
func Allocated(n int) int {
	const large, page = 32 << 10, 8 << 10
	if n > large {
		return (n + page - 1) &^ (page - 1)
	}
	return n + n/8
}
