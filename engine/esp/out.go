package esp

import "encoding/binary"

// Out is an SA for sending. It belongs to one thread, and nothing else may send with its key: reusing a sequence number
// would reuse the nonce, and with it the key stream.
type Out struct {
	usage
	key    key
	spi    uint32
	last   uint64 // number of the last packet
	ivMask uint64
}

// NewOut returns an SA that has sent nothing. ivMask is 64 random bits, new for each Out: the IV is the sequence number
// XOR these bits, as in the kernel's seqiv. If two senders ever used one key, against all rules, their nonces would
// almost certainly differ even for equal numbers.
func NewOut(sa *SA, ivMask uint64) (*Out, error) {
	o := &Out{spi: sa.SPI, ivMask: ivMask}
	if err := o.key.init(sa); err != nil {
		return nil, err
	}
	o.limits = sa.Limits
	o.limits.complete(sa.ESN)
	return o, nil
}

// Discard discards the key. Seal returns ErrExpired from then on.
func (o *Out) Discard() {
	o.key.discard()
	o.last = none
}

// SPI returns the SA's index, chosen by the receiver.
func (o *Out) SPI() uint32 { return o.spi }

// Seal turns the n bytes of payload at b[HeaderLen:] into an ESP packet at the beginning of b, in place. It returns the
// packet's length, n+Overhead(n), which b must hold. next is the payload's protocol, in tunnel mode NextIPv4 or
// NextIPv6. The only error is ErrExpired.
func (o *Out) Seal(b []byte, n int, next uint8) (int, error) {
	if !o.allows(n) || o.last == none {
		return 0, ErrExpired
	}
	o.last++ // first, so that the number is not reused after any failure
	o.add(n)
	pad := padding(n)
	end := HeaderLen + n
	for i := range pad {
		b[end+i] = byte(i + 1)
	}
	end += pad + 2
	b[end-2], b[end-1] = byte(pad), next
	binary.BigEndian.PutUint32(b, o.spi)
	binary.BigEndian.PutUint32(b[4:], uint32(o.last))
	binary.BigEndian.PutUint64(b[8:], o.last^o.ivMask)
	copy(o.key.nonce[4:], b[8:HeaderLen])
	aad := o.key.associated(o.last)
	o.key.aead.Seal(b[HeaderLen:HeaderLen], o.key.nonce[:], b[HeaderLen:end:end+ICVLen], aad)
	return end + ICVLen, nil
}

// Sent reports whether low is the low half of one of the last within sequence numbers that were sent. An ICMP error
// that quotes another number is forged or too old (like those of TCP in RFC 5927, 4.1).
func (o *Out) Sent(low uint32, within uint64) bool {
	age := uint64(uint32(o.last) - low)
	return age < within && age < o.last
}
