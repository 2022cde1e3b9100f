// Package xfrm is a client of the kernel's IPsec configuration (NETLINK_XFRM). It takes over security associations that
// an IKE daemon installs there, so that the engine instead of the kernel sends and receives with them, and requests new
// ones from the daemon through the kernel. It works with any daemon that configures Linux by netlink.
package xfrm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/engine/esp"
)

// SA is an ESP security association as reported by the kernel. It is immutable.
type SA struct {
	esp.SA
	Src, Dst netip.Addr
	ReqID    uint32 // ties it to policies
	IfID     uint32 // of its XFRM interface; 0: none
	Mark     uint32 // required mark of packets; 0: none
	Window   int    // anti-replay window, in packets
	Packets  uint64 // sent or received with it by the kernel
	Sent     uint64 // the kernel's own send counter
	HideDSCP bool   // the outer header of a tunnel has DSCP 0 (copy_dscp = no in strongSwan)

	unusable error // why the engine cannot use it, or nil
	info     nl.XfrmUsersaInfo
	replay   []byte // XFRMA_REPLAY_ESN_VAL or nil, as the kernel gave it
	mark     []byte // XFRMA_MARK or nil
}

// String names the SA without its key.
func (sa *SA) String() string {
	return fmt.Sprintf("ESP SPI 0x%08x %s > %s", sa.SPI, sa.Src, sa.Dst)
}

// Usable returns the reason why the engine can use sa neither for sending nor for receiving, or nil.
func (sa *SA) Usable() error { return sa.unusable }

// Receivable returns an error if the engine cannot receive with sa: it is not Usable, or does not require mark of
// packets.
func (sa *SA) Receivable(mark uint32) error {
	if sa.unusable == nil && sa.Mark != mark {
		return fmt.Errorf("its mark is %#x, want %#x, so that the kernel ignores "+
			"its packets: set mark_in = %#x and mark_in_sa = yes in the IKE daemon", sa.Mark, mark,
			mark)
	}
	return sa.unusable
}

// saKey identifies an ESP SA in the kernel: SAs with different marks may share an address and SPI.
type saKey struct {
	dst  netip.Addr
	spi  uint32
	mark uint32
}

func (sa *SA) id() saKey { return saKey{sa.Dst, sa.SPI, sa.Mark} }

// requiredMark reads XFRMA_MARK, which may be absent. It returns the mark that packets must have, or 0.
func requiredMark(m []byte) uint32 {
	if len(m) < nl.SizeofXfrmMark {
		return 0
	}
	return native.Uint32(m) & native.Uint32(m[4:])
}

// aead is the kernel's name of the only algorithm of package esp.
const aead = "rfc4106(gcm(aes))"

// oseqMayWrap is the flag of an SA whose sequence numbers may wrap.
const oseqMayWrap = nl.XFRM_SA_XFLAG_OSEQ_MAY_WRAP

var errMessage = errors.New("kernel message is too short")

// parseSA reads a message with an SA. It returns nil for an SA of another protocol than ESP, and for an SPI that an IKE
// daemon reserved: its SA follows with XFRM_MSG_UPDSA.
func parseSA(b []byte) (*SA, error) {
	if len(b) < nl.SizeofXfrmUsersaInfo {
		return nil, fmt.Errorf("SA of %d bytes: %w", len(b), errMessage)
	}
	sa := &SA{}
	copy(sa.info.Serialize(), b)
	i := &sa.info
	if i.Id.Proto != unix.IPPROTO_ESP {
		return nil, nil
	}
	attrs, err := parseAttrs(b[nl.SizeofXfrmUsersaInfo:])
	if err != nil {
		return nil, fmt.Errorf("SA: %w", err)
	}
	if attrs[nl.XFRMA_ALG_AEAD] == nil && attrs[nl.XFRMA_ALG_CRYPT] == nil &&
		attrs[nl.XFRMA_ALG_AUTH] == nil && attrs[nl.XFRMA_ALG_AUTH_TRUNC] == nil {
		return nil, nil
	}
	sa.Src, sa.Dst = address(i.Saddr, i.Family), address(i.Id.Daddr, i.Family)
	sa.SPI, sa.ReqID = nl.Swap32(i.Id.Spi), i.Reqid
	sa.ESN = i.Flags&nl.XFRM_STATE_ESN != 0
	sa.Packets, sa.Window = i.Curlft.Packets, int(i.ReplayWindow)
	sa.Limits = esp.Limits{SoftBytes: i.Lft.SoftByteLimit, HardBytes: i.Lft.HardByteLimit,
		SoftPackets: i.Lft.SoftPacketLimit, HardPackets: i.Lft.HardPacketLimit}
	sa.IfID = number(attrs[nl.XFRMA_IF_ID])
	if m := attrs[nl.XFRMA_MARK]; len(m) >= nl.SizeofXfrmMark {
		sa.mark = append([]byte(nil), m[:nl.SizeofXfrmMark]...)
		sa.Mark = requiredMark(m)
	}
	sa.parseReplay(attrs)
	sa.unusable = sa.parseAlgorithm(attrs)
	return sa, nil
}

// parseReplay reads the send counter, and the window, which it limits to the sizes that package esp supports. The
// layouts are those of struct xfrm_replay_state and xfrm_replay_state_esn.
func (sa *SA) parseReplay(attrs map[uint16][]byte) {
	if b := attrs[nl.XFRMA_REPLAY_ESN_VAL]; len(b) >= nl.SizeofXfrmReplayStateEsn {
		sa.replay = append([]byte(nil), b...)
		sa.Sent = uint64(native.Uint32(b[replayOseq:]))
		if sa.ESN {
			sa.Sent |= uint64(native.Uint32(b[replayOseqHi:])) << 32
		}
		sa.Window = int(native.Uint32(b[replayWindow:]))
	} else if b := attrs[nl.XFRMA_REPLAY_VAL]; len(b) >= nl.SizeofXfrmReplayState {
		sa.Sent = uint64(native.Uint32(b))
	}
	sa.Window = min(max(sa.Window, esp.MinWindow), esp.MaxWindow)
}

// Offsets within struct xfrm_replay_state_esn.
const (
	replayOseq   = 4
	replayOseqHi = 12
	replayWindow = 20
)

// parseAlgorithm reads the mode and the key, and returns an error if package esp cannot use them.
func (sa *SA) parseAlgorithm(attrs map[uint16][]byte) error {
	switch sa.info.Mode {
	case modeTransport:
		sa.Mode = esp.Transport
	case modeTunnel:
		sa.Mode = esp.Tunnel
	default:
		return fmt.Errorf("unsupported mode %d: set mode = transport or mode = tunnel in the IKE daemon",
			sa.info.Mode)
	}
	flags := number(attrs[nl.XFRMA_SA_EXTRA_FLAGS])
	sa.HideDSCP = flags&nl.XFRM_SA_XFLAG_DONT_ENCAP_DSCP != 0
	b := attrs[nl.XFRMA_ALG_AEAD]
	switch {
	case flags&oseqMayWrap != 0:
		return errors.New("its sequence numbers may wrap: remove the oseq-may-wrap flag in the " +
			"IKE daemon")
	case attrs[nl.XFRMA_ENCAP] != nil:
		return errors.New("UDP encapsulation is not supported: use a path without " +
			"NAT, and encap = no in the IKE daemon")
	case attrs[nl.XFRMA_OFFLOAD_DEV] != nil:
		return errors.New("it is offloaded to a device: set hw_offload = no in the IKE daemon")
	case len(b) < nl.SizeofXfrmAlgoAEAD:
		return errors.New("its algorithm is not an AEAD (AES-CBC with HMAC is not supported): set " +
			"esp_proposals = aes128gcm16-esn in the IKE daemon")
	}
	name := unix.ByteSliceToString(b[:64])
	bits, icv := native.Uint32(b[64:]), native.Uint32(b[68:])
	key := b[nl.SizeofXfrmAlgoAEAD:]
	switch {
	case name != aead || icv != esp.ICVLen*8:
		return fmt.Errorf("its algorithm is %s with an ICV of %d bits: set esp_proposals = "+
			"aes128gcm16-esn in the IKE daemon", name, icv)
	case uint64(bits) > uint64(len(key))*8:
		return fmt.Errorf("key of %d bits in %d bytes: %w", bits, len(key), errMessage)
	}
	sa.Keymat = append(esp.Keymat(nil), key[:bits/8]...)
	runtime.AddCleanup(sa, func(k esp.Keymat) { clear(k) }, sa.Keymat)
	var all byte
	for _, v := range sa.Keymat {
		all |= v
	}
	if all == 0 { // by xfrm_redact of the kernel
		return errors.New("the kernel hides its key: boot without lockdown=confidentiality")
	}
	return nil
}

// maxSent returns the send counter at which the kernel can no longer send.
func (sa *SA) maxSent() uint64 {
	if sa.ESN {
		return 1<<64 - 1
	}
	return 1<<32 - 1
}

// poison returns the attribute that sets the kernel's send counter to its maximum.
func (sa *SA) poison() *nl.RtAttr {
	if sa.replay == nil {
		v := nl.XfrmReplayState{OSeq: 1<<32 - 1}
		return nl.NewRtAttr(nl.XFRMA_REPLAY_VAL, v.Serialize())
	}
	v := append([]byte(nil), sa.replay...)
	native.PutUint32(v[replayOseq:], 1<<32-1)
	if sa.ESN {
		native.PutUint32(v[replayOseqHi:], 1<<32-1)
	}
	return nl.NewRtAttr(nl.XFRMA_REPLAY_ESN_VAL, v)
}

var native = binary.NativeEndian

// number reads an attribute of 32 bits, or 0 if it is absent.
func number(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return native.Uint32(b)
}

// address reads an address, whose length depends on the family.
func address(a nl.XfrmAddress, family uint16) netip.Addr {
	if family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(a[:4]))
	}
	return netip.AddrFrom16(a)
}

// parseAttrs returns attributes by type.
func parseAttrs(b []byte) (map[uint16][]byte, error) {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, fmt.Errorf("attributes: %w", err)
	}
	m := make(map[uint16][]byte, len(list))
	for _, a := range list {
		m[a.Attr.Type&nl.NLA_TYPE_MASK] = a.Value
	}
	return m, nil
}
