package ddp

import (
	"errors"
	"fmt"
	"strings"
)

// Access is a set of rights on a memory region.
type Access uint8

// The rights. Local reading needs none. RemoteAtomic is its own right and is implied by no
// other (RFC 7306 names none).
const (
	LocalWrite Access = 1 << iota // receives, read sinks and atomic results may land here
	RemoteRead
	RemoteWrite
	RemoteAtomic
	BindMW // windows may be bound to it

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

// StreamID names one DDP stream of a worker. 0 is no stream: a region with it serves every
// stream of its domain.
type StreamID uint64

// PD is a protection domain: streams reach only the regions of their own domain.
type PD struct {
	table         *Table
	regions       int
	streams       int         // of this table
	sharedStreams SharedCount // streams of all tables that have the domain; nil: no other table has it
}

// ShareStreamCount has p count its streams in all, as the same domain in other tables does. No stream is attached yet.
func (p *PD) ShareStreamCount(all SharedCount) { p.sharedStreams = all }

// Attach counts a stream of the domain; a queue pair does it when it is made. A region
// that several streams share cannot be invalidated by a peer (RFC 5040, 8.1.1, item 7).
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

// MR is one registered memory region: octets that an STag names.
type MR struct {
	pd          *PD
	stream      StreamID
	stag        STag
	access      Access
	state       mrState
	base        TO
	mem         []byte
	parent      *MR         // of what a window is bound to: the region; nil of others
	window      *Window     // which it is; nil of others
	shared      SharedCount // of all tables that have it; nil: no other table has it
	sharedCount uint64      // shared, for as long as it is valid
	holds       int         // queued work that points into mem, windows that are bound to it
	lost        bool
	owner       any
}

type mrState uint8

const (
	mrDeregistered      mrState = iota // deregistered
	mrValid                            // the STag is in the table
	mrInvalidatedByPeer                // invalidated by the peer at its own wish
	mrRevoked                          // invalidated locally
)

// Attr describes a region to register.
type Attr struct {
	Access Access
	// Base is the TO of the first octet. The zero value makes the region zero-based; an
	// address makes it virtual-address style.
	Base TO
	// Stream limits the region to one stream; 0 gives it to all streams of the domain.
	Stream StreamID
	// STag asks for this value, for a region that several workers' tables know by one
	// name; 0 draws one.
	STag STag
	// Invalidations counts the invalidations of the same region in all tables that have it, 0 at first: none of them
	// reaches it after the first. It is nil for a region of this table alone.
	Invalidations SharedCount
	// Owner is the consumer's own, see MR.Owner.
	Owner any
}

// Errors of registration.
var (
	ErrLimit = errors.New("ddp: too many regions or domains in this table; deregister some or " +
		"raise MaxRegions")
	ErrAttr = errors.New("ddp: bad region: empty, longer than MaxRegionLen, unknown right, " +
		"or its offsets pass 2^64; check length and base")
	ErrTaken  = errors.New("ddp: STag is in use")
	ErrRandom = errors.New("ddp: random source keeps repeating itself; seed it from the " +
		"operating system")
	ErrBusy = errors.New("ddp: region is used by queued work; wait for its completions or " +
		"destroy the queue pair")
	ErrNotValid = errors.New("ddp: region is not registered or already invalidated")
	ErrForeign  = errors.New("ddp: protection domain belongs to another table")
)

// STag returns the tag to advertise; it stays the same after invalidation, but names
// nothing then.
func (m *MR) STag() STag { return m.stag }

// Base returns the TO of the first octet.
func (m *MR) Base() TO { return m.base }

// Len returns the octets of the region.
func (m *MR) Len() int { return len(m.mem) }

// Valid reports whether the STag can be used. A window's cannot when the region's is invalid.
func (m *MR) Valid() bool {
	return m.state == mrValid && !m.isStale() && (m.parent == nil || m.parent.Valid())
}

// isStale reports whether another table invalidated the region, or bound the window anew.
func (m *MR) isStale() bool { return m.shared != nil && m.shared.Load() != m.sharedCount }

// Revoked reports whether the owner, not the peer, took the STag back.
func (m *MR) Revoked() bool {
	return m.state == mrRevoked || m.state == mrDeregistered || m.isStale() ||
		m.parent != nil && m.parent.Revoked()
}

// Lost reports whether the STag was taken back because the memory cannot be accessed; see Table.Fault.
func (m *MR) Lost() bool { return m.lost }

// Owner returns what Attr.Owner was.
func (m *MR) Owner() any { return m.owner }

// Holds returns how many pieces of queued work point into the region.
func (m *MR) Holds() int { return m.holds }

// Hold counts queued work that points into the region: it cannot be deregistered before
// Drop.
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

// Fault says why an access to registered memory was refused.
type Fault uint8

// The faults, in the order in which they are looked for.
const (
	OK           Fault = iota
	FaultSTag          // no such STag
	FaultStream        // other domain, or limited to another stream
	FaultAccess        // right missing
	FaultWrap          // TO + length passes 2^64
	FaultBounds        // outside of the region
	FaultInvalid       // STag exists but must not be invalidated by this peer
)

func (f Fault) String() string {
	names := [...]string{"ok", "invalid STag", "STag of another stream or domain",
		"access right missing", "TO wrap", "base or bounds violation", "STag cannot be invalidated"}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("fault %d", uint8(f))
}

// bytesAt returns n octets at to, all inside the region.
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
