package client

import (
	"context"

	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// MW is verbs.MW of a daemon.
type MW struct {
	object
	stag verbs.STag
}

// AllocMW implements verbs.PD.
func (p *PD) AllocMW() (verbs.MW, error) {
	var r control.AllocMWResult
	args := control.AllocMWArgs{PD: p.handle}
	if err := p.dev.call(context.Background(), control.OpAllocMW, args, &r); err != nil {
		return nil, err
	}
	return &MW{object: object{dev: p.dev, handle: r.Handle}, stag: r.STag}, nil
}

// STag implements verbs.MW.
func (w *MW) STag() verbs.STag { return w.stag }

// Close implements verbs.MW.
func (w *MW) Close() error {
	return w.closeOnce(func() error { return w.ask(control.OpDeallocMW, nil) })
}
