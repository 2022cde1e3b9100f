package engine

import (
	"unsafe"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// Footprint returns the octets that this process allocates at most for a queue pair and its connection,
// without what all connections of a worker share: frames, and the pool for octets out of order.
func (d *Device) Footprint(cfg *verbs.QPConfig) int {
	core := rdmap.Config{
		SendDepth: cfg.SendDepth, RecvDepth: cfg.RecvDepth, MaxSGE: cfg.MaxSGE,
		MaxInline: cfg.MaxInline, MaxIRD: cfg.IRD, MaxORD: cfg.ORD,
	}
	list := cfg.MaxSGE * int(unsafe.Sizeof(verbs.SGE{}))
	sends, recvs := slots(cfg.SendDepth), slots(cfg.RecvDepth)
	posted := rdmap.Allocated(sends*int(unsafe.Sizeof(postedSend{}))) +
		sends*(rdmap.Allocated(list)+rdmap.Allocated(cfg.MaxInline)) +
		rdmap.Allocated(recvs*int(unsafe.Sizeof(postedRecv{}))) + recvs*rdmap.Allocated(list)
	return core.Footprint() + posted + int(unsafe.Sizeof(QP{})) + d.drv.footprint(true)
}

// ConnFootprint is what a connection takes before it has a queue pair.
func (d *Device) ConnFootprint() int { return d.drv.footprint(false) }
