package esp

import (
	"encoding/binary"
	"fmt"
)

// Drops counts the packets refused by In.Open.
type Drops struct {
	Short    uint64 // too short, or of an invalid length
	Replayed uint64 // a replay, or older than the anti-replay window
	Forged   uint64 // the integrity check value is wrong
	Payload  uint64 // authentic, but with invalid padding or next header
	Dummy    uint64 // authentic dummy packet (RFC 4303, 2.6)
	Expired  uint64 // beyond the hard limit of the SA
}

// In is an SA for receiving. It belongs to one thread.
type In struct {
	usage
	Drops Drops

	key    key
	spi    uint32
	mode   Mode
	window window
}

// NewIn returns an SA that has received nothing. window is in packets; 0 means DefaultWindow.
func NewIn(sa *SA, window int) (*In, error) {
	if window == 0 {
		window = DefaultWindow
	}
	if window < MinWindow || window > MaxWindow {
		return nil, fmt.Errorf("%w: anti-replay window of %d packets, want %d to %d", ErrConfig,
			window, MinWindow, MaxWindow)
	}
	in := &In{spi: sa.SPI, mode: sa.Mode, window: newWindow(window, sa.ESN)}
	if err := in.key.init(sa); err != nil {
		return nil, err
	}
	in.limits = sa.Limits
	in.limits.complete(sa.ESN)
	return in, nil
}

// Discard discards the key. Open refuses every packet from then on.
func (in *In) Discard() { in.key.discard() }

// SPI returns the SA's index.
func (in *In) SPI() uint32 { return in.spi }

// PacketSPI returns the SPI of an ESP packet. ok is false if b is too short for the header.
func PacketSPI(b []byte) (spi uint32, ok bool) {
	if len(b) < HeaderLen {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

// Open verifies and decrypts the ESP packet b in place. It returns the payload, which lies in b, and the payload's
// protocol. On an error the caller drops the packet: the content of b is undefined, and Drops has counted it. A packet
// with another SPI counts as forged. In tunnel mode the payload may be longer than the IP packet that it begins with
// (RFC 4303, 2.7).
//
// The padding is not inspected, which RFC 4303, 2.4 recommends against cut-and-paste: the ICV covers it.
func (in *In) Open(b []byte) (payload []byte, next uint8, err error) {
	if len(b) < HeaderLen+4+ICVLen || len(b)%4 != 0 {
		in.Drops.Short++
		return nil, 0, ErrShort
	}
	seq, ok := in.window.full(binary.BigEndian.Uint32(b[4:]))
	if !ok || !in.window.isNew(seq) {
		in.Drops.Replayed++
		return nil, 0, ErrReplay
	}
	copy(in.key.nonce[4:], b[8:HeaderLen])
	plain, err := in.key.aead.Open(b[HeaderLen:HeaderLen], in.key.nonce[:], b[HeaderLen:],
		in.key.associated(seq))
	if err != nil || binary.BigEndian.Uint32(b) != in.spi {
		in.Drops.Forged++
		return nil, 0, ErrIntegrity
	}
	in.window.mark(seq)
	return in.unwrap(plain)
}

// unwrap returns the payload and the next header of plain, the plain text of an authentic packet with its trailer. It
// counts a packet that it refuses.
func (in *In) unwrap(plain []byte) (payload []byte, next uint8, err error) {
	n := len(plain) - 2 - int(plain[len(plain)-2])
	next = plain[len(plain)-1]
	isPacket := next == NextIPv4 || next == NextIPv6
	switch {
	case next == nextDummy:
		in.Drops.Dummy++
		return nil, 0, ErrDummy
	case n < 0, isPacket != (in.mode == Tunnel):
		in.Drops.Payload++
		return nil, 0, ErrPayload
	case !in.allows(n):
		in.Drops.Expired++
		return nil, 0, ErrExpired
	}
	in.add(n)
	return plain[:n], next, nil
}
