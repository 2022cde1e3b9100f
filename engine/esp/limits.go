package esp

// Limits bound the use of an SA. A field that is 0, or all ones (the kernel's value for no limit), selects the default.
// A soft default is at most nine tenths of the hard limit, if there is one. Bytes are payload bytes. The kernel and the
// IKE daemon handle time limits.
type Limits struct {
	SoftBytes, HardBytes     uint64 // defaults: 2^38 or less, and 2^40
	SoftPackets, HardPackets uint64 // defaults: no limit, or 2^32-1 without ESN
}

// Defaults. Confidentiality of GCM degrades with the square of the number of blocks under one key: after 2^40 bytes
// the advantage of an attacker is below 2^-55.
const (
	defaultSoftBytes = 1 << 38
	defaultHardBytes = 1 << 40
)

const none = 1<<64 - 1

// Window sizes in packets. A peer with several queues reorders more than the 32 packets of RFC 4303, 3.4.3. A window of
// MaxWindow takes 16 KiB.
const (
	MinWindow     = 32
	DefaultWindow = 1024
	MaxWindow     = 1 << 17
)

// complete sets the defaults of the absent fields of l.
func (l *Limits) complete(esn bool) {
	set := func(v *uint64, to uint64) {
		if *v == 0 || *v == none {
			*v = to
		}
	}
	hardPackets := uint64(none)
	if !esn { // a number is never reused (RFC 4303, 3.3.3)
		hardPackets = 1<<32 - 1
	}
	set(&l.HardPackets, hardPackets)
	l.HardPackets = min(l.HardPackets, hardPackets)
	softPackets := uint64(none)
	if l.HardPackets != none {
		softPackets = l.HardPackets - l.HardPackets/10
	}
	set(&l.SoftPackets, softPackets)
	set(&l.HardBytes, defaultHardBytes)
	set(&l.SoftBytes, min(defaultSoftBytes, l.HardBytes-l.HardBytes/10))
}

// usage is the use of an SA so far.
type usage struct {
	limits         Limits
	bytes, packets uint64
}

// allows reports whether a packet with n bytes of payload is within the hard limits.
func (u *usage) allows(n int) bool {
	return u.packets < u.limits.HardPackets && uint64(n) <= u.limits.HardBytes &&
		u.bytes <= u.limits.HardBytes-uint64(n)
}

func (u *usage) add(n int) {
	u.packets++
	u.bytes += uint64(n)
}

// Used returns the packets and the bytes of payload so far.
func (u *usage) Used() (packets, bytes uint64) { return u.packets, u.bytes }

// NeedsRekey reports whether a soft limit is reached: the IKE daemon must be asked for a successor.
func (u *usage) NeedsRekey() bool {
	return u.packets >= u.limits.SoftPackets || u.bytes >= u.limits.SoftBytes
}
