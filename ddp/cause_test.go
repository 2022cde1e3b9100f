package ddp

import (
	"errors"
	"fmt"
	"testing"

	"xwarp/mpa/ulpdu"
)

// TestCauses checks that each error of DDP has the layer, type and code of RFC 5041, 7.2, and RFC 5040, 4.8.
//
//req:rfc5041-7.2-1
func TestCauses(t *testing.T) {
	for _, v := range []struct {
		c         Cause
		typ, code uint8
	}{
		{CauseCatastrophic, 0, 0},
		{CauseSTag, 1, 0},
		{CauseBounds, 1, 1},
		{CauseStream, 1, 2},
		{CauseWrap, 1, 3},
		{CauseTaggedVersion, 1, 4},
		{CauseQN, 2, 1},
		{CauseNoBuffer, 2, 2},
		{CauseMSNRange, 2, 3},
		{CauseMO, 2, 4},
		{CauseTooLong, 2, 5},
		{CauseUntaggedVersion, 2, 6},
	} {
		if v.c.Layer() != ulpdu.DDP || v.c.Type() != v.typ || v.c.Code() != v.code ||
			MakeCause(ulpdu.DDP, v.typ, v.code) != v.c {
			t.Errorf("%v, want 1/%d/%02x", v.c, v.typ, v.code)
		}
		want := &ulpdu.Error{Layer: ulpdu.DDP, Type: v.typ, Code: v.code, Detail: "byte 7"}
		if e := v.c.Errorf("byte %d", 7); e == nil || *e != *want {
			t.Errorf("%v as an error: %+v", v.c, e)
		}
		if s := fmt.Sprintf("DDP 1/%d/%02x", v.typ, v.code); v.c.String() != s {
			t.Errorf("%q, want %q", v.c, s)
		}
	}
	if e := CauseNone.Errorf("all is well"); e != nil {
		t.Errorf("no cause is the error %v", e)
	}
	if CauseNone.String() != "none" {
		t.Errorf("no cause is called %q", CauseNone)
	}
}

// TestMakeCause: each field has its own bits, and no fields make CauseNone.
func TestMakeCause(t *testing.T) {
	for _, v := range []struct {
		l         ulpdu.Layer
		typ, code uint8
		wantLayer ulpdu.Layer
		wantType  uint8
	}{
		{0, 0, 0, 0, 0},
		{15, 0, 0, 15, 0},
		{0, 15, 0, 0, 15},
		{0, 0, 255, 0, 0},
		{ulpdu.MPA, 1, 2, ulpdu.MPA, 1},
		{16, 16, 1, 0, 0}, // beyond the four bits of each
		{0x21, 0x43, 1, 1, 3},
	} {
		c := MakeCause(v.l, v.typ, v.code)
		if c == CauseNone || c.Layer() != v.wantLayer || c.Type() != v.wantType ||
			c.Code() != v.code {
			t.Errorf("%d/%d/%02x became %v", v.l, v.typ, v.code, c)
		}
	}
}

// TestTaggedCause checks the causes of faults of tagged segments (RFC 5041, 7.2); a missing right counts as an invalid
// STag.
func TestTaggedCause(t *testing.T) {
	for f, want := range map[Fault]Cause{OK: CauseNone, FaultSTag: CauseSTag,
		FaultStream: CauseStream, FaultAccess: CauseSTag, FaultWrap: CauseWrap,
		FaultBounds: CauseBounds} {
		if c := TaggedCause(f); c != want {
			t.Errorf("%v: %v, want %v", f, c, want)
		}
	}
}

// TestStringsOfValues checks the names of values that a log may show.
func TestStringsOfValues(t *testing.T) {
	tab, pd := newTable(t)
	m, err := tab.Register(pd, make([]byte, 16), Attr{STag: 0xabc, Base: 0x1000,
		Access: LocalWrite | RemoteRead})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		v    fmt.Stringer
		want string
	}{
		{RDMAC, "0 (RDMA Consortium)"},
		{IETF, "1 (RFC 5041)"},
		{Version(2), "2 (unknown)"},
		{Access(0), "local-read"},
		{LocalWrite, "local-write"},
		{RemoteRead, "remote-read"},
		{RemoteWrite, "remote-write"},
		{RemoteAtomic, "remote-atomic"},
		{BindMW, "mw-bind"},
		{LocalWrite | BindMW, "local-write|mw-bind"},
		{m, "STag 0x00000abc [0x1000,+16) local-write|remote-read"},
		{OK, "ok"},
		{FaultSTag, "invalid STag"},
		{FaultInvalid, "STag cannot be invalidated"},
		{FaultInvalid + 1, "fault 7"},
		{Tagged{MakeControl(true, true, IETF), 0x40, 1, 0x20},
			"tagged last DV 1 ULP 0x40 STag 0x00000001 TO 0x20"},
		{Untagged{MakeControl(false, false, IETF), 0x43, 5, 1, 2, 3},
			"untagged DV 1 ULP 0x43 word 0x00000005 QN 1 MSN 2 MO 3"},
	} {
		if got := c.v.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestRegionAttributes: a region returns the attributes of its registration. A domain is freed only once, by its own
// table, and while no stream uses it.
func TestRegionAttributes(t *testing.T) {
	tab, pd := newTable(t)
	m, err := tab.Register(pd, make([]byte, 16), Attr{Base: 0x1000, Owner: "its owner"})
	if err != nil {
		t.Fatal(err)
	}
	if m.Base() != 0x1000 || m.Len() != 16 || m.Owner() != "its owner" || m.Lost() || !m.Valid() ||
		m.Revoked() || tab.Lookup(m.STag()) != m {
		t.Errorf("%v of %v", m, m.Owner())
	}
	pd.Attach()
	if err := tab.Deregister(m); err != nil || m.Valid() || !m.Revoked() {
		t.Errorf("deregistered: %v", err)
	}
	if err := tab.FreePD(pd); !errors.Is(err, ErrBusy) {
		t.Errorf("a domain with a stream is freed: %v", err)
	}
	pd.Detach()
	for _, want := range []error{nil, ErrForeign} {
		if err := tab.FreePD(pd); !errors.Is(err, want) {
			t.Errorf("freed: %v, want %v", err, want)
		}
	}
	_, foreign := newTable(t)
	for _, pd := range []*PD{nil, foreign} {
		if err := tab.FreePD(pd); !errors.Is(err, ErrForeign) {
			t.Errorf("a domain of another table is freed: %v", err)
		}
	}
}
