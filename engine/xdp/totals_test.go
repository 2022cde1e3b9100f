package xdp_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/internal/core"
	"xwarp/engine/ipsec"
	"xwarp/engine/tally"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/mpa"
	"xwarp/tcp"
)

func TestTotalsAreCounters(t *testing.T) {
	if err := errors.Join(tally.Check[core.Totals](), tally.Check[rdmap.Counters](),
		tally.Check[mpa.ReceiverCounters](), tally.Check[tcp.AllCounters](),
		tally.Check[ipsec.Stats]()); err != nil {
		t.Error(err)
	}
}

// falling reads the totals of a device continuously until stop is called. stop returns an error if the totals could not
// be read, or if the RDMA payload in or out, the TCP bytes in or the FPDUs have fallen.
func falling(d *core.Device) (stop func() error) {
	done := make(chan struct{})
	var group sync.WaitGroup
	var errs []error
	group.Go(func() {
		var last core.Totals
		for {
			now, err := d.Totals()
			if err != nil {
				errs = append(errs, err)
				return
			}
			r, was := &now.RDMA, &last.RDMA
			if r.PayloadIn < was.PayloadIn || r.PayloadOut < was.PayloadOut ||
				now.TCP.BytesIn < last.TCP.BytesIn || now.MPA.FPDUs < last.MPA.FPDUs {
				errs = append(errs, errors.New("a total fell"))
			}
			last = now
			select {
			case <-done:
				return
			default:
			}
		}
	})
	return func() error {
		close(done)
		group.Wait()
		return errors.Join(errs...)
	}
}

// endings are ways in which a connection with traffic ends.
var endings = map[string]func(t *testing.T, a, b *verbstest.End){
	"in order": func(t *testing.T, a, b *verbstest.End) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := a.QP.(*core.QP).Shutdown(ctx); err != nil {
			t.Error(err)
		}
	},
	"reset":         func(_ *testing.T, a, _ *verbstest.End) { a.QP.Close() },
	"reset by peer": func(_ *testing.T, _, b *verbstest.End) { b.QP.Close() },
}

// TestTotals ends connections in several ways while the totals are read. The totals of both ends must match to the
// byte, also after the devices were closed.
func TestTotals(t *testing.T) {
	for name, open := range transports(t) {
		t.Run(name, func(t *testing.T) {
			da, db, at := open()
			stopA, stopB := falling(da), falling(db)
			var want uint64
			for name, over := range endings {
				a, b := verbstest.New(t, da, 1<<20), verbstest.New(t, db, 1<<20)
				verbstest.Connect(t, a, b, at)
				n := 100_000 + len(name)
				a.Post(verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{a.MR.SGE(0, n)},
					RemoteSTag: b.MR.STag()})
				a.Wait()
				a.Post(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{a.MR.SGE(n, 50_000)},
					RemoteSTag: b.MR.STag()})
				a.Wait()
				want += uint64(n)
				over(t, a, b)
				<-a.QP.(*core.QP).Gone()
				<-b.QP.(*core.QP).Gone()
			}
			rejectOne(t, da, db, at)
			if err := errors.Join(stopA(), stopB()); err != nil {
				t.Error(err)
			}
			check := func() {
				t.Helper()
				compareTotals(t, da, db, want, 50_000*uint64(len(endings)))
			}
			check()
			da.Close()
			db.Close()
			check()
		})
	}
}

// rejectOne dials from da to a listener of db whose consumer rejects the connection.
func rejectOne(t *testing.T, da, db *core.Device, at netip.AddrPort) {
	t.Helper()
	l, err := db.Listen(at, verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if r, err := l.Accept(t.Context()); err == nil {
			r.Reject(nil)
		}
	}()
	a := verbstest.New(t, da, 4096)
	err = da.Dial(t.Context(), l.Addr(), a.QP,
		verbs.DialConfig{MPA: &verbs.MPAConfig{SingleAttempt: true}})
	if !errors.Is(err, verbs.ErrRejected) {
		t.Errorf("Dial: %v", err)
	}
}

// compareTotals compares the totals of two devices that have connections only with each other. written and read are the
// numbers of bytes that da has written to db and read from db.
func compareTotals(t *testing.T, da, db *core.Device, written, read uint64) {
	t.Helper()
	var a, b core.Totals
	same := func() bool { // may become true late, because the last acknowledgements may be in flight
		var errA, errB error
		a, errA = da.Totals()
		b, errB = db.Totals()
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		return a.RDMA.PayloadOut == b.RDMA.PayloadIn && b.RDMA.PayloadOut == a.RDMA.PayloadIn &&
			a.RDMA.SegmentsOut == b.MPA.FPDUs && b.RDMA.SegmentsOut == a.MPA.FPDUs &&
			a.TCP.BytesOut == b.TCP.BytesIn && b.TCP.BytesOut == a.TCP.BytesIn
	}
	if !eventually(same) {
		t.Errorf("a counted %+v\nb counted %+v", a, b)
	}
	if a.RDMA.PayloadOut != written || b.RDMA.PayloadOut != read {
		t.Errorf("%d bytes written and %d read, want %d and %d", a.RDMA.PayloadOut,
			b.RDMA.PayloadOut, written, read)
	}
}
