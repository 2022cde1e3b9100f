package ddp

import (
	"errors"
	"testing"
	"unsafe"
)

// forge returns a slice of n bytes with the memory of only one, for lengths that no test can allocate.
func forge(n uint64) []byte {
	first := new([1]byte)
	header := struct {
		at       unsafe.Pointer
		len, cap int
	}{unsafe.Pointer(first), int(n), int(n)}
	return *(*[]byte)(unsafe.Pointer(&header))
}

// TestMaxDomains: no domain beyond the limit can be allocated, and a freed one makes room for another.
func TestMaxDomains(t *testing.T) {
	tab, first := newTable(t)
	for n := 2; n <= MaxDomains; n++ {
		if pd, err := tab.AllocPD(); err != nil || pd == nil {
			t.Fatalf("domain %d: %v", n, err)
		}
	}
	if pd, err := tab.AllocPD(); !errors.Is(err, ErrLimit) || pd != nil {
		t.Errorf("domain %d: %v", MaxDomains+1, err)
	}
	if err := tab.FreePD(first); err != nil {
		t.Fatal(err)
	}
	for n, want := range []error{nil, ErrLimit} {
		if _, err := tab.AllocPD(); !errors.Is(err, want) {
			t.Errorf("domain %d after one was freed: %v, want %v", n, err, want)
		}
	}
}

// TestMaxRegions: valid regions and valid bindings have one limit together.
func TestMaxRegions(t *testing.T) {
	tab, pd := newTable(t)
	m, err := tab.Register(pd, make([]byte, 8), Attr{Access: BindMW})
	if err != nil {
		t.Fatal(err)
	}
	w, err := tab.AllocWindow(pd, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := Binding{STag: w.STag(), Region: m.STag(), Len: 8, Access: RemoteRead}
	tab.used += MaxRegions - 2 // as if that many more were valid
	last, err := tab.Register(pd, make([]byte, 1), Attr{})
	if err != nil || tab.Len() != MaxRegions {
		t.Fatalf("region %d: %v", tab.Len(), err)
	}
	if _, err := tab.Register(pd, make([]byte, 1), Attr{}); !errors.Is(err, ErrLimit) {
		t.Errorf("region %d: %v", MaxRegions+1, err)
	}
	if f := tab.Bind(pd, 1, b); f != FaultInvalid || tab.Lookup(b.STag) != nil || m.Holds() != 0 {
		t.Errorf("a binding beyond the limit: %v, %d uses of the region", f, m.Holds())
	}
	if err := tab.Invalidate(last); err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // the second one takes the place of the first
		if f := tab.Bind(pd, 1, b); f != OK || tab.Len() != MaxRegions || m.Holds() != 1 {
			t.Errorf("binding %d at the limit: %v, %d STags, %d uses", i, f, tab.Len(), m.Holds())
		}
	}
}

// TestMaxWindows: a table has a limited number of windows, bound or not.
func TestMaxWindows(t *testing.T) {
	tab, pd := newTable(t)
	tab.windows = make(map[STag]*Window, MaxRegions)
	for i := range STag(MaxRegions - 1) {
		tab.windows[2*i+1] = nil // a number that no window has
	}
	w, err := tab.AllocWindow(pd, 0x500, nil)
	if err != nil {
		t.Fatalf("window %d: %v", MaxRegions, err)
	}
	if _, err := tab.AllocWindow(pd, 0x600, nil); !errors.Is(err, ErrLimit) {
		t.Errorf("window %d: %v", MaxRegions+1, err)
	}
	if err := tab.FreeWindow(w); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.AllocWindow(pd, 0x600, nil); err != nil {
		t.Errorf("after one was freed: %v", err)
	}
}

// TestMaxRegionLen: a region may be as long as the limit, and a window as long as its region.
func TestMaxRegionLen(t *testing.T) {
	tab, pd := newTable(t)
	if _, err := tab.Register(pd, forge(MaxRegionLen+1), Attr{}); !errors.Is(err, ErrAttr) {
		t.Errorf("a region of %d bytes: %v", uint64(MaxRegionLen+1), err)
	}
	m, err := tab.Register(pd, forge(MaxRegionLen), Attr{Access: BindMW})
	if err != nil {
		t.Fatalf("the longest region: %v", err)
	}
	w, _ := tab.AllocWindow(pd, 0, nil)
	b := Binding{STag: w.STag(), Region: m.STag(), Len: MaxRegionLen, Access: RemoteRead}
	if f := tab.Bind(pd, 1, b); f != OK || tab.Lookup(b.STag).Len() != MaxRegionLen {
		t.Errorf("the longest window: %v", f)
	}
	b.Len++
	if f := tab.Bind(pd, 1, b); f != FaultBounds {
		t.Errorf("a window of %d bytes: %v", b.Len, f)
	}
}
