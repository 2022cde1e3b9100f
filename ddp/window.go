package ddp

// keyBits are the part of a window's STag that its consumer chooses with each binding (RDMA's key of an STag): so a
// peer that knows an old one reaches nothing.
const keyBits = 0xff

// Window is a memory window: an STag that a queue pair binds to octets of a region, with rights of their own, for
// its own stream alone. So the peer may invalidate it (RFC 5040, 8.1.1, item 7).
type Window struct {
	pd       *PD
	stag     STag        // with key 0
	mr       *MR         // what was bound here last, if still valid; nil: nothing was
	last     *MR         // mr, also after its end: the next binding has it, so that binding in a loop allocates nothing
	bindings SharedCount // nil: no other table has it
}

// SharedCount is a number that the tables of several workers share: the bindings of a window, of which the last one, in
// whichever table, counts alone; the invalidations of a region; or the streams of a domain. It is an atomic.Uint64.
type SharedCount interface {
	Load() uint64
	Add(uint64) uint64
}

// STag returns what AllocWindow drew; bindings use it with any key.
func (w *Window) STag() STag { return w.stag }

// AllocWindow makes a window that is bound to nothing. want asks for the STag of the same window in another table; 0
// draws one. turn is that window's too, nil for one that is in this table alone. It fails with ErrForeign, ErrLimit,
// ErrTaken or ErrRandom.
func (t *Table) AllocWindow(pd *PD, want STag, bindings SharedCount) (*Window, error) {
	if pd == nil || pd.table != t {
		return nil, ErrForeign
	}
	if len(t.windows) >= MaxRegions {
		return nil, ErrLimit
	}
	for range maxDraws {
		s := want &^ keyBits
		if want == 0 {
			s = STag(t.random.Uint32()) &^ keyBits
		}
		if s != 0 && t.freeForWindow(s) {
			w := &Window{pd: pd, stag: s, bindings: bindings}
			t.windows[s] = w
			pd.regions++
			return w, nil
		}
		if want != 0 {
			return nil, ErrTaken
		}
	}
	return nil, ErrRandom
}

// freeForWindow reports whether no STag with the keys of s has a use.
func (t *Table) freeForWindow(s STag) bool {
	if t.windows[s] != nil {
		return false
	}
	for key := range STag(keyBits + 1) {
		if t.Lookup(s|key) != nil {
			return false
		}
	}
	return true
}

// FreeWindow forgets a window; what it is bound to is not reached by it any more. It fails with ErrNotValid.
func (t *Table) FreeWindow(w *Window) error {
	if w.pd == nil || w.pd.table != t {
		return ErrNotValid
	}
	t.unbind(w)
	delete(t.windows, w.stag)
	w.pd.regions--
	w.pd = nil
	return nil
}

// unbind invalidates what w is bound to.
func (t *Table) unbind(w *Window) {
	if w.mr != nil && w.mr.state == mrValid {
		t.revoke(w.mr, mrRevoked)
	}
	w.mr = nil
}

// countBinding makes a binding the one that counts, and returns its turn.
func (w *Window) countBinding() uint64 {
	if w.bindings == nil {
		return 0
	}
	return w.bindings.Add(1)
}

// unbindStale lets go of a region what was bound to it before its window was bound in another table.
func (t *Table) unbindStale(region *MR) {
	for _, w := range t.windows {
		if w.mr != nil && w.mr.parent == region && w.mr.isStale() {
			t.unbind(w)
		}
	}
}

// UnbindStream unbinds the windows of a stream that is over.
func (t *Table) UnbindStream(s StreamID) {
	for _, w := range t.windows {
		if w.mr != nil && w.mr.stream == s {
			t.unbind(w)
		}
	}
}

// Binding says what a window is bound to.
type Binding struct {
	STag      STag   // the window's from then on: its own with any key
	Region    STag   // of the same domain, with the right BindMW
	TO        TO     // of the first octet, in the region
	Len       uint64 // octets; with none the window is bound to nothing
	Access    Access // of the peer; what it may write needs LocalWrite of the region
	ZeroBased bool   // offsets in the window count from 0; else they are the region's
}

// Bind binds a window for a stream of domain pd; what it was bound to before is not reached any more. (In another table
// a segment that is being placed just then still is.) The region cannot be deregistered meanwhile.
func (t *Table) Bind(pd *PD, stream StreamID, b Binding) Fault {
	w := t.windows[b.STag&^keyBits]
	switch {
	case w == nil:
		return FaultSTag
	case w.pd != pd:
		return FaultStream
	case b.Len == 0:
		w.countBinding()
		t.unbind(w)
		return OK
	case b.Len > MaxRegionLen:
		return FaultBounds
	}
	m, mem, f := t.Find(pd, stream, b.Region, b.TO, int(b.Len), BindMW)
	if f != OK {
		return f
	}
	writes := b.Access&(RemoteWrite|RemoteAtomic) != 0
	if b.Access&^remoteAny != 0 || writes && m.access&LocalWrite == 0 {
		return FaultAccess
	}
	t.unbind(w)
	if t.used >= MaxRegions {
		return FaultInvalid
	}
	if w.last == nil || w.last.holds != 0 { // a Read's response that is under way points to it
		w.last = &MR{}
	}
	w.mr = w.last
	*w.mr = MR{pd: pd, stream: stream, access: b.Access, base: b.TO, mem: mem, parent: m, window: w,
		shared: w.bindings, sharedCount: w.countBinding()}
	if b.ZeroBased {
		w.mr.base = 0
	}
	m.holds++
	t.enterValid(w.mr, b.STag)
	return OK
}
