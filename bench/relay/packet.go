package relay

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/bench/relay/impair"
)

const (
	receiveBatch = 64       // frames taken from one side before the other has its turn
	ringBytes    = 16 << 20 // per side; 8,192 frames at MTU 1500, more than one window of a fast sender
	slotHeader   = 128      // most bytes that TPACKET_V2 puts before a frame (header, address, alignment)
	sendBuffer   = 8 << 20  // a frame must never meet a full socket
)

// end is one interface: a receive ring and a sender.
type end struct {
	fd   int
	ring []byte
	slot int // bytes
	next int // index of the slot that the kernel fills next
	mtu  int

	overflow, truncated, unfinished, sendErrors uint64
}

// openEnd opens the interface with that index in the calling thread's namespace.
func openEnd(index, mtu int) (*end, error) {
	// Protocol 0 receives nothing until bind names the interface.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("AF_PACKET socket (CAP_NET_RAW): %w", err)
	}
	e := &end{fd: fd, mtu: mtu}
	if err := e.setUp(index); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *end) setUp(index int) error {
	e.slot = 1 << bits.Len(uint(e.mtu+impair.FrameOverhead+slotHeader-1))
	block := max(e.slot, 64<<10, os.Getpagesize())
	req := unix.TpacketReq{
		Block_size: uint32(block), Block_nr: uint32(ringBytes / block),
		Frame_size: uint32(e.slot), Frame_nr: uint32(ringBytes / block * (block / e.slot)),
	}
	for _, o := range []struct {
		name  string
		opt   int
		value int
	}{
		{"PACKET_VERSION", unix.PACKET_VERSION, unix.TPACKET_V2},
		{"PACKET_IGNORE_OUTGOING", unix.PACKET_IGNORE_OUTGOING, 1},
	} {
		if err := unix.SetsockoptInt(e.fd, unix.SOL_PACKET, o.opt, o.value); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	if err := unix.SetsockoptTpacketReq(e.fd, unix.SOL_PACKET, unix.PACKET_RX_RING,
		&req); err != nil {
		return fmt.Errorf("PACKET_RX_RING of %d bytes: %w", ringBytes, err)
	}
	promiscuous := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(e.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
		&promiscuous); err != nil {
		return fmt.Errorf("promiscuous mode: %w", err)
	}
	if err := unix.SetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE,
		sendBuffer); err != nil {
		return fmt.Errorf("SO_SNDBUFFORCE: %w", err)
	}
	var err error
	e.ring, err = unix.Mmap(e.fd, 0, int(req.Block_size*req.Block_nr),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping the receive ring: %w", err)
	}
	all := uint16(unix.ETH_P_ALL)
	if err := unix.Bind(e.fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8,
		Ifindex: index}); err != nil {
		return fmt.Errorf("binding to the interface: %w", err)
	}
	return nil
}

// readFrame returns the next frame that arrived, in a buffer of the pool, nil when there is none.
func (e *end) readFrame(pool *impair.Pool) *impair.Buf {
	for {
		hdr := (*unix.Tpacket2Hdr)(unsafe.Pointer(&e.ring[e.next*e.slot]))
		status := atomic.LoadUint32(&hdr.Status)
		if status&unix.TP_STATUS_USER == 0 {
			return nil
		}
		slot := e.ring[e.next*e.slot : (e.next+1)*e.slot]
		b := e.copyFrame(slot, hdr, status, pool)
		atomic.StoreUint32(&hdr.Status, unix.TP_STATUS_KERNEL)
		if e.next++; e.next*e.slot == len(e.ring) {
			e.next = 0
		}
		if b != nil {
			return b
		}
	}
}

// copyFrame copies the frame out of its slot, with the VLAN tag that the kernel keeps apart put back; nil when it
// is not whole.
func (e *end) copyFrame(slot []byte, hdr *unix.Tpacket2Hdr, status uint32,
	pool *impair.Pool) *impair.Buf {
	const macs, vlanTag = 12, 4
	n, at := int(hdr.Snaplen), int(hdr.Mac)
	tag := 0
	if status&unix.TP_STATUS_VLAN_VALID != 0 {
		tag = vlanTag
	}
	if hdr.Len != hdr.Snaplen || n < macs || at+n > len(slot) || n+tag > pool.Size() {
		e.truncated++
		return nil
	}
	if status&unix.TP_STATUS_CSUMNOTREADY != 0 {
		e.unfinished++
	}
	frame := slot[at : at+n]
	b := pool.Get(n + tag)
	if tag == 0 {
		copy(b.Data, frame)
		return b
	}
	tpid := uint16(unix.ETH_P_8021Q)
	if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		tpid = hdr.Vlan_tpid
	}
	copy(b.Data, frame[:macs])
	binary.BigEndian.PutUint16(b.Data[macs:], tpid)
	binary.BigEndian.PutUint16(b.Data[macs+2:], hdr.Vlan_tci)
	copy(b.Data[macs+vlanTag:], frame[macs:])
	return b
}

// send sends a frame; one that the interface refuses is counted.
func (e *end) send(b *impair.Buf) {
	for {
		// RawSyscall: in an ordinary system call of this length, about 2 us, the thread loses its P.
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(e.fd),
			uintptr(unsafe.Pointer(&b.Data[0])), uintptr(len(b.Data)))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			e.sendErrors++
		}
		return
	}
}

// readDrops adds the kernel's count of dropped frames, which reading resets.
func (e *end) readDrops() {
	if e.fd < 0 {
		return
	}
	if s, err := unix.GetsockoptTpacketStats(e.fd, unix.SOL_PACKET,
		unix.PACKET_STATISTICS); err == nil {
		e.overflow += uint64(s.Drops)
	}
}

func (e *end) close() {
	if e.fd < 0 {
		return
	}
	e.readDrops()
	if e.ring != nil {
		unix.Munmap(e.ring)
		e.ring = nil
	}
	unix.Close(e.fd)
	e.fd = -1
}
