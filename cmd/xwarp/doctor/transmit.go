package doctor

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"xwarp/engine/xdp"
	"xwarp/ring"
	"xwarp/ring/gso"
)

// The transmit modes are measured in several short interleaved turns, two seconds in all.
const (
	transmitTurns = 3
	transmitTurn  = 2 * time.Second / (2 * transmitTurns)
	// clearly is the minimum speed-up for which another mode is advised.
	clearly = 1.15
	// measuredBatch is the number of frames sent through AF_XDP before a flush.
	measuredBatch = 256
)

var transmitCheck = check{
	name: "transmit", nic: true,
	why: "on veth, blocks of 64 KB are faster than frames; on other drivers only a measurement shows " +
		"the fastest mode",
	look: func(e *env) finding {
		auto := xdp.AutoOn(e.nic)
		if !e.opt.Measure {
			return fine("%q selects %s; not measured (--measure sends frames for two seconds)",
				xdp.TransmitAuto, auto)
		}
		if e.isServed() {
			return warn("not measured: xwarpd or another xwarp process uses the queues of %s",
				e.name()).advise("systemctl stop xwarpd, or stop the other process; then "+
				"xwarp doctor --interface %s --only transmit --measure", e.name())
		}
		return compareModes(e.measureTransmit(), auto)
	},
}

// transmitMode is one transmit mode, measured with packets as long as the MTU.
type transmitMode struct {
	name   xdp.Transmit
	packet int                 // bytes
	err    error               // the mode is not available
	send   func() (frames int) // sends a batch; returns 0 if the device is busy
	close  func() error
	rate   float64 // packets per second in the best turn
}

// gbps returns the payload rate in Gbit/s.
func (w *transmitMode) gbps() float64 {
	return w.rate * float64(w.packet+transmitIPAt-transmitHeaders) * 8 / 1e9
}

// measureTransmit sends frames with each mode. Their source and destination MAC addresses are the interface's own, so
// the next switch drops them.
func (e *env) measureTransmit() (ways []*transmitMode) {
	mtu := e.nic.Attrs().MTU
	try := func(name xdp.Transmit, packet int,
		open func([]byte) (func() int, func() error, error)) {
		w := &transmitMode{name: name, packet: packet}
		w.send, w.close, w.err = open(transmitFrame(e.nic.Attrs().HardwareAddr, packet))
		ways = append(ways, w)
	}
	try(xdp.TransmitXDP, mtu, e.openXDP)
	try(xdp.TransmitGSO, mtu, e.openBlocks)
	for range transmitTurns {
		for _, w := range ways {
			if w.err == nil {
				w.rate = max(w.rate, w.measure())
			}
		}
	}
	for _, w := range ways {
		if w.err == nil {
			w.close()
		}
	}
	return ways
}

func (w *transmitMode) measure() float64 {
	from, n := time.Now(), 0
	for time.Since(from) < transmitTurn {
		got := w.send()
		if n += got; got == 0 {
			time.Sleep(50 * time.Microsecond)
		}
	}
	return float64(n) / time.Since(from).Seconds()
}

// compareModes compares the measurements with the mode that "auto" selects.
func compareModes(ways []*transmitMode, auto xdp.Transmit) finding {
	slices.SortStableFunc(ways, func(a, b *transmitMode) int {
		return cmp.Compare(b.gbps(), a.gbps())
	})
	var results []string
	var taken float64
	for _, w := range ways {
		if w.err != nil {
			results = append(results, fmt.Sprintf("%s: %s", w.name,
				strings.TrimPrefix(w.err.Error(), fmt.Sprintf("transmit %q: ", w.name))))
			continue
		}
		results = append(results, fmt.Sprintf("%s %.3g Gbit/s in packets of %d bytes", w.name,
			w.gbps(), w.packet))
		if w.name == auto {
			taken = w.gbps()
		}
	}
	best, summary := ways[0], strings.Join(results, ", ")
	switch {
	case best.rate == 0:
		return finding{Warn, "no transmit mode works: " + summary, ""}
	case best.name != auto && best.gbps() > clearly*taken:
		return warn("%s; %q selects %s", summary, xdp.TransmitAuto, auto).
			advise("set transmit = %q in the [[interface]] table of /etc/xwarp/xwarp.toml, then "+
				"systemctl restart xwarpd", best.name)
	}
	return fine("%s; %q selects %s", summary, xdp.TransmitAuto, auto)
}

// Offsets in the frame.
const (
	transmitIPAt    = 14
	transmitHeaders = transmitIPAt + 20 + 20
)

// transmitFrame returns an Ethernet frame from mac to mac. It has a TCP/IPv4 packet of mtu bytes between documentation
// addresses (RFC 5737).
func transmitFrame(mac []byte, mtu int) []byte {
	b := make([]byte, transmitIPAt+mtu)
	copy(b, mac)
	copy(b[6:], mac)
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	h := b[transmitIPAt:]
	h[0], h[8], h[9] = 0x45, 1, 6
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
	copy(h[12:], []byte{192, 0, 2, 1, 192, 0, 2, 2})
	binary.BigEndian.PutUint16(h[20:], 9) // discard
	binary.BigEndian.PutUint16(h[22:], 9)
	h[32], h[33] = 5<<4, 0x10
	return b
}

// openXDP opens an AF_XDP socket, in copy mode if zero-copy could disturb the link: some drivers reset it.
func (e *env) openXDP(frame []byte) (send func() int, closeAll func() error, err error) {
	mode := ring.ModeAuto
	if unsafeToTry(e.nic) != "" {
		mode = ring.ModeCopy
	}
	s, err := ring.Open(ring.Config{Ifindex: e.nic.Attrs().Index, Queue: uint32(e.opt.Queues[0]),
		TxSlot: ring.SlotFor(len(frame)), Mode: mode})
	if err != nil {
		return nil, nil, err
	}
	return func() int { return sendThrough(s, frame) }, s.Close, nil
}

// sendThrough sends a batch of frames and returns the number of completed transmissions.
func sendThrough(p ring.Port, frame []byte) int {
	before := p.Stats().TxCompleted
	for range measuredBatch {
		b, ok := p.AllocTx()
		if !ok {
			break
		}
		p.Send(b, copy(b.Data, frame))
	}
	p.Flush()
	p.Reap()
	return int(p.Stats().TxCompleted - before)
}

func (e *env) openBlocks(frame []byte) (send func() int, closeAll func() error, err error) {
	s, err := gso.OpenSender(e.nic.Attrs().Index)
	if err != nil {
		return nil, nil, err
	}
	shape := gso.Shape{IPAt: transmitIPAt, Headers: transmitHeaders,
		Payload: len(frame) - transmitHeaders}
	block := gso.NewBlock(gso.MaxBlock)
	n := (gso.MaxBlock - transmitHeaders) / shape.Payload
	size := transmitHeaders + n*shape.Payload
	copy(block.Frame(), frame[:transmitHeaders])
	return func() int {
		for at := transmitHeaders; at < size; at += shape.Payload { // copied each time, as the engine does
			copy(block.Frame()[at:], frame[transmitHeaders:])
		}
		if s.Send(block, size, &shape) != 0 {
			return 0
		}
		return n
	}, s.Close, nil
}
