package daemon_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
)

// wire has the frames that the kernel saw on network interfaces.
type wire struct {
	t  *testing.T
	fd int

	mu     sync.Mutex
	frames [][]byte
}

// snapLength is the captured length of a frame, enough for any frame of the link.
const snapLength = 4096

// tap returns a wire that captures the frames of both directions on a host's interface.
func tap(t *testing.T, h *topo.Host) *wire {
	t.Helper()
	w := &wire{t: t}
	w.fd = w.listen(t, h.Namespace, h.Link.Index, false)
	return w
}

// listen starts to capture the frames of an interface, or with arriving only those that it receives. It returns the
// packet socket.
func (w *wire) listen(t *testing.T, ns *topo.Namespace, index int, arriving bool) (fd int) {
	t.Helper()
	err := ns.Do(func() (err error) {
		all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
		if err != nil {
			return err
		}
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
				&unix.Timeval{Usec: 20_000}),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}))
	})
	if err != nil {
		t.Fatal(err)
	}
	over, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(over); <-ended; unix.Close(fd) })
	go func() {
		defer close(ended)
		buf := make([]byte, snapLength)
		for {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			if l, ok := from.(*unix.SockaddrLinklayer); ok && arriving &&
				l.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			if err == nil {
				w.mu.Lock()
				w.frames = append(w.frames, append([]byte(nil), buf[:n]...))
				w.mu.Unlock()
			}
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	return fd
}

// flow is one direction of one connection.
type flow struct{ from, to netip.AddrPort }

// stream has the bytes of a flow, each once and in order.
type stream struct {
	first uint32 // sequence number of data[0]
	data  []byte
	ahead map[uint32][]byte // segments after a gap, by sequence number
}

func (s *stream) add(seq uint32, b []byte) {
	if skip := int32(s.first + uint32(len(s.data)) - seq); skip < 0 {
		s.ahead[seq] = b
	} else if int(skip) < len(b) {
		s.data = append(s.data, b[skip:]...)
		for seq, b := range s.ahead {
			delete(s.ahead, seq)
			s.add(seq, b)
		}
	}
}

// streams returns the byte streams of all TCP connections in the frames, which gopacket decodes.
func (w *wire) streams() map[flow]*stream {
	w.t.Helper()
	streams := map[flow]*stream{}
	w.mu.Lock()
	frames := w.frames
	w.mu.Unlock()
	for _, b := range frames {
		p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.NoCopy)
		ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		tcp, _ := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if ip == nil || tcp == nil {
			continue
		}
		from, _ := netip.AddrFromSlice(ip.SrcIP)
		to, _ := netip.AddrFromSlice(ip.DstIP)
		f := flow{netip.AddrPortFrom(from, uint16(tcp.SrcPort)),
			netip.AddrPortFrom(to, uint16(tcp.DstPort))}
		s := streams[f]
		switch {
		case tcp.SYN && s == nil:
			streams[f] = &stream{first: tcp.Seq + 1, ahead: map[uint32][]byte{}}
		case tcp.SYN && s.first != tcp.Seq+1:
			w.t.Fatalf("%v has two initial sequence numbers", f)
		case len(tcp.Payload) > 0 && s == nil:
			w.t.Fatalf("%v has bytes before its SYN", f)
		case len(tcp.Payload) > 0:
			s.add(tcp.Seq, tcp.Payload)
		}
	}
	return streams
}

// bytes returns the numbers of bytes of TCP payload to and from an address.
func (w *wire) bytes(host netip.Addr) (in, out uint64) {
	w.t.Helper()
	for f, s := range w.streams() {
		if f.to.Addr() == host {
			in += uint64(len(s.data))
		} else {
			out += uint64(len(s.data))
		}
	}
	return in, out
}

// payload returns how many of the bytes that bytes counts were payload of Sends, RDMA Writes and Read Responses.
func (w *wire) payload(host netip.Addr) (in, out uint64) {
	w.t.Helper()
	stats, err := unix.GetsockoptTpacketStats(w.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil || stats.Drops != 0 {
		w.t.Fatalf("the packet socket lost frames: %+v, %v", stats, err)
	}
	for f, s := range w.streams() {
		if f.to.Addr() == host {
			in += payloadOf(s.data)
		} else {
			out += payloadOf(s.data)
		}
	}
	return in, out
}

// payloadOf parses a stream without markers by RFC 5044: a start-up frame (7.1.1), whose last two bytes are the length
// of its private data, then FPDUs (4.3). An FPDU has a length of two bytes, the ULPDU, zeros up to a multiple of four,
// and four bytes of CRC. Headers have 14 bytes in tagged segments and 18 in others (RFC 5041, 4.1). The second byte of
// a header has the RDMAP opcode; Read Requests and Terminates carry no payload (RFC 5040, 4.2).
func payloadOf(b []byte) (n uint64) {
	const startup, tagged, request, terminate = 20, 0x80, 1, 7
	if len(b) < startup {
		return 0
	}
	b = b[min(startup+int(binary.BigEndian.Uint16(b[startup-2:])), len(b)):]
	for len(b) > 4 {
		size := int(binary.BigEndian.Uint16(b))
		whole := (2+size+3)/4*4 + 4
		if whole > len(b) {
			break // the sender was killed
		}
		header := 18
		if b[2]&tagged != 0 {
			header = 14
		}
		if opcode := b[3] & 0xf; opcode != request && opcode != terminate {
			n += uint64(size - header)
		}
		b = b[whole:]
	}
	return n
}

// kernelOn returns a device on the kernel sockets of a host.
func kernelOn(t *testing.T, h *topo.Host) *core.Device {
	t.Helper()
	dev, err := sockets.Open(sockets.Config{
		Dial: h.Dial, Listen: h.Listen,
		Options: core.Options{MPA: verbs.MPAConfig{Markers: verbs.MarkersOff}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}
