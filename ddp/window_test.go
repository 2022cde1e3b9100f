package ddp

import (
	"errors"
	"sync/atomic"
	"testing"

	"xwarp/mpa/ulpdu"
)

// TestWindow binds a window to a part of a region: it has bounds and rights of its own, serves one stream, and holds
// the region.
func TestWindow(t *testing.T) {
	tab, pd := newTable(t)
	pd.Attach()
	pd.Attach()
	m, err := tab.Register(pd, make([]byte, 100), Attr{Access: LocalWrite | BindMW, Base: 1000})
	if err != nil {
		t.Fatal(err)
	}
	w, err := tab.AllocWindow(pd, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Register(pd, make([]byte, 1), Attr{STag: w.STag() | 7}); err != ErrTaken {
		t.Errorf("a region takes the STag of a window: %v", err)
	}
	tag := w.STag() | 5
	b := Binding{STag: tag, Region: m.STag(), TO: 1010, Len: 20, Access: RemoteWrite}
	if f := tab.Bind(pd, 1, b); f != OK {
		t.Fatal(f)
	}
	for _, c := range []struct {
		name   string
		stream StreamID
		stag   STag
		to     TO
		n      int
		need   Access
		want   Fault
	}{
		{"all", 1, tag, 1010, 20, RemoteWrite, OK},
		{"before", 1, tag, 1009, 1, RemoteWrite, FaultBounds},
		{"behind", 1, tag, 1029, 2, RemoteWrite, FaultBounds},
		{"right", 1, tag, 1010, 1, RemoteRead, FaultAccess},
		{"local use", 1, tag, 1010, 1, 0, FaultAccess},
		{"stream", 2, tag, 1010, 1, RemoteWrite, FaultStream},
		{"key", 1, tag - 1, 1010, 1, RemoteWrite, FaultSTag},
		{"region", 1, m.STag(), 1010, 1, RemoteWrite, FaultAccess},
	} {
		if _, _, f := tab.Find(pd, c.stream, c.stag, c.to, c.n, c.need); f != c.want {
			t.Errorf("%s: %v, want %v", c.name, f, c.want)
		}
	}
	if err := tab.Deregister(m); err != ErrBusy {
		t.Errorf("the region goes from under its window: %v", err)
	}
	if err := tab.Deregister(tab.Lookup(tag)); err != ErrNotValid {
		t.Errorf("the binding goes without its window: %v", err)
	}
	b.STag, b.ZeroBased = tag+1, true // again, with another key
	if f := tab.Bind(pd, 1, b); f != OK || tab.Lookup(tag) != nil || tab.Lookup(tag+1).Base() != 0 {
		t.Errorf("bound again: %v", f)
	}
	if f := tab.InvalidateRemote(pd, 2, tag+1); f != FaultInvalid {
		t.Errorf("the peer of another stream invalidates: %v", f)
	}
	if f := tab.InvalidateRemote(pd, 1, tag+1); f != OK || m.Holds() != 0 {
		t.Errorf("its peer: %v, the region has %d", f, m.Holds())
	}
	if err := errors.Join(tab.FreeWindow(w), tab.Deregister(m)); err != nil || tab.Len() != 0 {
		t.Errorf("the end: %v, %d STags are left", err, tab.Len())
	}
	if err := tab.FreeWindow(w); err != ErrNotValid {
		t.Errorf("freed twice: %v", err)
	}
}

// TestWindowOfTwoTables binds a window that two workers' tables have: only the last binding is valid, whichever table
// it is in.
func TestWindowOfTwoTables(t *testing.T) {
	var turn atomic.Uint64
	var tags [2]STag
	var find [2]func() Fault
	var bind [2]func() Fault
	stag := STag(0)
	for i := range find {
		tab, pd := newTable(t)
		pd.Attach()
		m, err := tab.Register(pd, make([]byte, 8), Attr{Access: LocalWrite | BindMW})
		if err != nil {
			t.Fatal(err)
		}
		w, err := tab.AllocWindow(pd, stag, &turn)
		if err != nil {
			t.Fatal(err)
		}
		stag = w.STag()
		tags[i] = stag | STag(i+1)
		bind[i] = func() Fault {
			return tab.Bind(pd, 1, Binding{STag: tags[i], Region: m.STag(), Len: 8,
				Access: RemoteWrite, ZeroBased: true})
		}
		find[i] = func() Fault {
			_, _, f := tab.Find(pd, 1, tags[i], 0, 8, RemoteWrite)
			return f
		}
	}
	for step, i := range []int{0, 1, 0, 0, 1} {
		if f := bind[i](); f != OK {
			t.Fatal(f)
		}
		if f := find[i](); f != OK {
			t.Errorf("binding %d, in table %d: %v", step, i, f)
		}
		if f := find[1-i](); f == OK {
			t.Errorf("binding %d, in table %d: the other's counts as well", step, i)
		}
	}
}

// TestRegionOfTwoTables: a region that is invalidated in one table is invalid in both, and so is a window that the
// other table bound to it. Both tables can deregister the region.
func TestRegionOfTwoTables(t *testing.T) {
	for name, invalidate := range map[string]func(tab *Table, pd *PD, m *MR) Fault{
		"by a stream": func(tab *Table, pd *PD, m *MR) Fault {
			return tab.InvalidateLocal(pd, 1, m.STag())
		},
		"by the peer": func(tab *Table, pd *PD, m *MR) Fault {
			return tab.InvalidateRemote(pd, 1, m.STag())
		},
		"by its owner": func(tab *Table, _ *PD, m *MR) Fault {
			if tab.Invalidate(m) != nil {
				return FaultInvalid
			}
			return OK
		},
	} {
		var turn atomic.Uint64
		var tabs [2]*Table
		var pds [2]*PD
		var regions [2]*MR
		attr := Attr{Access: LocalWrite | RemoteWrite | BindMW, Invalidations: &turn}
		for i := range tabs {
			tabs[i], pds[i] = newTable(t)
			m, err := tabs[i].Register(pds[i], make([]byte, 8), attr)
			if err != nil {
				t.Fatal(err)
			}
			regions[i], attr.STag = m, m.STag()
		}
		w, err := tabs[1].AllocWindow(pds[1], 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := Binding{STag: w.STag(), Region: attr.STag, Len: 8, Access: RemoteWrite}
		if f := tabs[1].Bind(pds[1], 1, b); f != OK {
			t.Fatal(f)
		}
		var caches [2]LookupCache
		place := func(i int, s STag) Cause {
			h := Tagged{Control: MakeControl(true, true, IETF), STag: s}
			v := ulpdu.ViewOf(append(AppendTagged(nil, h), "12345678"...))
			return tabs[1].PlaceTagged(&caches[i], pds[1], 1, h, &v)
		}
		both := func(want Cause) {
			for i, s := range []STag{attr.STag, b.STag} {
				if c := place(i, s); c != want {
					t.Errorf("%s: placing into %#x: %v, want %v", name, s, c, want)
				}
			}
		}
		both(CauseNone)
		if f := invalidate(tabs[0], pds[0], regions[0]); f != OK {
			t.Fatalf("%s: %v", name, f)
		}
		both(CauseSTag)
		if m := regions[1]; m.Valid() || !m.Revoked() {
			t.Errorf("%s: the other table's region is valid", name)
		}
		if regions[0].Revoked() == (name == "by the peer") {
			t.Errorf("%s: revoked: %v", name, regions[0].Revoked())
		}
		if f := tabs[1].InvalidateLocal(pds[1], 1, attr.STag); f != FaultSTag {
			t.Errorf("%s: invalidated again: %v", name, f)
		}
		if err := errors.Join(tabs[1].FreeWindow(w), tabs[0].Deregister(regions[0]),
			tabs[1].Deregister(regions[1])); err != nil || tabs[1].Len() != 0 {
			t.Errorf("%s: deregistered: %v, %d STags", name, err, tabs[1].Len())
		}
	}
}

// TestWindowRefused: a refused binding returns its fault and leaves the previous binding valid.
func TestWindowRefused(t *testing.T) {
	tab, pd := newTable(t)
	other, _ := tab.AllocPD()
	region := func(pd *PD, a Access) STag {
		m, err := tab.Register(pd, make([]byte, 100), Attr{Access: a})
		if err != nil {
			t.Fatal(err)
		}
		return m.STag()
	}
	m := region(pd, LocalWrite|BindMW)
	w, _ := tab.AllocWindow(pd, 0, nil)
	good := Binding{STag: w.STag(), Region: m, Len: 100, Access: RemoteRead}
	if f := tab.Bind(pd, 1, good); f != OK {
		t.Fatal(f)
	}
	for name, c := range map[string]struct {
		change func(b *Binding)
		want   Fault
	}{
		"no such window":   {func(b *Binding) { b.STag += 0x100 }, FaultSTag},
		"no such region":   {func(b *Binding) { b.Region++ }, FaultSTag},
		"window of window": {func(b *Binding) { b.Region = w.STag() }, FaultAccess},
		"too long":         {func(b *Binding) { b.Len++ }, FaultBounds},
		"endless":          {func(b *Binding) { b.Len = 1 << 63 }, FaultBounds},
		"no bind right":    {func(b *Binding) { b.Region = region(pd, LocalWrite) }, FaultAccess},
		"read only": {func(b *Binding) {
			b.Region, b.Access = region(pd, BindMW), RemoteWrite
		}, FaultAccess},
		"local right": {func(b *Binding) { b.Access = LocalWrite }, FaultAccess},
		"bind right":  {func(b *Binding) { b.Access = RemoteRead | BindMW }, FaultAccess},
		"read only, atomics": {func(b *Binding) {
			b.Region, b.Access = region(pd, BindMW), RemoteAtomic
		}, FaultAccess},
		"other domain": {func(b *Binding) { b.Region = region(other, BindMW) }, FaultStream},
	} {
		b := good
		c.change(&b)
		if f := tab.Bind(pd, 1, b); f != c.want {
			t.Errorf("%s: %v, want %v", name, f, c.want)
		}
	}
	if f := tab.Bind(other, 1, good); f != FaultStream {
		t.Errorf("a window of another domain: %v", f)
	}
	if _, _, f := tab.Find(pd, 1, w.STag(), 0, 100, RemoteRead); f != OK {
		t.Errorf("after all that: %v", f)
	}
}

// TestWindowEndsWithRegionOrStream: a window is invalid once its region is revoked or its stream has ended. The region
// cannot be deregistered while queued work refers to the window.
func TestWindowEndsWithRegionOrStream(t *testing.T) {
	tab, pd := newTable(t)
	m, _ := tab.Register(pd, make([]byte, 100), Attr{Access: BindMW})
	w, _ := tab.AllocWindow(pd, 0, nil)
	b := Binding{STag: w.STag(), Region: m.STag(), Len: 10, Access: RemoteRead}
	if f := tab.Bind(pd, 1, b); f != OK {
		t.Fatal(f)
	}
	held, _, _ := tab.Find(pd, 1, b.STag, 0, 10, RemoteRead)
	held.Hold()
	tab.UnbindStream(2)
	if _, _, f := tab.Find(pd, 1, b.STag, 0, 1, RemoteRead); f != OK {
		t.Errorf("another stream ended: %v", f)
	}
	tab.UnbindStream(1)
	if _, _, f := tab.Find(pd, 1, b.STag, 0, 1, RemoteRead); f != FaultSTag || !held.Revoked() {
		t.Errorf("its stream ended: %v", f)
	}
	if err := tab.Deregister(m); err != ErrBusy {
		t.Errorf("the region goes from under a Read Response: %v", err)
	}
	held.Unhold()
	if f := tab.Bind(pd, 3, b); f != OK {
		t.Fatal(f)
	}
	bound, _, _ := tab.Find(pd, 3, b.STag, 0, 1, RemoteRead)
	if err := tab.Invalidate(m); err != nil || bound.Valid() || !bound.Revoked() {
		t.Errorf("the region is revoked, its window is not: %v", err)
	}
	if _, _, f := tab.Find(pd, 3, b.STag, 0, 1, RemoteRead); f != FaultSTag {
		t.Errorf("a window into a revoked region: %v", f)
	}
	if err := errors.Join(tab.FreeWindow(w), tab.Deregister(m), tab.FreePD(pd)); err != nil {
		t.Error(err)
	}
}

// TestAllocWindow: a window takes 256 STags, of which none may have another use.
func TestAllocWindow(t *testing.T) {
	tab, pd := newTable(t)
	_, foreign := newTable(t)
	for _, stag := range []STag{0x100, 0x2ff, 0x400} {
		if _, err := tab.Register(pd, make([]byte, 1), Attr{STag: stag}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		pd   *PD
		want STag
		err  error
	}{
		{"no domain", nil, 0x300, ErrForeign},
		{"another table's domain", foreign, 0x300, ErrForeign},
		{"region with the first key", pd, 0x1ff, ErrTaken},
		{"region with the last key", pd, 0x200, ErrTaken},
		{"STag 0", pd, 0xff, ErrTaken},
		{"between regions", pd, 0x380, nil},
		{"window's own", pd, 0x300, ErrTaken},
		{"window's with another key", pd, 0x3ff, ErrTaken},
		{"behind regions", pd, 0x500, nil},
	} {
		w, err := tab.AllocWindow(c.pd, c.want, nil)
		if !errors.Is(err, c.err) || (w == nil) != (err != nil) ||
			w != nil && w.STag() != c.want&^0xff {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	tab.random = &sequence{values: []uint32{0xff, 0x1aa, 0x2aa, 0x3aa, 0x4aa, 0x5aa, 0x6aa}}
	w, err := tab.AllocWindow(pd, 0, nil)
	if err != nil || w.STag() != 0x600 {
		t.Fatalf("drawn: %v", err)
	}
	other, _ := newTable(t)
	if err := other.FreeWindow(w); !errors.Is(err, ErrNotValid) {
		t.Errorf("freed by another table: %v", err)
	}
	if err := tab.FreePD(pd); !errors.Is(err, ErrBusy) {
		t.Errorf("a domain with windows is freed: %v", err)
	}
}

// TestStaleBinding: a binding in one table ends when the window is bound or unbound in another: it is invalid, cannot
// be invalidated, and no longer holds its region.
func TestStaleBinding(t *testing.T) {
	for name, c := range map[string]struct {
		then func(tab *Table, pd *PD, tag STag, region STag) Fault
		busy error // error of Deregister for the region of the other table
	}{
		"bound": {func(tab *Table, pd *PD, tag STag, region STag) Fault {
			return tab.Bind(pd, 2, Binding{STag: tag, Region: region, Len: 8, Access: RemoteRead})
		}, ErrBusy},
		"unbound": {func(tab *Table, pd *PD, tag STag, region STag) Fault {
			return tab.Bind(pd, 2, Binding{STag: tag})
		}, nil},
	} {
		var turn atomic.Uint64
		var tabs [2]*Table
		var pds [2]*PD
		var regions [2]*MR
		stag := STag(0)
		for i := range tabs {
			tabs[i], pds[i] = newTable(t)
			pds[i].Attach()
			m, err := tabs[i].Register(pds[i], make([]byte, 8), Attr{Access: BindMW})
			if err != nil {
				t.Fatal(err)
			}
			w, err := tabs[i].AllocWindow(pds[i], stag, &turn)
			if err != nil {
				t.Fatal(err)
			}
			regions[i], stag = m, w.STag()
		}
		if _, err := tabs[0].AllocWindow(pds[0], 0, nil); err != nil { // which is never bound
			t.Fatal(err)
		}
		b := Binding{STag: stag | 1, Region: regions[0].STag(), Len: 8, Access: RemoteRead}
		if f := tabs[0].Bind(pds[0], 1, b); f != OK {
			t.Fatal(f)
		}
		bound := tabs[0].Lookup(stag | 1)
		if err := tabs[0].Deregister(regions[0]); !errors.Is(err, ErrBusy) || !bound.Valid() ||
			bound.Revoked() {
			t.Errorf("%s: before it the region: %v", name, err)
		}
		if f := c.then(tabs[1], pds[1], stag|2, regions[1].STag()); f != OK {
			t.Fatal(f)
		}
		if bound.Valid() || !bound.Revoked() {
			t.Errorf("%s: the old binding is valid", name)
		}
		if f := tabs[0].InvalidateLocal(pds[0], 1, stag|1); f != FaultSTag {
			t.Errorf("%s: its owner invalidates: %v", name, f)
		}
		if f := tabs[0].InvalidateRemote(pds[0], 1, stag|1); f != FaultSTag {
			t.Errorf("%s: its peer invalidates: %v", name, f)
		}
		for i, want := range []error{nil, c.busy} {
			if err := tabs[i].Deregister(regions[i]); !errors.Is(err, want) {
				t.Errorf("%s: the region of table %d: %v, want %v", name, i, err, want)
			}
		}
	}
}

// TestUnbind: a binding of no bytes ends the previous one, and only that of the same window.
func TestUnbind(t *testing.T) {
	tab, pd := newTable(t)
	m, err := tab.Register(pd, make([]byte, 8), Attr{Access: BindMW})
	if err != nil {
		t.Fatal(err)
	}
	var tags [2]STag
	for i := range tags {
		w, err := tab.AllocWindow(pd, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		tags[i] = w.STag() | 9
		if f := tab.Bind(pd, 1, Binding{STag: tags[i], Region: m.STag(), Len: 8,
			Access: RemoteRead}); f != OK {
			t.Fatal(f)
		}
	}
	if f := tab.Bind(pd, 1, Binding{STag: tags[0]}); f != OK || m.Holds() != 1 {
		t.Errorf("unbound: %v, %d uses", f, m.Holds())
	}
	for i, want := range []Fault{FaultSTag, OK} {
		if _, _, f := tab.Find(pd, 1, tags[i], 0, 8, RemoteRead); f != want {
			t.Errorf("window %d: %v, want %v", i, f, want)
		}
	}
	if tab.UnbindStream(0); m.Holds() != 1 {
		t.Error("the end of no stream unbinds")
	}
	if f := tab.InvalidateLocal(pd, 1, tags[1]); f != OK || m.Holds() != 0 {
		t.Errorf("invalidated: %v, %d uses", f, m.Holds())
	}
	if f := tab.Bind(pd, 1, Binding{STag: tags[1]}); f != OK || tab.Len() != 1 {
		t.Errorf("unbound after that: %v, %d STags", f, tab.Len())
	}
}

// TestPlaceIntoWindow: the cache of a stream's last Write does not outlive the binding, in whichever table it ends.
func TestPlaceIntoWindow(t *testing.T) {
	for _, turn := range []*atomic.Uint64{nil, new(atomic.Uint64)} {
		tab, pd := newTable(t)
		m, err := tab.Register(pd, make([]byte, 8), Attr{Access: LocalWrite | BindMW})
		if err != nil {
			t.Fatal(err)
		}
		var w *Window
		if turn == nil {
			w, err = tab.AllocWindow(pd, 0, nil)
		} else {
			w, err = tab.AllocWindow(pd, 0, turn)
		}
		if err != nil {
			t.Fatal(err)
		}
		b := Binding{STag: w.STag(), Region: m.STag(), Len: 8, Access: RemoteWrite}
		if f := tab.Bind(pd, 1, b); f != OK {
			t.Fatal(f)
		}
		var cache LookupCache
		place := func() Cause {
			h := Tagged{Control: MakeControl(true, true, IETF), STag: b.STag}
			v := ulpdu.ViewOf(append(AppendTagged(nil, h), "12345678"...))
			return tab.PlaceTagged(&cache, pd, 1, h, &v)
		}
		for range 2 {
			clear(m.mem)
			if c := place(); c != CauseNone || string(m.mem) != "12345678" {
				t.Errorf("into a window: %v", c)
			}
		}
		if !tab.Unchanged(&cache, b.STag) {
			t.Error("the cache does not keep the window")
		}
		if turn != nil {
			turn.Add(1) // bound in another table
		} else if f := tab.Bind(pd, 1, Binding{STag: b.STag}); f != OK {
			t.Fatal(f)
		}
		if c := place(); c != CauseSTag {
			t.Errorf("into a window that is bound no more: %v", c)
		}
	}
}

// TestBindAgain: binding in a loop allocates nothing. A binding that a queued Read holds is not reused for the next
// binding of the window: it stays revoked.
func TestBindAgain(t *testing.T) {
	tab, pd := newTable(t)
	pd.Attach()
	m, err := tab.Register(pd, make([]byte, 100), Attr{Access: LocalWrite | BindMW})
	if err != nil {
		t.Fatal(err)
	}
	w, err := tab.AllocWindow(pd, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	bind := func() {
		n++
		b := Binding{STag: w.STag() | STag(n&keyBits), Region: m.STag(), Len: 8, Access: RemoteRead}
		if f := tab.Bind(pd, 1, b); f != OK {
			t.Fatal(f)
		}
	}
	bind()
	if n := testing.AllocsPerRun(100, bind); n != 0 {
		t.Errorf("%v allocations for each binding", n)
	}
	held := tab.Lookup(w.STag() | STag(n&keyBits))
	held.Hold()
	bind()
	if held.Valid() || !held.Revoked() {
		t.Error("the target of a queued Read is valid after the window was bound again")
	}
	held.Unhold()
	bind()
	if tab.Len() != 2 || m.Holds() != 1 {
		t.Errorf("%d STags and %d uses of the region, want 2 and 1", tab.Len(), m.Holds())
	}
}
