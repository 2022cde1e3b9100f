package engine

import (
	"sync/atomic"

	"xwarp/ddp"
	"xwarp/engine/verbs"
)

// PD is verbs.PD of the engine.
type PD struct {
	dev  *Device
	pds  []*ddp.PD    // one per worker; nil once freed there
	srqs atomic.Int32 // in the domain
}

// AllocPD implements verbs.Device.
func (d *Device) AllocPD() (verbs.PD, error) {
	pd := &PD{dev: d, pds: make([]*ddp.PD, len(d.loops))}
	err := d.onEach(func(i int, l *loop) (err error) {
		pd.pds[i], err = l.table.AllocPD()
		return err
	})
	if err != nil {
		pd.Close()
		return nil, verbs.Wrap("ibv_alloc_pd", err)
	}
	return pd, nil
}

// Close implements verbs.PD.
func (p *PD) Close() error {
	if p.srqs.Load() > 0 {
		return verbs.Wrap("ibv_dealloc_pd", verbs.ErrBusy)
	}
	return verbs.Wrap("ibv_dealloc_pd", p.dev.onEach(func(i int, l *loop) error {
		if p.pds[i] == nil {
			return nil
		}
		err := l.table.FreePD(p.pds[i])
		if err == nil {
			p.pds[i] = nil
		}
		return err
	}))
}

// onEach runs f for each worker on that worker, in order, until one fails.
func (d *Device) onEach(f func(i int, l *loop) error) error {
	for i, l := range d.loops {
		var err error
		if e := l.call(func() { err = f(i, l) }); e != nil {
			return e
		}
		if err != nil {
			return err
		}
	}
	return nil
}
