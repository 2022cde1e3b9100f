package ddp

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"xwarp/mpa/ulpdu"
)

// sequence is a Random that repeats the values given.
type sequence struct {
	values []uint32
	i      int
}

func (s *sequence) Uint32() uint32 {
	v := s.values[s.i%len(s.values)]
	s.i++
	return v
}

func newTable(t testing.TB) (*Table, *PD) {
	t.Helper()
	tab := NewTable(rand.New(rand.NewPCG(1, 2)))
	pd, err := tab.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	return tab, pd
}

// TestTableAgainstMap registers and deregisters regions at random and compares the table with a map. STags that differ
// only in the high bits force clusters. There are at least two slots for each STag, and fewer than four for each of the
// most STags so far.
//
//req:rfc5041-8.3-1
func TestTableAgainstMap(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 0))
	tab, pd := newTable(t)
	model := map[STag]*MR{}
	var tags []STag
	peak := 0
	for i := range 20000 {
		if rng.IntN(5) < 3 {
			var want STag
			if rng.IntN(2) == 0 {
				want = STag(rng.IntN(8) + 1 + rng.IntN(64)<<20)
			}
			m, err := tab.Register(pd, make([]byte, 1), Attr{STag: want})
			if model[want] != nil {
				if !errors.Is(err, ErrTaken) {
					t.Fatalf("step %d: STag %#x twice: %v", i, want, err)
				}
				continue
			}
			if err != nil || m.STag() == 0 || (want != 0 && m.STag() != want) {
				t.Fatalf("step %d: %v %v", i, m, err)
			}
			model[m.STag()] = m
			tags = append(tags, m.STag())
		} else if len(tags) > 0 {
			k := rng.IntN(len(tags))
			if m := model[tags[k]]; m != nil {
				if err := tab.Deregister(m); err != nil {
					t.Fatal(err)
				}
				delete(model, tags[k])
			}
		}
		if peak = max(peak, len(model)); len(tab.slots) < 2*len(model) ||
			len(tab.slots) >= max(4*peak, minSlots+1) {
			t.Fatalf("step %d: %d slots for %d STags, %d at most", i, len(tab.slots),
				len(model), peak)
		}
		probe := STag(rng.IntN(8) + 1 + rng.IntN(64)<<20)
		if tab.Lookup(probe) != model[probe] {
			t.Fatalf("seed %d, step %d: look-up of %#x is wrong", seed, i, probe)
		}
	}
	for s, m := range model {
		if tab.Lookup(s) != m {
			t.Fatalf("STag %#x is lost", s)
		}
	}
	if tab.Len() != len(model) {
		t.Errorf("%d STags, want %d", tab.Len(), len(model))
	}
}

// TestSTagsAreRandomAndUnused: an STag that is drawn is not 0 and not in use. A source that repeats itself is detected
// after maxDraws.
//
//req:rfc5040-8.1.1-8
func TestSTagsAreRandomAndUnused(t *testing.T) {
	tab := NewTable(&sequence{values: []uint32{0, 5, 5, 0, 9, 9, 9, 12}})
	pd, _ := tab.AllocPD()
	var got []STag
	for range 2 {
		m, err := tab.Register(pd, make([]byte, 1), Attr{})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.STag())
	}
	if got[0] != 5 || got[1] != 9 {
		t.Errorf("STags %v", got)
	}
	m := tab.Lookup(9)
	if err := tab.Invalidate(m); err != nil {
		t.Fatal(err)
	}
	tab.random = &sequence{values: []uint32{0, 1}}
	if m, err := tab.Register(pd, make([]byte, 1), Attr{}); err != nil || m.STag() != 1 {
		t.Errorf("the least STag: %v", err)
	}
	source := &sequence{values: []uint32{3}}
	stuck := NewTable(source)
	pd, _ = stuck.AllocPD()
	if _, err := stuck.Register(pd, make([]byte, 1), Attr{}); err != nil {
		t.Fatal(err)
	}
	source.i = 0
	if _, err := stuck.Register(pd, make([]byte, 1), Attr{}); !errors.Is(err, ErrRandom) ||
		source.i != maxDraws {
		t.Errorf("stuck source: %v after %d draws", err, source.i)
	}
	source.i = 0
	if _, err := stuck.AllocWindow(pd, 0, nil); !errors.Is(err, ErrRandom) || source.i != maxDraws {
		t.Errorf("stuck source of a window: %v after %d draws", err, source.i)
	}
}

//req:rfc5041-8.3-1
func TestRegisterErrors(t *testing.T) {
	tab, pd := newTable(t)
	other, foreign := newTable(t)
	mem := make([]byte, 16)
	for _, c := range []struct {
		name string
		pd   *PD
		mem  []byte
		attr Attr
		want error
	}{
		{"no domain", nil, mem, Attr{}, ErrForeign},
		{"domain of another table", foreign, mem, Attr{}, ErrForeign},
		{"empty", pd, nil, Attr{}, ErrAttr},
		{"unknown right", pd, mem, Attr{Access: 0x80}, ErrAttr},
		{"offsets exceed 2^64", pd, mem, Attr{Base: ^TO(0) - 14}, ErrAttr},
		{"offsets reach 2^64", pd, mem, Attr{Base: ^TO(0) - 15}, ErrAttr},
		{"offsets stop before 2^64", pd, mem, Attr{Base: ^TO(0) - 16}, nil},
	} {
		if _, err := tab.Register(c.pd, c.mem, c.attr); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	m, err := tab.Register(pd, mem, Attr{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tab *Table
		m   *MR
	}{"of another table": {other, m}, "that never was one": {tab, new(MR)}} {
		if err := c.tab.Deregister(c.m); !errors.Is(err, ErrNotValid) {
			t.Errorf("a region %s is deregistered: %v", name, err)
		}
		if err := c.tab.Invalidate(c.m); !errors.Is(err, ErrNotValid) {
			t.Errorf("a region %s is invalidated: %v", name, err)
		}
	}
	if !m.Valid() || tab.Lookup(m.STag()) != m {
		t.Error("another table has invalidated a region")
	}
	if err := tab.FreePD(pd); !errors.Is(err, ErrBusy) {
		t.Errorf("domain with regions freed: %v", err)
	}
}

// TestHeldRegionIsNotDeregistered: while queued work holds a region, Deregister returns ErrBusy, but Invalidate
// succeeds.
//
//req:rfc5041-8.3-1 rfc5041-8.3.1-2 rfc5040-8.1.1-4 rfc5040-8.1.1-6
func TestHeldRegionIsNotDeregistered(t *testing.T) {
	tab, pd := newTable(t)
	m, err := tab.Register(pd, make([]byte, 16), Attr{Access: RemoteRead})
	if err != nil {
		t.Fatal(err)
	}
	m.Hold()
	if err := tab.Deregister(m); !errors.Is(err, ErrBusy) {
		t.Errorf("deregistered while busy: %v", err)
	}
	if err := tab.Invalidate(m); err != nil || m.Valid() || !m.Revoked() ||
		tab.Lookup(m.STag()) != nil {
		t.Errorf("invalidated: %v", err)
	}
	if err := tab.Invalidate(m); !errors.Is(err, ErrNotValid) {
		t.Errorf("invalidated twice: %v", err)
	}
	m.Unhold()
	if err := tab.Deregister(m); err != nil {
		t.Errorf("deregistered: %v", err)
	}
	if err := tab.Deregister(m); !errors.Is(err, ErrNotValid) {
		t.Errorf("deregistered twice: %v", err)
	}
	if err := tab.FreePD(pd); err != nil {
		t.Errorf("domain freed: %v", err)
	}
	if _, err := tab.Register(pd, make([]byte, 1), Attr{}); !errors.Is(err, ErrForeign) {
		t.Errorf("registered in a freed domain: %v", err)
	}
}

// TestFind checks the access check at each edge (RFC 5041, 7.1).
//
//req:rfc5041-7.1-2 rfc5041-8.2-1 rfc5041-8.3.1-1 rfc5040-8.1.1-1 rfc5040-8.1.1-2 rfc5040-8.1.1-3 rfc5040-8.1.1-5
//req:rfc5042-6.1.1-2 rfc5042-6.1.1-3 rfc5042-6.2.1-1
func TestFind(t *testing.T) {
	tab, pd := newTable(t)
	other, err := tab.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	reg := func(a Attr) *MR {
		m, err := tab.Register(pd, make([]byte, 100), a)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	va := reg(Attr{Base: 0x1000, Access: RemoteRead | RemoteWrite})
	zero := reg(Attr{Access: RemoteRead})
	top := reg(Attr{Base: ^TO(0) - 100, Access: RemoteRead})
	own := reg(Attr{Stream: 7, Access: RemoteRead})
	for _, c := range []struct {
		name   string
		pd     *PD
		stream StreamID
		m      *MR
		to     TO
		n      int
		need   Access
		want   Fault
	}{
		{"whole", pd, 1, va, 0x1000, 100, RemoteRead, OK},
		{"both rights", pd, 1, va, 0x1000, 100, RemoteRead | RemoteWrite, OK},
		{"local reading needs no right", pd, 1, zero, 0, 100, 0, OK},
		{"last byte", pd, 1, va, 0x1063, 1, RemoteRead, OK},
		{"nothing at the end", pd, 1, va, 0x1064, 0, RemoteRead, OK},
		{"below", pd, 1, va, 0xfff, 1, RemoteRead, FaultBounds},
		{"nothing below", pd, 1, va, 0xfff, 0, RemoteRead, FaultBounds},
		{"one too long", pd, 1, va, 0x1000, 101, RemoteRead, FaultBounds},
		{"one behind", pd, 1, va, 0x1064, 1, RemoteRead, FaultBounds},
		{"negative", pd, 1, va, 0x1000, -1, RemoteRead, FaultWrap},
		{"zero-based", pd, 1, zero, 99, 1, RemoteRead, OK},
		{"zero-based, far", pd, 1, zero, 1 << 63, 1, RemoteRead, FaultBounds},
		{"top, whole", pd, 1, top, ^TO(0) - 100, 100, RemoteRead, OK},
		{"top, wraps", pd, 1, top, ^TO(0) - 1, 3, RemoteRead, FaultWrap},
		{"right missing", pd, 1, zero, 0, 1, RemoteWrite, FaultAccess},
		{"one right missing", pd, 1, va, 0x1000, 1, RemoteRead | RemoteAtomic, FaultAccess},
		{"other domain", other, 1, va, 0x1000, 1, RemoteRead, FaultStream},
		{"other domain tells nothing else", other, 1, va, 0, 1 << 20, RemoteAtomic, FaultStream},
		{"own stream", pd, 7, own, 0, 1, RemoteRead, OK},
		{"other stream", pd, 8, own, 0, 1, RemoteRead, FaultStream},
	} {
		m, b, f := tab.Find(c.pd, c.stream, c.m.STag(), c.to, c.n, c.need)
		if f != c.want || (f == OK && (m != c.m || len(b) != c.n || cap(b) != c.n)) {
			t.Errorf("%s: %v, %d bytes", c.name, f, len(b))
		}
	}
	if _, _, f := tab.Find(pd, 1, 0, 0, 0, 0); f != FaultSTag {
		t.Errorf("STag 0: %v", f)
	}
}

//req:rfc5040-7.2-2
func TestInvalidateByTag(t *testing.T) {
	tab, pd := newTable(t)
	other, _ := tab.AllocPD()
	reg := func(a Attr) STag {
		m, err := tab.Register(pd, make([]byte, 1), a)
		if err != nil {
			t.Fatal(err)
		}
		return m.STag()
	}
	pd.Attach()
	alone, crowd := reg(Attr{Access: RemoteRead}), reg(Attr{Access: RemoteRead})
	invalidate := func(s STag) Fault {
		pd.Attach()
		defer pd.Detach()
		return tab.InvalidateRemote(pd, 3, s)
	}
	plain := reg(Attr{Access: LocalWrite | BindMW, Stream: 3})
	shared := reg(Attr{Access: RemoteRead})
	own := reg(Attr{Access: RemoteRead, Stream: 3})
	for _, c := range []struct {
		name      string
		got, want Fault
	}{
		{"local, other domain", tab.InvalidateLocal(other, 3, own), FaultStream},
		{"local, other stream", tab.InvalidateLocal(pd, 4, own), FaultStream},
		{"local, unknown", tab.InvalidateLocal(pd, 3, own+1), FaultSTag},
		{"remote, other domain", tab.InvalidateRemote(other, 3, own), FaultInvalid},
		{"remote, unknown", tab.InvalidateRemote(pd, 3, own+1), FaultSTag},
		{"remote, of the one stream of a domain", tab.InvalidateRemote(pd, 3, alone), OK},
		{"remote, of one of two streams", invalidate(crowd), FaultInvalid},
		{"remote, without a remote right", tab.InvalidateRemote(pd, 3, plain), FaultInvalid},
		{"remote, own", tab.InvalidateRemote(pd, 3, own), OK},
		{"remote, again", tab.InvalidateRemote(pd, 3, own), FaultSTag},
		{"local", tab.InvalidateLocal(pd, 3, shared), OK},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}

// TestLookupAllocs: looking up and checking allocate nothing.
func TestLookupAllocs(t *testing.T) {
	tab, pd := newTable(t)
	m, err := tab.Register(pd, make([]byte, 2048), Attr{Access: RemoteWrite})
	if err != nil {
		t.Fatal(err)
	}
	n := testing.AllocsPerRun(100, func() {
		if _, _, f := tab.Find(pd, 1, m.STag(), 0, 2048, RemoteWrite); f != OK {
			t.Fatal(f)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestLookupCache: with the cache of the last Write, the next Write is placed in the same bytes, or has the same fault,
// as without it. That holds also if regions were invalidated, deregistered or registered again under the same STag in
// between.
func TestLookupCache(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	tab, pd := newTable(t)
	const stream = 3
	var cache LookupCache
	var mrs []*MR
	tags := []STag{1, 2, 3, 0x10001, 0x20001}
	s, to, n, hits, cached := STag(0), TO(0), 1, 0, 0
	for range 100_000 {
		switch rng.IntN(8) {
		case 0:
			a := Attr{Access: Access(rng.IntN(16)), STag: tags[rng.IntN(len(tags))],
				Stream: StreamID(rng.IntN(2) * (stream + rng.IntN(2)))}
			if m, err := tab.Register(pd, make([]byte, 1+rng.IntN(100)), a); err == nil {
				mrs = append(mrs, m)
			}
		case 1:
			if len(mrs) == 0 {
				break
			}
			m := mrs[rng.IntN(len(mrs))]
			switch rng.IntN(6) {
			case 0:
				tab.Invalidate(m)
			case 1:
				tab.InvalidateLocal(pd, stream, m.STag())
			case 2:
				tab.InvalidateRemote(pd, stream, m.STag())
			default:
				tab.Deregister(m)
			}
		}
		if rng.IntN(3) == 0 {
			s = tags[rng.IntN(len(tags))]
			if len(mrs) > 0 && rng.IntN(2) == 0 {
				s = mrs[rng.IntN(len(mrs))].STag()
			}
		}
		if rng.IntN(2) == 0 {
			to, n = TO(rng.IntN(80)), 1+rng.IntN(40)
		}
		if rng.IntN(50) == 0 {
			to = ^TO(0) - TO(rng.IntN(50))
		}
		_, want, fault := tab.Find(pd, stream, s, to, n, RemoteWrite)
		if tab.Unchanged(&cache, s) {
			cached++
			if m := tab.Lookup(s); m == nil || m.access&RemoteWrite == 0 {
				t.Fatalf("STag %#x is in the cache and names %v", s, m)
			}
		}
		clear(want)
		h := Tagged{Control: MakeControl(true, true, IETF), STag: s, TO: to}
		v := ulpdu.ViewOf(append(AppendTagged(nil, h), bytes.Repeat([]byte{0x55}, n)...))
		f := tab.PlaceTagged(&cache, pd, stream, h, &v)
		if f != TaggedCause(fault) || fault == OK && bytes.Count(want, []byte{0x55}) != n {
			t.Fatalf("STag %#x, %d bytes at %d: %v, want %v", s, n, to, f, fault)
		}
		if fault == OK {
			hits++
		}
	}
	if hits < 1000 || cached < 1000 {
		t.Errorf("%d accesses were right, %d came from the cache", hits, cached)
	}
}
