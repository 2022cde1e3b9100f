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
	receiveBatch = 64       // maximum number of frames taken from one side before the other side's turn
	ringBytes    = 16 << 20 // size of a receive ring: 8192 frames at MTU 1500, more than one window of a fast sender
	slotHeader   = 128      // most bytes that TPACKET_V2 puts before a frame (header, address, alignment)
	sendBuffer   = 8 << 20  // size of a send buffer in bytes, so large that a frame never finds it full
)

// end is one interface of the relay: an AF_PACKET socket that sends, and its receive ring.
type end struct {
	fd   int
	ring []byte
	slot int // size of a slot of the ring in bytes
	next int // index of the next slot to read
	mtu  int

	overflow, truncated, unfinished, sendErrors uint64
}

// openEnd opens the interface with the given index in the calling thread's namespace.
func openEnd(index, mtu int) (*end, error) {
	// With protocol 0 the socket receives nothing until bind names the interface and the protocol.
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

// readFrame returns the next whole frame that arrived, in a buffer of the pool, nil when there is none.
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

// copyFrame returns a copy of the frame in slot. It inserts the VLAN tag, which the kernel keeps in hdr. It returns nil
// and counts the frame in truncated if the frame is not whole.
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

// send sends a frame. A frame that the kernel refuses is counted in sendErrors.
func (e *end) send(b *impair.Buf) {
	for {
		// RawSyscall, because the runtime may take the P from a thread that is in an ordinary system call for so
		// long, about 2 us.
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

// readDrops adds the frames that the kernel has dropped since the last call to overflow. Reading the kernel's counter
// resets it.
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
