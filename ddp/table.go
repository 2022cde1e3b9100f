package ddp

// Random gives the values that STags are drawn from. It must not be predictable for a
// peer (RFC 5040, 8.1.1, item 8): an operating-system source or a cipher seeded by one.
type Random interface{ Uint32() uint32 }

// Table maps the STags of one worker to regions: open addressing over the STag itself,
// which is random already, with linear probing and no tombstones.
type Table struct {
	random      Random
	slots       []slot // power of two, at most half full
	used        int
	domains     int
	windows     map[STag]*Window // by their STags with key 0
	revocations uint64           // changes with each STag that ceases to be valid

	// OnFault, when set, hears of each region that Fault takes back.
	OnFault func(m *MR, off uint64)
}

// slot keeps the tag beside the pointer, so that a probe touches one line.
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

// AllocPD makes a protection domain. It fails with ErrLimit.
func (t *Table) AllocPD() (*PD, error) {
	if t.domains >= MaxDomains {
		return nil, ErrLimit
	}
	t.domains++
	return &PD{table: t}, nil
}

// FreePD gives a domain back. It fails with ErrBusy while it has regions or streams.
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

// Register makes mem reachable under an STag. mem stays the caller's and must stay mapped
// until Deregister returned nil. It fails with ErrForeign, ErrAttr, ErrLimit, ErrTaken or
// ErrRandom.
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

// assignSTag puts m into the table under want or a drawn STag.
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

// freeForRegion reports whether s has no use, nor a window with whatever key.
func (t *Table) freeForRegion(s STag) bool {
	return t.Lookup(s) == nil && t.windows[s&^keyBits] == nil
}

// enterValid makes m valid under s, which is free.
func (t *Table) enterValid(m *MR, s STag) {
	if 2*(t.used+1) > len(t.slots) {
		t.grow()
	}
	m.stag, m.state = s, mrValid
	t.insert(slot{s, m})
	t.used++
}

// revoke makes m invalid; state says by whose wish.
func (t *Table) revoke(m *MR, state mrState) {
	t.remove(m.stag)
	m.state = state
	if m.parent != nil {
		m.parent.holds--
	}
}

// invalidate is revoke in all tables that have m: the others find it stale from then on, but for a segment that is
// being placed just then.
func (t *Table) invalidate(m *MR, state mrState) {
	t.revoke(m, state)
	if m.shared != nil && m.window == nil {
		m.sharedCount = m.shared.Add(1)
	}
}

// InUse reports whether queued work points into the region, or a window is bound to it.
func (t *Table) InUse(m *MR) bool {
	if m.holds != 0 {
		t.unbindStale(m)
	}
	return m.holds != 0
}

// Deregister forgets the region; the memory is the caller's alone afterwards. It fails
// with ErrBusy while queued work points into it, and with ErrNotValid for what a window is
// bound to, which ends with its binding.
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

// Invalidate revokes the STag at once, by its owner's wish: no remote access happens
// afterwards, and octets of it that a peer has not acknowledged yet are not sent again
// from this memory. The region stays registered. It fails with ErrNotValid.
func (t *Table) Invalidate(m *MR) error {
	if m.pd == nil || m.pd.table != t || m.state != mrValid {
		return ErrNotValid
	}
	t.invalidate(m, mrRevoked)
	return nil
}

// InvalidateLocal is Invalidate by tag, for a stream of domain pd: FaultSTag, FaultStream.
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

// InvalidateRemote is what the peer of a stream asks for with Send with Invalidate. Only a
// region with a remote right that this stream alone can reach qualifies (RFC 5040, 8.1.1,
// item 7): FaultSTag when there is none, FaultInvalid when it does not qualify.
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

// isReachable reports whether a stream of domain pd may name m at all.
func (m *MR) isReachable(pd *PD, stream StreamID) bool {
	return m.pd == pd && (m.stream == 0 || m.stream == stream)
}

// Find checks an access of n octets at to by a stream of domain pd and returns the region
// and its octets. The rights in need must all be there. The order of the checks tells a
// peer least: nothing of a region that the stream cannot reach is looked at.
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

// LookupCache is the region of a stream's last Write, which the next segment needs not look up.
type LookupCache struct {
	mr          *MR
	stag        STag
	revocations uint64
}

// Unchanged reports whether s is the STag of the region in c, and no STag of this table has ceased to be valid since,
// nor this one in another table.
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
