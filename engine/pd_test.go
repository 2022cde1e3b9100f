package engine

import (
	"errors"
	"testing"

	"xwarp/ddp"
)

// atOnce is the worker of a loop that does what is posted on the goroutine that posts it.
type atOnce struct{ *loop }

func (a *atOnce) wake()         { a.work() }
func (a *atOnce) tell(f func()) { f() }

// twoLoops is a device of two workers that do what is posted at once.
func twoLoops() *Device {
	d := newDevice(Options{})
	for range 2 {
		a := &atOnce{}
		a.loop = newLoop(a)
		d.own(a.loop)
	}
	return d
}

// fill allocates domains on a worker until it has no room.
func fill(l *loop) (list []*ddp.PD) {
	for {
		pd, err := l.table.AllocPD()
		if err != nil {
			return list
		}
		list = append(list, pd)
	}
}

// TestDomainOfTwoWorkers: a domain that cannot be made on one worker leaves nothing on the other, and one
// that is busy on one of them can be closed later.
func TestDomainOfTwoWorkers(t *testing.T) {
	d := twoLoops()
	full := fill(d.loops[1])
	if _, err := d.AllocPD(); !errors.Is(err, ddp.ErrLimit) {
		t.Fatalf("a domain beyond the limit: %v", err)
	}
	first := fill(d.loops[0])
	if len(first) != ddp.MaxDomains {
		t.Errorf("%d domains stay on the first worker", ddp.MaxDomains-len(first))
	}
	if err := d.loops[0].table.FreePD(first[0]); err != nil {
		t.Fatal(err)
	}
	if err := d.loops[1].table.FreePD(full[0]); err != nil {
		t.Fatal(err)
	}
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mr, err := d.loops[1].table.Register(pd.(*PD).pds[1], make([]byte, 1), ddp.Attr{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pd.Close(); !errors.Is(err, ddp.ErrBusy) {
		t.Errorf("closing a busy domain: %v", err)
	}
	if err := errors.Join(d.loops[1].table.Deregister(mr), pd.Close()); err != nil {
		t.Error(err)
	}
	if n := len(fill(d.loops[0])); n != 1 {
		t.Errorf("room for %d domains on the first worker, want the one that was closed", n)
	}
}
