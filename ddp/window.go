package ddp

// keyBits are the bits of a window's STag that its consumer chooses with each binding (the key of an STag). So the STag
// of an earlier binding gives a peer no access.
const keyBits = 0xff

// Window is a memory window: an STag that a queue pair binds to bytes of a region, with access rights of its own, for
// its own stream alone. Therefore the peer may invalidate it (RFC 5040, 8.1.1, item 7).
type Window struct {
	pd       *PD
	stag     STag        // with key 0
	mr       *MR         // the last binding made in this table; nil if there is none, or it was ended here
	last     *MR         // mr, also after its end: the next binding reuses it instead of allocating
	bindings SharedCount // nil if no other table has the window
}

// SharedCount is a number that the tables of several workers share: the bindings of a window, of which only the last
// counts; the invalidations of a region; or the streams of a domain. It is an atomic.Uint64.
type SharedCount interface {
	Load() uint64
	Add(uint64) uint64
}

// STag returns the STag that AllocWindow chose. Bindings use it with any key.
func (w *Window) STag() STag { return w.stag }

// AllocWindow allocates a window without a binding. want asks for the STag that the same window has in another table; 0
// draws one. bindings is shared by the tables that have the window, nil if only this table has it. It fails with
// ErrForeign, ErrLimit, ErrTaken or ErrRandom.
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

// freeForWindow reports whether no STag that differs from s by its key is in use.
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

// FreeWindow frees a window; its binding ends. It fails with ErrNotValid.
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

// unbind ends the binding of w.
func (t *Table) unbind(w *Window) {
	if w.mr != nil && w.mr.state == mrValid {
		t.revoke(w.mr, mrRevoked)
	}
	w.mr = nil
}

// countBinding counts a binding, which ends those in other tables, and returns the count. It returns 0 if only this
// table has the window.
func (w *Window) countBinding() uint64 {
	if w.bindings == nil {
		return 0
	}
	return w.bindings.Add(1)
}

// unbindStale ends the bindings to region whose windows were bound again, or unbound, in another table.
func (t *Table) unbindStale(region *MR) {
	for _, w := range t.windows {
		if w.mr != nil && w.mr.parent == region && w.mr.isStale() {
			t.unbind(w)
		}
	}
}

// UnbindStream unbinds the windows of a stream that has ended.
func (t *Table) UnbindStream(s StreamID) {
	for _, w := range t.windows {
		if w.mr != nil && w.mr.stream == s {
			t.unbind(w)
		}
	}
}

// Binding describes the memory to bind a window to.
type Binding struct {
	STag      STag   // of the window from then on: its own with any key
	Region    STag   // of the same domain, with the right BindMW
	TO        TO     // of the first byte, in the region
	Len       uint64 // bytes; zero unbinds the window
	Access    Access // of the peer; write rights need LocalWrite of the region
	ZeroBased bool   // offsets in the window count from 0; else they are the region's
}

// Bind binds a window for a stream of domain pd, and ends the previous binding. (A segment that another table is
// placing at the same time is still placed.) The region cannot be deregistered while the binding exists. With length 0,
// Bind only ends the previous binding. If it returns a fault, the previous binding stays.
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
	if w.last == nil || w.last.holds != 0 { // a Read Response under way refers to it
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
