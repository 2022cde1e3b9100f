package main

// kind is a driver, and the emulated card that it drives.
type kind struct {
	name   string
	module string
	device string // of qemu
	queues int    // of the tap
	// What the driver's source has, so that its absence is a failure: zero-copy at an MTU whose frames fit a
	// chunk, native XDP.
	zeroCopy, native bool
	oneQueue         string // why several cannot be tried
}

// best is the mode that the driver has and users want.
func (k kind) best() string {
	if k.zeroCopy {
		return "zero-copy"
	}
	return "copy"
}

// virtio is virtio-net as a device whose driver may bind zero-copy: with the platform's DMA, and without what
// XDP forbids.
// Its driver adds a queue for each processor when a program comes.
const virtio = "virtio-net-pci,romfile=,mq=on,vectors=18,iommu_platform=on,disable-legacy=on,host_mtu=9000,csum=off,gso=off,guest_csum=off,guest_tso4=off," +
	"guest_tso6=off,guest_ecn=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,mrg_rxbuf=on"

var kinds = []kind{
	{name: "igb", module: "igb", device: "igb,romfile=", queues: 1, zeroCopy: true, native: true},
	{name: "virtio-net", module: "virtio_net", device: virtio, queues: 8, zeroCopy: true,
		native: true},
	{name: "e1000e", module: "e1000e", device: "e1000e,romfile=", queues: 1,
		oneQueue: "the card has one queue"},
	{name: "vmxnet3", module: "vmxnet3", device: "vmxnet3,romfile=", queues: 1, native: true,
		oneQueue: "the driver makes a queue for each processor, and qemu's card receives on " +
			"queue 0 alone"},
}

// modes are the ways in which frames reach memory, each forced.
var modes = []string{"copy", "zero-copy"}
