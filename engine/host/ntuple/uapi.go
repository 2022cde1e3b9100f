package ntuple

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Parts of linux/ethtool.h that x/sys does not have.
const (
	tcpV4Flow    = 0x01       // TCP_V4_FLOW
	tcpV6Flow    = 0x05       // TCP_V6_FLOW
	flowRSS      = 0x20000000 // FLOW_RSS: fs.ring_cookie is added to the entry of the context's table
	locSpecial   = 0x80000000 // RX_CLS_LOC_SPECIAL, in an answer: the driver chooses locations
	locAny       = 0xffffffff // RX_CLS_LOC_ANY: location of a new rule, to be chosen by the driver
	contextAlloc = 0xffffffff // ETH_RXFH_CONTEXT_ALLOC
)

// flowSpec is struct ethtool_rx_flow_spec. The fields h are values and the fields m are masks: a header matches if it
// equals the value in each bit set in the mask.
type flowSpec struct {
	flowType   uint32
	hU         [52]byte // union ethtool_flow_union
	hExt       [20]byte // struct ethtool_flow_ext
	mU         [52]byte
	mExt       [20]byte
	ringCookie uint64
	location   uint32
}

// rxnfc is struct ethtool_rxnfc, without rule_locs.
type rxnfc struct {
	cmd, flowType uint32
	data          uint64
	fs            flowSpec
	ruleCnt       uint32 // or rss_context
}

// ruleLocs is the offset of rule_locs.
const ruleLocs = int(unsafe.Offsetof(rxnfc{}.ruleCnt)) + 4

// encode returns the structure as bytes, which the kernel reads and writes.
func (n *rxnfc) encode() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(n)), unsafe.Sizeof(*n))
}

// ports returns the offset of the source port in hU and mU; the destination port follows it.
func ports(flowType uint32) int {
	if flowType&^flowRSS == tcpV6Flow {
		return 32 // struct ethtool_tcpip6_spec, after two addresses
	}
	return 8 // struct ethtool_tcpip4_spec
}

// insertion returns the command that adds r at a location.
func insertion(r Rule, location uint32) *rxnfc {
	n := &rxnfc{cmd: unix.ETHTOOL_SRXCLSRLINS}
	n.fs.flowType, n.fs.location = tcpV4Flow, location
	if r.V6 {
		n.fs.flowType = tcpV6Flow
	}
	at := ports(n.fs.flowType)
	for i, p := range []uint16{r.SrcPort, r.DstPort} {
		if p != 0 {
			binary.BigEndian.PutUint16(n.fs.hU[at+2*i:], p)
			binary.BigEndian.PutUint16(n.fs.mU[at+2*i:], 0xffff)
		}
	}
	n.fs.ringCookie = uint64(r.Queue)
	if r.Context != 0 {
		n.fs.flowType |= flowRSS
		n.ruleCnt, n.fs.ringCookie = r.Context, 0
	}
	return n
}

// parse decodes a rule of the driver. It returns false for a rule that Rule cannot express.
func parse(n *rxnfc) (r Rule, ok bool) {
	r.Location, r.Queue = n.fs.location, int(n.fs.ringCookie)
	if n.fs.flowType&flowRSS != 0 {
		r.Context = n.ruleCnt
	}
	kind := n.fs.flowType &^ flowRSS
	if kind != tcpV4Flow && kind != tcpV6Flow || n.fs.ringCookie > maxQueue {
		return r, false
	}
	r.V6 = kind == tcpV6Flow
	at, mask := ports(kind), n.fs.mU
	for i, p := range []*uint16{&r.SrcPort, &r.DstPort} {
		if binary.BigEndian.Uint16(mask[at+2*i:]) == 0xffff {
			*p = binary.BigEndian.Uint16(n.fs.hU[at+2*i:])
			clear(mask[at+2*i:][:2])
		}
	}
	return r, mask == [52]byte{}
}

// Rules lists the rules that Rule can express; more counts the others.
func Rules(c Card) (list []Rule, more int, err error) {
	locations, _, err := used(c)
	if err != nil {
		return nil, 0, err
	}
	for _, at := range locations {
		n := &rxnfc{cmd: unix.ETHTOOL_GRXCLSRULE}
		n.fs.location = at
		if err := c.Ioctl(n.encode()); err != nil {
			return nil, 0, fmt.Errorf("ethtool -n %s rule %d: %w", c.Name(), at, err)
		}
		if r, ok := parse(n); ok {
			list = append(list, r)
		} else {
			more++
		}
	}
	return list, more, nil
}

// used returns the locations of all rules, and the table's size: 0 if the driver chooses locations or reports none.
func used(c Card) (locations []uint32, size uint32, err error) {
	n := &rxnfc{cmd: unix.ETHTOOL_GRXCLSRLCNT}
	if err := c.Ioctl(n.encode()); err != nil {
		return nil, 0, fmt.Errorf("ethtool -n %s: %w", c.Name(), err)
	}
	count := min(n.ruleCnt, maxRules)
	b := make([]byte, ruleLocs+4*int(count))
	copy(b, (&rxnfc{cmd: unix.ETHTOOL_GRXCLSRLALL, ruleCnt: count}).encode()[:ruleLocs])
	if err := c.Ioctl(b); err != nil {
		return nil, 0, fmt.Errorf("ethtool -n %s: %w", c.Name(), err)
	}
	count = min(count, binary.NativeEndian.Uint32(b[ruleLocs-4:]))
	for i := range int(count) {
		locations = append(locations, binary.NativeEndian.Uint32(b[ruleLocs+4*i:]))
	}
	if n.data&locSpecial == 0 {
		size = uint32(binary.NativeEndian.Uint64(b[8:]))
	}
	return locations, size, nil
}

// insert adds a rule at a free location, searching from the end like ethtool. If the driver chooses locations, or does
// not report the size of its table, insert leaves the choice to the driver.
func insert(c Card, r Rule) error {
	locations, size, err := used(c)
	if err != nil {
		return err
	}
	at := uint32(locAny)
	for i := size; i > 0 && at == locAny; i-- {
		if !slices.Contains(locations, i-1) {
			at = i - 1
		}
	}
	if size > 0 && at == locAny {
		err = unix.ENOSPC
	} else {
		err = c.Ioctl(insertion(r, at).encode())
	}
	if err != nil {
		return fmt.Errorf("ethtool -N %s %v: %w", c.Name(), r, err)
	}
	return nil
}

// remove deletes a rule.
func remove(c Card, location uint32) error {
	n := &rxnfc{cmd: unix.ETHTOOL_SRXCLSRLDEL}
	n.fs.location = location
	if err := c.Ioctl(n.encode()); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("ethtool -N %s delete %d: %w", c.Name(), location, err)
	}
	return nil
}
