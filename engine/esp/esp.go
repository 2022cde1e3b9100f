// Package esp is the Encapsulating Security Payload of IPsec (RFC 4303) with AES-GCM (RFC 4106), in transport and
// tunnel mode, over IPv4 and IPv6. AES-CBC with HMAC-SHA256, which RFC 8221 also requires, takes seven times the CPU
// time and is omitted. Packets are sealed and opened in place, without allocations per packet. The package does no I/O
// and does not create keys.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|               Security Parameters Index (SPI)                 |
//	+---------------------------------------------------------------+
//	|                      Sequence Number                          |
//	+---------------------------------------------------------------+
//	|                            IV, 8 bytes                        |
//	|                                                               |
//	+---------------------------------------------------------------+
//	|  payload: a TCP segment (transport) or an IP packet (tunnel)  |
//	|               +-----------------------------------------------+
//	|               |     Padding (0-3 bytes)                       |
//	+---------------+---------------+-------------------------------+
//	|                               |  Pad Length   | Next Header   |
//	+---------------------------------------------------------------+
//	|                   Integrity Check Value, 16 bytes             |
//	+---------------------------------------------------------------+
package esp

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
)

// HeaderLen is the length of the SPI, the sequence number and the IV. ICVLen is the only length of the integrity check
// value that is supported: RFC 8221, 5 requires 16 bytes and discourages the shorter ones of RFC 4106.
const (
	HeaderLen = 16
	ICVLen    = 16
)

// Next headers of packets in tunnel mode (IANA protocol numbers).
const (
	NextIPv4 = 4
	NextIPv6 = 41
)

const nextDummy = 59 // RFC 4303, 2.6

// Mode is the kind of payload of an SA.
type Mode uint8

const (
	Transport Mode = iota // the payload of an IP packet
	Tunnel                // a whole IP packet, inside a new one
)

func (m Mode) String() string {
	if m == Tunnel {
		return "tunnel"
	}
	return "transport"
}

// Keymat is key material. It formats as a placeholder, so that no log or error can contain it.
type Keymat []byte

// Bits returns the length of the AES key, which the salt of 4 bytes follows.
func (k Keymat) Bits() int { return (len(k) - 4) * 8 }

// Format writes a placeholder, whatever the verb.
func (Keymat) Format(f fmt.State, _ rune) { f.Write([]byte("withheld")) }

// MarshalText returns a placeholder, for encoding/json and the handlers of log/slog.
func (Keymat) MarshalText() ([]byte, error) { return []byte("withheld"), nil }

// SA holds the parameters of a security association, for either direction.
type SA struct {
	SPI  uint32
	Mode Mode
	// Keymat is the AES key of 16 or 32 bytes, followed by the salt of 4 bytes (RFC 4106, 8.1). It is copied.
	Keymat Keymat
	ESN    bool // sequence numbers have 64 bits, of which 32 are sent (RFC 4303, 2.2.1)
	Limits Limits
}

// ErrConfig is wrapped by the errors of NewOut and NewIn.
var ErrConfig = errors.New("esp: security association")

// Errors of Seal and Open. Those of Open are the reasons for dropped packets.
var (
	ErrExpired   = errors.New("esp: hard limit of the SA reached")
	ErrShort     = errors.New("esp: packet is too short or not a multiple of 4 bytes")
	ErrReplay    = errors.New("esp: sequence number is a replay or left of the window")
	ErrIntegrity = errors.New("esp: integrity check value is wrong")
	ErrPayload   = errors.New("esp: invalid padding or next header")
	ErrDummy     = errors.New("esp: dummy packet")
)

// key is AES-GCM with its salt. It has the scratch space of one call, because the call of cipher.AEAD, an interface,
// would move local arrays to the heap.
type key struct {
	aead  cipher.AEAD
	nonce [12]byte // salt, IV (RFC 4106, 4)
	aad   [12]byte // SPI, sequence number of 4 or 8 bytes (RFC 4106, 5)
	esn   bool
}

func (k *key) init(sa *SA) error {
	n := len(sa.Keymat) - 4
	switch {
	case sa.SPI == 0: // RFC 4303, 2.1
		return fmt.Errorf("%w: SPI 0 is reserved", ErrConfig)
	case n != 16 && n != 32:
		return fmt.Errorf("%w: %d bytes of key material; AES-GCM takes a key of 16 or 32 bytes "+
			"and a salt of 4", ErrConfig, len(sa.Keymat))
	}
	block, err := aes.NewCipher(sa.Keymat[:n])
	if err == nil {
		k.aead, err = cipher.NewGCM(block)
	}
	if err != nil { // GODEBUG=fips140=only refuses explicit IVs
		return fmt.Errorf("%w: %w (AES-GCM in ESP has explicit IVs; start without "+
			"GODEBUG=fips140=only)", ErrConfig, err)
	}
	copy(k.nonce[:4], sa.Keymat[n:])
	binary.BigEndian.PutUint32(k.aad[:], sa.SPI)
	k.esn = sa.ESN
	return nil
}

// discard drops the key and the salt. Go's AES-GCM cannot overwrite its state, which stays until its memory is reused.
func (k *key) discard() { k.aead, k.nonce = discarded{}, [12]byte{} }

// discarded replaces a discarded key: it opens nothing, and must not seal.
type discarded struct{ cipher.AEAD }

func (discarded) Open(_, _, _, _ []byte) ([]byte, error) { return nil, ErrIntegrity }

// associated returns the associated data of the packet with a sequence number.
func (k *key) associated(seq uint64) []byte {
	if k.esn {
		binary.BigEndian.PutUint64(k.aad[4:], seq)
		return k.aad[:12]
	}
	binary.BigEndian.PutUint32(k.aad[4:], uint32(seq))
	return k.aad[:8]
}
