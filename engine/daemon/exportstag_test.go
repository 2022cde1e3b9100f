package daemon_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// TestExportSTags: each peer of an export gets its own STag for the memory. A peer that uses the valid STag of another
// peer ends its own connection, but not the connections of the others.
//
//req:rfc5042-3-3 rfc5042-6.1.1-1 rfc5042-6.4.5-1 rfc5041-8.3.2-3 rfc5040-8.1.2-3
func TestExportSTags(t *testing.T) {
	at := freePort(t)
	d, _ := kernel(t, fmt.Sprintf("[[export]]\nname = \"memory\"\nlisten = %q\nsize = \"64KiB\"\n",
		at))
	var peers [3]*peer
	for i := range peers {
		p, err := dialExport(t, at)
		if err != nil {
			t.Fatal(err)
		}
		peers[i] = p
	}
	a, thief, c := peers[0], peers[1], peers[2]
	if a.info.STag == thief.info.STag || a.info.STag == c.info.STag ||
		thief.info.STag == c.info.STag {
		t.Fatalf("STags %v, %v and %v", a.info.STag, thief.info.STag, c.info.STag)
	}
	write := func(p *peer, stag verbs.STag, text string) error {
		copy(p.Mem, text)
		if err := p.do(verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{p.MR.SGE(0, len(text))},
			RemoteSTag: stag, RemoteTO: p.info.Base}); err != nil {
			return err
		}
		return p.do(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{p.MR.SGE(1000, len(text))},
			RemoteSTag: stag, RemoteTO: p.info.Base})
	}
	if err := write(a, a.info.STag, "of one peer"); err != nil {
		t.Fatal(err)
	}
	if err := write(thief, a.info.STag, "of another!"); err == nil {
		t.Error("a peer uses another's STag")
	}
	if err := write(c, c.info.STag, "of a third."); err != nil {
		t.Errorf("one peer's error ended another's connection: %v", err)
	}
	if err := a.do(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{a.MR.SGE(0, 11)},
		RemoteSTag: a.info.STag, RemoteTO: a.info.Base}); err != nil ||
		!bytes.Equal(a.Mem[:11], []byte("of a third.")) {
		t.Errorf("%q, %v", a.Mem[:11], err)
	}
	for _, p := range peers {
		p.QP.Close()
	}
	if _, ok := eventually(func() bool {
		return d.Snapshot().Exports[0].Connections == 0
	}); !ok {
		t.Errorf("%+v", d.Snapshot().Exports)
	}
}

// TestExportAccess: peers read zeros from unwritten memory, have exactly the access of the export, and cannot reach
// beyond its end.
//
//req:rfc5042-6.3.2-1 rfc5042-6.3.4-1 rfc5042-6.3.5-1 rfc5042-10.2-2
func TestExportAccess(t *testing.T) {
	at := map[string]netip.AddrPort{}
	var text strings.Builder
	for _, access := range []string{"read", "write", "read-write"} {
		at[access] = freePort(t)
		fmt.Fprintf(&text, "[[export]]\nname = %q\nlisten = %q\nsize = 8192\naccess = %q\n", access,
			at[access], access)
	}
	kernel(t, text.String())
	for _, c := range []struct {
		access string
		op     verbs.WROp
		off    verbs.TO
		ok     bool
	}{
		{"read", rdmap.WRRead, 0, true}, {"read", rdmap.WRWrite, 0, false},
		{"write", rdmap.WRWrite, 0, true}, {"write", rdmap.WRRead, 0, false},
		{"read-write", rdmap.WRRead, 8192 - 64, true},
		{"read-write", rdmap.WRWrite, 8192 - 64, true},
		{"read-write", rdmap.WRRead, 8192 - 63, false},
		{"read-write", rdmap.WRWrite, 8192, false},
	} {
		p, err := dialExport(t, at[c.access])
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Mem {
			p.Mem[i] = 0xee
		}
		err = p.do(verbs.SendWR{Op: c.op, SGL: []verbs.SGE{p.MR.SGE(0, 64)},
			RemoteSTag: p.info.STag, RemoteTO: p.info.Base + c.off})
		if err == nil && c.op == rdmap.WRWrite { // the next operation shows whether a Write failed
			_, _, err = p.flush(0, 0)
		}
		if (err == nil) != c.ok {
			t.Errorf("%v at %d of an export for %s: %v", c.op, c.off, c.access, err)
		}
		if c.ok && c.op == rdmap.WRRead && !bytes.Equal(p.Mem[:64], make([]byte, 64)) {
			t.Errorf("an export for %s is not zeroed: %x", c.access, p.Mem[:64])
		}
		p.QP.Close()
	}
}
