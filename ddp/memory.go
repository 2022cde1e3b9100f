package ddp

import (
	"errors"
	"fmt"
	"strings"
)

// Access is a set of access rights on a memory region.
type Access uint8

// The rights. Local reading needs none. RemoteAtomic is a right of its own: no other right implies it. RFC 7306 names
// no right for atomics.
const (
	LocalWrite Access = 1 << iota // target of receives, Read responses and atomic results
	RemoteRead
	RemoteWrite
	RemoteAtomic
	BindMW // memory windows may be bound to it

	remoteAny = RemoteRead | RemoteWrite | RemoteAtomic
	accessAll = LocalWrite | remoteAny | BindMW
)

func (a Access) String() string {
	var s []string
	for i, n := range [...]string{"local-write", "remote-read", "remote-write", "remote-atomic",
		"mw-bind"} {
		if a&(1<<i) != 0 {
			s = append(s, n)
		}
	}
	if len(s) == 0 {
		return "local-read"
	}
	return strings.Join(s, "|")
}

// StreamID names one DDP stream of a worker. 0 names no stream: a region with it is for every stream of its domain.
type StreamID uint64

// PD is a protection domain. Streams reach only the regions of their own domain.
type PD struct {
	table         *Table
	regions       int
	streams       int         // attached in this table
	sharedStreams SharedCount // attached in all tables of the domain; nil if no other table has it
}

// ShareStreamCount makes p count its streams also in all, a count that the same domain shares in all tables. No stream
// may be attached yet.
func (p *PD) ShareStreamCount(all SharedCount) { p.sharedStreams = all }

// Attach counts a stream of the domain; a queue pair calls it in Init. A peer cannot invalidate a region that several
// streams share (RFC 5040, 8.1.1, item 7).
func (p *PD) Attach() { p.addStreams(1) }

// Detach undoes Attach.
func (p *PD) Detach() { p.addStreams(-1) }

func (p *PD) addStreams(n int) {
	p.streams += n
	if p.sharedStreams != nil {
		p.sharedStreams.Add(uint64(n))
	}
}

// isShared reports whether several streams reach the domain's regions.
func (p *PD) isShared() bool {
	return p.streams > 1 || p.sharedStreams != nil && p.sharedStreams.Load() > 1
}

// MR is one registered memory region: bytes that an STag names. The binding of a memory window is an MR with a parent.
type MR struct {
	pd     *PD
	stream StreamID
	stag   STag
	access Access
	state  mrState
	base   TO
	mem    []byte
	parent *MR     // the region a window is bound to; nil for a region
	window *Window // the window of the binding; nil for a region
	// shared counts invalidations of the region, or bindings of the window, in all tables. It is nil for a region or
	// window of this table alone.
	shared      SharedCount
	sharedCount uint64 // value of shared while the STag is valid
	holds       int    // queued work that refers to mem, and windows bound to it
	lost        bool
	owner       any
}

type mrState uint8

const (
	mrDeregistered      mrState = iota // never registered, or deregistered
	mrValid                            // the STag is in the table
	mrInvalidatedByPeer                // invalidated by the peer's Send with Invalidate
	mrRevoked                          // invalidated locally
)

// Attr describes a region to register.
type Attr struct {
	Access Access
	// Base is the TO of the first byte. The zero value makes the region zero-based; an
	// address makes it virtual-address style.
	Base TO
	// Stream limits the region to one stream; 0 gives it to all streams of the domain.
	Stream StreamID
	// STag asks for this value, for a region that has the same STag in several workers' tables. 0 draws a random one.
	STag STag
	// Invalidations counts the invalidations of the same region in all tables that have it, from 0. After the first,
	// the region is invalid in all of them. It is nil for a region of this table alone.
	Invalidations SharedCount
	// Owner is for the consumer; MR.Owner returns it.
	Owner any
}

// Errors of registration.
var (
	ErrLimit = errors.New("ddp: too many regions or domains in this table; deregister some or " +
		"raise MaxRegions")
	ErrAttr = errors.New("ddp: bad region: empty, longer than MaxRegionLen, unknown right, " +
		"or its offsets exceed 2^64; check length and base")
	ErrTaken  = errors.New("ddp: STag is in use")
	ErrRandom = errors.New("ddp: random source repeats itself; seed it from the " +
		"operating system")
	ErrBusy = errors.New("ddp: region is used by queued work; wait for its completions or " +
		"destroy the queue pair")
	ErrNotValid = errors.New("ddp: region is not registered or already invalidated")
	ErrForeign  = errors.New("ddp: protection domain belongs to another table")
)

// STag returns the tag to advertise. It stays the same after invalidation, but names nothing then.
func (m *MR) STag() STag { return m.stag }

// Base returns the TO of the first byte.
func (m *MR) Base() TO { return m.base }

// Len returns the length of the region in bytes.
func (m *MR) Len() int { return len(m.mem) }

// Valid reports whether the STag can be used. A window's STag is invalid while the region's is.
func (m *MR) Valid() bool {
	return m.state == mrValid && !m.isStale() && (m.parent == nil || m.parent.Valid())
}

// isStale reports whether another table invalidated the region, or bound the window again.
func (m *MR) isStale() bool { return m.shared != nil && m.shared.Load() != m.sharedCount }

// Revoked reports whether the STag is invalid for another reason than a Send with Invalidate of the peer of a stream in
// this table.
func (m *MR) Revoked() bool {
	return m.state == mrRevoked || m.state == mrDeregistered || m.isStale() ||
		m.parent != nil && m.parent.Revoked()
}

// Lost reports whether the STag was revoked because the memory cannot be accessed; see Table.RevokeMemory.
func (m *MR) Lost() bool { return m.lost }

// Owner returns Attr.Owner.
func (m *MR) Owner() any { return m.owner }

// Holds returns the number of Hold calls without Unhold, and of windows bound to the region.
func (m *MR) Holds() int { return m.holds }

// Hold counts queued work that refers to the region, which cannot be deregistered before Unhold.
func (m *MR) Hold() {
	m.holds++
	if m.parent != nil {
		m.parent.holds++
	}
}

// Unhold undoes Hold.
func (m *MR) Unhold() {
	m.holds--
	if m.parent != nil {
		m.parent.holds--
	}
}

func (m *MR) String() string {
	return fmt.Sprintf("STag %#08x [%#x,+%d) %v", uint32(m.stag), uint64(m.base), len(m.mem),
		m.access)
}

// Fault is the reason why an access to registered memory was refused.
type Fault uint8

// The faults. Table.Find looks for those up to FaultBounds, in this order.
const (
	OK           Fault = iota
	FaultSTag          // no such STag
	FaultStream        // other domain, or limited to another stream
	FaultAccess        // right missing
	FaultWrap          // TO + length passes 2^64
	FaultBounds        // outside of the region
	FaultInvalid       // this peer must not invalidate the STag; for Table.Bind: the table is full
)

func (f Fault) String() string {
	names := [...]string{"ok", "invalid STag", "STag of another stream or domain",
		"access right missing", "TO wrap", "base or bounds violation", "STag cannot be invalidated"}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("fault %d", uint8(f))
}

// bytesAt returns the n bytes of the region at tagged offset to.
func (m *MR) bytesAt(to TO, n int) ([]byte, Fault) {
	if n < 0 || uint64(to)+uint64(n) < uint64(to) {
		return nil, FaultWrap
	}
	off := uint64(to) - uint64(m.base)
	size := uint64(len(m.mem))
	if to < m.base || off > size || uint64(n) > size-off {
		return nil, FaultBounds
	}
	return m.mem[off : off+uint64(n) : off+uint64(n)], OK
}
