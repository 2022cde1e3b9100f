package main

import (
	"fmt"
	"regexp"

	"xwarp/scripts/lab/table"
)

// kind is a driver of network cards and the emulated card that it drives.
type kind struct {
	name   string
	module string
	device string // qemu's device, with its properties
	queues int    // queues of the tap behind the card
	// Features that the driver's source has: zero-copy at an MTU up to chunkMTU, and native XDP. If such a feature is
	// not available, the trial fails.
	zeroCopy, native bool
	oneQueue         string // why several queues cannot be tested; empty: they can
	// The emulated card filters by its own MAC address again, instead of the bond's, whenever the driver activates it
	// (qemu: vmxnet3_reset_mac). As a member of a bond it must be promiscuous.
	forgetsMAC bool
	// A known bug of the driver, the rows of the table that fail because of it, and the error text that identifies it.
	// Any other error in such a row counts as xwarp's.
	fault                string
	faultRows, faultSign *regexp.Regexp
	xdpPackets           string // the counter of ethtool -S for frames that an XDP program has seen; empty: not checked
}

// best returns the best ring mode that the driver offers.
func (k kind) best() string {
	if k.zeroCopy {
		return "zero-copy"
	}
	return "copy"
}

// errDriver is wrapped by errors that a known bug of the driver causes.
var errDriver = table.ErrForeignBug

// blame wraps errDriver around an error of a row if the driver's known bug causes it. Otherwise it returns err.
func (k kind) blame(row string, err error) error {
	if err == nil || k.faultRows == nil || !k.faultRows.MatchString(row) ||
		!k.faultSign.MatchString(err.Error()) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", errDriver, k.fault, err)
}

// virtio is qemu's virtio-net with the properties that zero-copy needs: the DMA API of the platform, and no feature
// with which the driver refuses XDP.
const virtio = "virtio-net-pci,romfile=,iommu_platform=on,disable-legacy=on,host_mtu=9000,csum=off,gso=off,guest_csum=off,guest_tso4=off," +
	"guest_tso6=off,guest_ecn=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,mrg_rxbuf=on"

var kinds = []kind{
	{name: "igb", module: "igb", device: "igb,romfile=", queues: 1, zeroCopy: true, native: true,
		fault: "when free chunks run out, the driver delivers those of its ring's lap before " +
			"again, and frames overwrite each other (ring_mode auto copies on igb)",
		faultRows: regexp.MustCompile("often empty$"),
		faultSign: regexp.MustCompile(badDescriptor)},
	{name: "virtio-net", module: "virtio_net", device: virtio, queues: 1, zeroCopy: true,
		native: true, oneQueue: "the device has one queue: with several (mq=on, 8 pairs) the " +
			"guest's kernel dies in virtnet_poll of virtio_net when zero-copy is used"},
	{name: "e1000e", module: "e1000e", device: "e1000e,romfile=", queues: 1,
		oneQueue: "the card has one queue"},
	{name: "vmxnet3", module: "vmxnet3", device: "vmxnet3,romfile=", queues: 1, native: true,
		forgetsMAC: true,
		oneQueue: "the driver makes a queue for each processor, and qemu's card receives on " +
			"queue 0 alone",
		fault: "the driver forgets the XDP program whenever it stops the card " +
			"(vmxnet3_rq_cleanup_all), and ip link shows it all the same; the host's kernel " +
			"gets the frames and answers with RST until xwarp is restarted",
		faultRows:  regexp.MustCompile("link down|-G|MTU 1500 to|failovers"),
		faultSign:  regexp.MustCompile(errBypassed.Error()),
		xdpPackets: "xdp packets"},
}

// modes are the ring modes to test. Each is forced, so that no other one replaces it.
var modes = []string{"copy", "zero-copy"}
