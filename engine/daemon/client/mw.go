package client

import (
	"context"
	"sync/atomic"

	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// MW is verbs.MW of a daemon.
type MW struct {
	object
	stag   verbs.STag
	closed atomic.Bool
}

// AllocMW implements verbs.PD.
func (p *PD) AllocMW() (verbs.MW, error) {
	var r control.AllocMWResult
	args := control.AllocMWArgs{PD: p.handle}
	if err := p.dev.call(context.Background(), control.OpAllocMW, args, &r); err != nil {
		return nil, err
	}
	return &MW{object: object{p.dev, r.Handle}, stag: r.STag}, nil
}

// STag implements verbs.MW.
func (w *MW) STag() verbs.STag { return w.stag }

// Close implements verbs.MW.
func (w *MW) Close() error { return w.closeOnce(&w.closed, control.OpDeallocMW) }
