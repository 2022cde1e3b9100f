package xdp

import (
	"net/netip"
	"testing"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/host/neigh"
	"xwarp/engine/internal/core"
)

// TestHopUsers: the resolver follows a destination until all workers that requested it have forgotten it.
func TestHopUsers(t *testing.T) {
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tn.Close()
	var r *neigh.Resolver
	if err := tn.A.Do(func() (err error) {
		r, err = neigh.New(tn.A.Link.Index, nil, func(neigh.Hop) {})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	u := hopUsers{r: r}
	a, b := u.forWorker(), u.forWorker()
	dst := core.FromNetip(tn.B.Addr4.Addr())
	other := core.FromNetip(netip.MustParseAddr("192.0.2.99"))
	a.Request(dst)
	a.Request(dst)
	b.Request(dst)
	a.Forget(other)
	for i, want := range []int{1, 1, 0} {
		if n := r.Len(); n != want {
			t.Errorf("step %d: %d destinations are followed, want %d", i, n, want)
		}
		[]func(){func() { a.Forget(dst) }, func() { a.Forget(dst); b.Forget(dst) }, func() {}}[i]()
	}
	if len(u.n)+len(a.mine)+len(b.mine) != 0 {
		t.Errorf("something is left: %v %v %v", u.n, a.mine, b.mine)
	}
}
