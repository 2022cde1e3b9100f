// Package ddp implements Direct Data Placement (RFC 5041): segment headers, registered memory behind steering tags, and
// the placement of payload.
//
// It holds values without clock, lock, goroutine or I/O. Each value belongs to one worker: a Table and everything that
// refers to it must not be shared between threads. Package ddp/rdmap implements messages, queue pairs and delivery.
package ddp

// Random is the source of STags. Peers must not be able to predict it (RFC 5040, 8.1.1, item 8): it reads from the
// operating system, or is a cipher seeded by it.
type Random interface{ Uint32() uint32 }

// Table maps the STags of one worker to regions. It uses open addressing with linear probing over the STag itself,
// which is random already, and no tombstones.
type Table struct {
	random      Random
	slots       []slot // power of two, at most half full
	used        int
	domains     int
	windows     map[STag]*Window // by their STags with key 0
	revocations uint64           // changes with each STag that ceases to be valid

	// OnFault, if set, is called for each region that RevokeMemory revokes.
	OnFault func(m *MR, off uint64)
}

// slot keeps the tag beside the pointer, so that a probe reads one cache line.
type slot struct {
	stag STag
	mr   *MR
}

// NewTable returns an empty table.
func NewTable(random Random) *Table {
	return &Table{random: random, slots: make([]slot, minSlots), windows: map[STag]*Window{}}
}

// Len returns the number of valid STags.
func (t *Table) Len() int { return t.used }

// AllocPD allocates a protection domain. It fails with ErrLimit.
func (t *Table) AllocPD() (*PD, error) {
	if t.domains >= MaxDomains {
		return nil, ErrLimit
	}
	t.domains++
	return &PD{table: t}, nil
}

// FreePD frees a domain. It fails with ErrBusy while the domain has regions, windows or streams, and with ErrForeign if
// it is not one of t.
func (t *Table) FreePD(pd *PD) error {
	if pd == nil || pd.table != t {
		return ErrForeign
	}
	if pd.regions != 0 || pd.streams != 0 {
		return ErrBusy
	}
	pd.table = nil
	t.domains--
	return nil
}

// Register makes mem reachable under an STag. mem remains the caller's and must stay mapped until Deregister has
// returned nil. It fails with ErrForeign, ErrAttr, ErrLimit, ErrTaken or ErrRandom.
func (t *Table) Register(pd *PD, mem []byte, a Attr) (*MR, error) {
	if pd == nil || pd.table != t {
		return nil, ErrForeign
	}
	n := uint64(len(mem))
	if n == 0 || n > MaxRegionLen || a.Access&^accessAll != 0 || uint64(a.Base) >= -n {
		return nil, ErrAttr
	}
	if t.used >= MaxRegions {
		return nil, ErrLimit
	}
	m := &MR{pd: pd, stream: a.Stream, access: a.Access, base: a.Base, mem: mem,
		shared: a.Invalidations, owner: a.Owner}
	if err := t.assignSTag(m, a.STag); err != nil {
		return nil, err
	}
	pd.regions++
	return m, nil
}

// assignSTag inserts m into the table under want, or under a random STag if want is 0.
func (t *Table) assignSTag(m *MR, want STag) error {
	if want != 0 {
		if !t.freeForRegion(want) {
			return ErrTaken
		}
		t.enterValid(m, want)
		return nil
	}
	for range maxDraws {
		s := STag(t.random.Uint32())
		if s != 0 && t.freeForRegion(s) {
			t.enterValid(m, s)
			return nil
		}
	}
	return ErrRandom
}

// freeForRegion reports whether s is not in use, neither by a region nor by a window with any key.
func (t *Table) freeForRegion(s STag) bool {
	return t.Lookup(s) == nil && t.windows[s&^keyBits] == nil
}

// enterValid makes m valid under s, which is not in use.
func (t *Table) enterValid(m *MR, s STag) {
	if 2*(t.used+1) > len(t.slots) {
		t.grow()
	}
	m.stag, m.state = s, mrValid
	t.insert(slot{s, m})
	t.used++
}

// revoke makes m invalid. state is the reason.
func (t *Table) revoke(m *MR, state mrState) {
	t.remove(m.stag)
	m.state = state
	if m.parent != nil {
		m.parent.holds--
	}
}

// invalidate is revoke in all tables that have the region m. The others find it stale from then on, except for a
// segment that is being placed at that moment. A binding is valid in one table only, so revoke is enough.
func (t *Table) invalidate(m *MR, state mrState) {
	t.revoke(m, state)
	if m.shared != nil && m.window == nil {
		m.sharedCount = m.shared.Add(1)
	}
}

// InUse reports whether queued work refers to the region, or a window is bound to it.
func (t *Table) InUse(m *MR) bool {
	if m.holds != 0 {
		t.unbindStale(m)
	}
	return m.holds != 0
}

// Deregister removes the region. Afterwards the memory belongs to the caller alone. It fails with ErrBusy while queued
// work refers to the region or a window is bound to it, and with ErrNotValid for one that is not registered, or for the
// binding of a window.
func (t *Table) Deregister(m *MR) error {
	if m.pd == nil || m.pd.table != t || m.state == mrDeregistered || m.parent != nil {
		return ErrNotValid
	}
	if t.InUse(m) {
		return ErrBusy
	}
	if m.state == mrValid {
		t.remove(m.stag)
	}
	m.state, m.mem = mrDeregistered, nil
	m.pd.regions--
	return nil
}

// Invalidate revokes the STag at once, for its owner. No remote access happens afterwards, and bytes of the region that
// a peer has not acknowledged are not retransmitted from this memory. The region stays registered. It fails with
// ErrNotValid.
func (t *Table) Invalidate(m *MR) error {
	if m.pd == nil || m.pd.table != t || m.state != mrValid {
		return ErrNotValid
	}
	t.invalidate(m, mrRevoked)
	return nil
}

// InvalidateLocal is Invalidate by STag, for a stream of domain pd. It returns FaultSTag or FaultStream if it fails.
func (t *Table) InvalidateLocal(pd *PD, stream StreamID, s STag) Fault {
	m := t.Lookup(s)
	if m == nil || m.isStale() {
		return FaultSTag
	}
	if !m.isReachable(pd, stream) {
		return FaultStream
	}
	t.invalidate(m, mrRevoked)
	return OK
}

// InvalidateRemote invalidates an STag for a peer's Send with Invalidate. It needs a
// region with a remote right that this stream alone can reach (RFC 5040, 8.1.1, item 7). It returns FaultSTag if there
// is no region, and FaultInvalid if it does not qualify.
func (t *Table) InvalidateRemote(pd *PD, stream StreamID, s STag) Fault {
	m := t.Lookup(s)
	switch {
	case m == nil, m.isStale():
		return FaultSTag
	case !m.isReachable(pd, stream), m.access&remoteAny == 0, m.stream == 0 && pd.isShared():
		return FaultInvalid
	}
	t.invalidate(m, mrInvalidatedByPeer)
	return OK
}

// isReachable reports whether a stream of domain pd may name m.
func (m *MR) isReachable(pd *PD, stream StreamID) bool {
	return m.pd == pd && (m.stream == 0 || m.stream == stream)
}

// Find checks an access of n bytes at tagged offset to, by a stream of domain pd, and returns the region and its bytes.
// All rights in need must be there. The order of the checks reveals least to a peer: a region that the stream cannot
// reach is not examined further.
func (t *Table) Find(pd *PD, stream StreamID, s STag, to TO, n int, need Access) (*MR, []byte,
	Fault) {
	m := t.Lookup(s)
	if m == nil || !m.Valid() {
		return nil, nil, FaultSTag
	}
	if !m.isReachable(pd, stream) {
		return nil, nil, FaultStream
	}
	if need&^m.access != 0 || m.parent != nil && need&remoteAny == 0 { // windows are for peers
		return nil, nil, FaultAccess
	}
	b, f := m.bytesAt(to, n)
	return m, b, f
}

// LookupCache is the region of a stream's last Write. The next segment of the stream to the same STag needs no lookup.
type LookupCache struct {
	mr          *MR
	stag        STag
	revocations uint64
}

// Unchanged reports whether s is the STag of the region in c, and no STag of t was revoked since.
func (t *Table) Unchanged(c *LookupCache, s STag) bool {
	return c.mr != nil && c.stag == s && c.revocations == t.revocations && c.mr.Valid()
}

// Lookup returns the region that s names, or nil.
func (t *Table) Lookup(s STag) *MR {
	if s == 0 {
		return nil
	}
	mask := uint32(len(t.slots) - 1)
	for i := uint32(s) & mask; ; i = (i + 1) & mask {
		e := &t.slots[i]
		if e.stag == s {
			return e.mr
		}
		if e.stag == 0 {
			return nil
		}
	}
}

func (t *Table) insert(e slot) {
	mask := uint32(len(t.slots) - 1)
	i := uint32(e.stag) & mask
	for t.slots[i].stag != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = e
}

// remove deletes s and moves later entries of its cluster back over the hole.
func (t *Table) remove(s STag) {
	mask := uint32(len(t.slots) - 1)
	i := uint32(s) & mask
	for t.slots[i].stag != s {
		i = (i + 1) & mask
	}
	t.used--
	t.revocations++
	for j := i; ; {
		j = (j + 1) & mask
		e := t.slots[j]
		if e.stag == 0 {
			break
		}
		if home := uint32(e.stag) & mask; (j-home)&mask >= (j-i)&mask {
			t.slots[i] = e
			i = j
		}
	}
	t.slots[i] = slot{}
}

func (t *Table) grow() {
	old := t.slots
	t.slots = make([]slot, 2*len(old))
	for _, e := range old {
		if e.stag != 0 {
			t.insert(e)
		}
	}
}
