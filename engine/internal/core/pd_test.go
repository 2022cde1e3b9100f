package core

import (
	"errors"
	"testing"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// atOnce is the worker of a shard that runs posted functions immediately, on the goroutine that posts them.
type atOnce struct{ *Shard }

func (a *atOnce) Wake()           { a.RunPosted() }
func (a *atOnce) Notify(f func()) { f() }

// twoLoops is a device of two workers that run posted functions immediately.
func twoLoops() *Device {
	d := newDevice(Options{})
	for range 2 {
		a := &atOnce{}
		a.Shard = NewShard(a)
		d.addShard(a.Shard)
	}
	return d
}

// fill allocates domains on a worker until it is full.
func fill(s *Shard) (list []*ddp.PD) {
	for {
		pd, err := s.table.AllocPD()
		if err != nil {
			return list
		}
		list = append(list, pd)
	}
}

// TestDomainOfTwoWorkers: a domain that cannot be created on one worker leaves nothing on the other, and one that is
// busy on one of them can be closed later.
func TestDomainOfTwoWorkers(t *testing.T) {
	d := twoLoops()
	full := fill(d.shards[1])
	if _, err := d.AllocPD(); !errors.Is(err, ddp.ErrLimit) {
		t.Fatalf("a domain beyond the limit: %v", err)
	}
	first := fill(d.shards[0])
	if len(first) != ddp.MaxDomains {
		t.Errorf("%d domains stay on the first worker", ddp.MaxDomains-len(first))
	}
	if err := d.shards[0].table.FreePD(first[0]); err != nil {
		t.Fatal(err)
	}
	if err := d.shards[1].table.FreePD(full[0]); err != nil {
		t.Fatal(err)
	}
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mr, err := d.shards[1].table.Register(pd.(*PD).pds[1], make([]byte, 1), ddp.Attr{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pd.Close(); !errors.Is(err, ddp.ErrBusy) {
		t.Errorf("closing a busy domain: %v", err)
	}
	if err := errors.Join(d.shards[1].table.Deregister(mr), pd.Close()); err != nil {
		t.Error(err)
	}
	if n := len(fill(d.shards[0])); n != 1 {
		t.Errorf("room for %d domains on the first worker, want that of the closed one", n)
	}
}

// TestWindowOfTwoWorkers: once a window is bound on another worker, its previous binding is inaccessible, and holds no
// region.
func TestWindowOfTwoWorkers(t *testing.T) {
	d := twoLoops()
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.RegMR(make([]byte, 100), ddp.LocalWrite|ddp.BindMW)
	if err != nil {
		t.Fatal(err)
	}
	w, err := pd.AllocMW()
	if err != nil {
		t.Fatal(err)
	}
	var caches [2]ddp.LookupCache
	bind := func(i int, key ddp.STag, size uint64) {
		t.Helper()
		b := ddp.Binding{STag: w.STag() | key, Region: mr.STag(), Len: size,
			Access: ddp.RemoteWrite}
		if f := d.shards[i].table.Bind(pd.(*PD).pds[i], 7, b); f != ddp.OK {
			t.Fatal(f)
		}
	}
	place := func(i int, key ddp.STag) ddp.Cause {
		v := ulpdu.ViewOf(make([]byte, ddp.TaggedLen+8))
		return d.shards[i].table.PlaceTagged(&caches[i], pd.(*PD).pds[i], 7,
			ddp.Tagged{STag: w.STag() | key}, &v)
	}
	bind(0, 1, 100)
	held, _, _ := d.shards[0].table.Find(pd.(*PD).pds[0], 7, w.STag()|1, 0, 8, ddp.RemoteWrite)
	if c := place(0, 1); c != ddp.CauseNone || !held.Valid() {
		t.Fatalf("bound: %v", c)
	}
	bind(1, 1, 50) // the same key, which a program should not reuse
	if c := place(1, 1); c != ddp.CauseNone {
		t.Errorf("bound again: %v", c)
	}
	if c := place(0, 1); c != ddp.CauseSTag || held.Valid() || !held.Revoked() {
		t.Errorf("the first peer still writes: %v", c)
	}
	if f := d.shards[0].table.InvalidateRemote(pd.(*PD).pds[0], 7, w.STag()|1); f != ddp.FaultSTag {
		t.Errorf("the first peer invalidates: %v", f)
	}
	if err := mr.Close(); !errors.Is(err, ddp.ErrBusy) {
		t.Errorf("the region was deregistered under its window: %v", err)
	}
	bind(0, 2, 10)
	if c := place(1, 1); c != ddp.CauseSTag {
		t.Errorf("the second peer still writes: %v", c)
	}
	bind(1, 0, 0) // a length of 0 unbinds it
	if c := place(0, 2); c != ddp.CauseSTag {
		t.Errorf("a Write through an unbound window: %v", c)
	}
	if err := errors.Join(mr.Close(), w.Close(), pd.Close()); err != nil {
		t.Error(err)
	}
}

// TestInvalidationOfTwoWorkers: a peer invalidates a region that only its stream can access, on a device of two
// workers. Afterwards neither worker can access the region. A stream of the domain on the other worker prevents the
// invalidation.
func TestInvalidationOfTwoWorkers(t *testing.T) {
	d := twoLoops()
	dom, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	pds := dom.(*PD).pds
	mr, err := dom.RegMR(make([]byte, 100), ddp.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	var caches [2]ddp.LookupCache
	place := func(i int, want ddp.Cause) {
		t.Helper()
		v := ulpdu.ViewOf(make([]byte, ddp.TaggedLen+8))
		if c := d.shards[i].table.PlaceTagged(&caches[i], pds[i], 7, ddp.Tagged{STag: mr.STag()},
			&v); c != want {
			t.Errorf("a Write on worker %d: %v, want %v", i, c, want)
		}
	}
	invalidate := func(want ddp.Fault) {
		t.Helper()
		if f := d.shards[0].table.InvalidateRemote(pds[0], 7, mr.STag()); f != want {
			t.Errorf("the peer invalidates: %v, want %v", f, want)
		}
	}
	pds[0].Attach()
	pds[1].Attach()
	invalidate(ddp.FaultInvalid)
	place(0, ddp.CauseNone)
	place(1, ddp.CauseNone)
	pds[1].Detach()
	invalidate(ddp.OK)
	place(0, ddp.CauseSTag)
	place(1, ddp.CauseSTag)
	pds[0].Detach()
	if err := errors.Join(mr.Close(), dom.Close()); err != nil {
		t.Error(err)
	}
}
