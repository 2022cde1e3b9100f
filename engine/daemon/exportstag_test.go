package daemon_test

import (
	"bytes"
	"fmt"
	"testing"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// TestExportSTags: each peer of an export has the memory by an STag of its own. Another's is worth nothing to
// it, not even when it was told, and using it ends its own connection alone.
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
		copy(p.mem, text)
		if err := p.do(verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{p.mr.SGE(0, len(text))},
			RemoteSTag: stag, RemoteTO: p.info.Base}); err != nil {
			return err
		}
		return p.do(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{p.mr.SGE(1000, len(text))},
			RemoteSTag: stag, RemoteTO: p.info.Base})
	}
	if err := write(a, a.info.STag, "of one peer"); err != nil {
		t.Fatal(err)
	}
	if err := write(thief, a.info.STag, "of another!"); err == nil {
		t.Error("a peer uses another's STag")
	}
	if err := write(c, c.info.STag, "of a third."); err != nil {
		t.Errorf("what one peer does ends another's connection: %v", err)
	}
	if err := a.do(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{a.mr.SGE(0, 11)},
		RemoteSTag: a.info.STag, RemoteTO: a.info.Base}); err != nil ||
		!bytes.Equal(a.mem[:11], []byte("of a third.")) {
		t.Errorf("%q, %v", a.mem[:11], err)
	}
	for _, p := range peers {
		p.qp.Close()
	}
	if _, ok := eventually(10e9, func() bool {
		return d.Snapshot().Exports[0].Connections == 0
	}); !ok {
		t.Errorf("%+v", d.Snapshot().Exports)
	}
}
