package xdp_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// TestRegionLostBetweenReads truncates a file so that the sources of the first Reads remain and those of the later ones
// are lost, although their responses share segments. The connection must end with a Terminate. No Read of a lost source
// may complete, and no byte of its response may arrive.
func TestRegionLostBetweenReads(t *testing.T) {
	const size, keep = 1 << 20, 256 << 10
	const reads, n = 14, 300
	for _, transport := range []string{"kernel", "xdp", "packet-gso"} {
		t.Run(transport, func(t *testing.T) {
			da, db, at := pairOf(t, transport)
			a, b := verbstest.New(t, da, size), verbstest.New(t, db, size)
			verbstest.Connect(t, a, b, at)
			mem, cut := mapped(t, size)
			for i := range mem {
				mem[i], b.Mem[i] = 1, 2
			}
			mr, err := b.PD.RegMR(mem, verbs.RemoteRead)
			if err != nil {
				t.Fatal(err)
			}
			a.Post(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{a.MR.SGE(0, size)},
				RemoteSTag: b.MR.STag()}) // the others are posted meanwhile
			first := keep - reads/2*n
			cut(keep)
			for i := range reads {
				wr := verbs.SendWR{ID: uint64(i + 1), Op: rdmap.WRRead, RemoteSTag: mr.STag(),
					SGL:      []verbs.SGE{a.MR.SGE(first+i*n, n)},
					RemoteTO: ddpTO(first + i*n)}
				if i == 0 {
					wr.Flags = rdmap.Fence
				}
				a.Post(wr)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for {
				var c [1]verbs.Completion
				if _, err := a.CQ.Wait(ctx, c[:]); err != nil {
					t.Fatalf("no completion with the failure of a Read: %v", err)
				}
				if c[0].Status != rdmap.Success {
					break
				}
				if c[0].ID > reads/2 {
					t.Errorf("Read %d completed, although its source is lost", c[0].ID)
				}
			}
			regionIsLost(t, a, b, mr)
			if got := a.Mem[keep:]; bytes.Count(got, []byte{2}) != len(got) {
				t.Error("bytes arrived that cannot be read")
			}
			if err := b.QP.Close(); err != nil {
				t.Error(err)
			}
			if err := mr.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
