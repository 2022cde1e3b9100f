package core

import (
	"sync/atomic"

	"xwarp/ddp"
	"xwarp/engine/verbs"
)

// PD is verbs.PD of the engine.
type PD struct {
	dev  *Device
	pds  []*ddp.PD    // one per worker; nil once freed there
	srqs atomic.Int32 // shared receive queues in the domain

	streams atomic.Uint64 // streams of all workers, see ddp.PD
}

// AllocPD implements verbs.Device.
func (d *Device) AllocPD() (verbs.PD, error) {
	pd, err := d.NewPD()
	if err != nil {
		return nil, err
	}
	return pd, nil
}

// NewPD is AllocPD for callers that need a *PD.
func (d *Device) NewPD() (*PD, error) {
	pd := &PD{dev: d, pds: make([]*ddp.PD, len(d.shards))}
	err := d.onEach(func(s *Shard) error {
		one, err := s.table.AllocPD()
		if err == nil {
			one.ShareStreamCount(&pd.streams)
			pd.pds[s.index] = one
		}
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
	return verbs.Wrap("ibv_dealloc_pd", freeEach(p.dev, p.pds, (*ddp.Table).FreePD))
}

// onEach runs f for each worker on that worker, in order, until one fails.
func (d *Device) onEach(f func(s *Shard) error) error {
	for _, s := range d.shards {
		if err := s.Do(func() error { return f(s) }); err != nil {
			return err
		}
	}
	return nil
}

// freeEach calls free for the elements of list, which has one for each worker, and nil for those that are freed.
func freeEach[T any](d *Device, list []*T, free func(*ddp.Table, *T) error) error {
	return d.onEach(func(s *Shard) error {
		one := &list[s.index]
		if *one == nil {
			return nil
		}
		err := free(s.table, *one)
		if err == nil {
			*one = nil
		}
		return err
	})
}
