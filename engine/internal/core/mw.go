package core

import (
	"sync/atomic"

	"xwarp/ddp"
	"xwarp/engine/verbs"
)

// MW is verbs.MW of the engine. The worker of the queue pair that posts BindMW binds it.
type MW struct {
	dev     *Device
	windows []*ddp.Window // one per worker, all with the same STag; nil once freed there
	stag    verbs.STag
	turn    atomic.Uint64 // see ddp.SharedCount
}

// AllocMW implements verbs.PD.
func (p *PD) AllocMW() (verbs.MW, error) {
	w := &MW{dev: p.dev, windows: make([]*ddp.Window, len(p.pds))}
	var turn ddp.SharedCount
	if len(p.pds) > 1 {
		turn = &w.turn
	}
	err := p.dev.onEach(func(s *Shard) (err error) {
		one := &w.windows[s.index]
		if *one, err = s.table.AllocWindow(p.pds[s.index], w.stag, turn); err == nil {
			w.stag = (*one).STag()
		}
		return err
	})
	if err != nil {
		w.Close()
		return nil, verbs.Wrap("ibv_alloc_mw", err)
	}
	return w, nil
}

// STag implements verbs.MW.
func (w *MW) STag() verbs.STag { return w.stag }

// Close implements verbs.MW.
func (w *MW) Close() error {
	return verbs.Wrap("ibv_dealloc_mw", freeEach(w.dev, w.windows, (*ddp.Table).FreeWindow))
}
