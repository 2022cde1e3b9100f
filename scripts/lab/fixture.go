// Package lab has captures of connections between two soft-iWARP hosts. They are input from an independent
// implementation for the tests of all decoders.
//
// The captures are in testdata and compiled in; the self test of package vm made them (see README.md). Each holds whole
// TCP connections, from SYN to FIN, without loss or reordering, with markers off and CRC on.
package lab

import (
	"bytes"
	"embed"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

// Files are the captures, as testdata/NAME.pcap.
//
//go:embed testdata/*.pcap
var Files embed.FS

// Conn is one TCP connection of a capture.
type Conn struct {
	Client, Server netip.AddrPort
	Up             Half // client to server
	Down           Half // server to client
}

// Half is one direction of a connection.
type Half struct {
	Start    uint32    // sequence number of Stream[0]
	Stream   []byte    // all bytes in order
	Segments []Segment // the segments with payload, in the order of the capture
}

// Segment is the payload of one TCP segment: bytes [Off, Off+len(Payload)) of the stream.
type Segment struct {
	Time    time.Duration // since the capture's first frame
	Off     int
	Payload []byte
}

// startupHeader is the length of an MPA Request or Reply without its private data (RFC 5044, 7.1.1).
const startupHeader = 20

// Startup splits the stream into the MPA start-up frame, including its private data, and the FPDUs after it.
func (h *Half) Startup() (frame, fpdus []byte, err error) {
	if len(h.Stream) < startupHeader {
		return nil, nil, fmt.Errorf("a stream of %d bytes holds no start-up frame", len(h.Stream))
	}
	n := startupHeader + int(binary.BigEndian.Uint16(h.Stream[18:]))
	if n > len(h.Stream) {
		return nil, nil, fmt.Errorf("a start-up frame of %d bytes in a stream of %d", n,
			len(h.Stream))
	}
	return h.Stream[:n], h.Stream[n:], nil
}

// Read returns the connections of the capture testdata/NAME.pcap in Files, in the order of their SYNs.
func Read(name string) ([]*Conn, error) {
	data, err := Files.ReadFile("testdata/" + name + ".pcap")
	if err != nil {
		return nil, err
	}
	conns, err := Parse(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return conns, nil
}

// Parse returns the TCP connections of an Ethernet capture in pcap format. It fails if bytes of a stream are missing.
func Parse(r io.Reader) ([]*Conn, error) {
	pcap, err := pcapgo.NewReader(r)
	if err != nil {
		return nil, err
	}
	var p parser
	for n := 1; ; n++ {
		data, info, err := pcap.ReadPacketData()
		if err == io.EOF {
			return p.conns, nil
		}
		if err != nil {
			return nil, fmt.Errorf("frame %d: %w", n, err)
		}
		if n == 1 {
			p.first = info.Timestamp
		}
		if err := p.frame(data, info.Timestamp); err != nil {
			return nil, fmt.Errorf("frame %d: %w", n, err)
		}
	}
}

type parser struct {
	first time.Time
	conns []*Conn
}

func (p *parser) frame(data []byte, at time.Time) error {
	packet := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
	tcp, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok {
		return nil
	}
	if e := packet.ErrorLayer(); e != nil {
		return e.Error()
	}
	if packet.Metadata().Truncated {
		return fmt.Errorf("cut short by the capture")
	}
	src, _ := netip.AddrFromSlice(packet.NetworkLayer().NetworkFlow().Src().Raw())
	dst, _ := netip.AddrFromSlice(packet.NetworkLayer().NetworkFlow().Dst().Raw())
	from, to := netip.AddrPortFrom(src, uint16(tcp.SrcPort)),
		netip.AddrPortFrom(dst, uint16(tcp.DstPort))
	if tcp.SYN && !tcp.ACK {
		p.conns = append(p.conns, &Conn{Client: from, Server: to, Up: Half{Start: tcp.Seq + 1}})
		return nil
	}
	for i := len(p.conns) - 1; i >= 0; i-- {
		c := p.conns[i]
		switch {
		case c.Client == to && c.Server == from && tcp.SYN:
			c.Down.Start = tcp.Seq + 1
			return nil
		case c.Client == from && c.Server == to:
			return c.Up.add(tcp, at.Sub(p.first))
		case c.Client == to && c.Server == from:
			return c.Down.add(tcp, at.Sub(p.first))
		}
	}
	return fmt.Errorf("segment %v > %v of a connection whose SYN was not captured", from, to)
}

// add appends the segment to the half. The part of its payload that the stream already has is a retransmission.
func (h *Half) add(tcp *layers.TCP, at time.Duration) error {
	if len(tcp.Payload) == 0 {
		return nil
	}
	off := int(int32(tcp.Seq - h.Start))
	if off < 0 || off > len(h.Stream) {
		return fmt.Errorf("segment at stream offset %d, the stream before it ends at %d", off,
			len(h.Stream))
	}
	h.Segments = append(h.Segments, Segment{Time: at, Off: off, Payload: tcp.Payload})
	if end := off + len(tcp.Payload); end > len(h.Stream) {
		h.Stream = append(h.Stream, tcp.Payload[len(h.Stream)-off:]...)
	}
	return nil
}
