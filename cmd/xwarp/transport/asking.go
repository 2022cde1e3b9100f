package transport

import (
	"context"
	"net/netip"

	"xwarp/engine/daemon/client"
	"xwarp/engine/verbs"
)

// asking is a daemon's device whose connections ask for what the flags say; without any, the daemon's policy counts.
type asking struct {
	*client.Device
	mpa verbs.MPAConfig
}

func (a *asking) ask(cfg *verbs.ConnConfig) {
	if cfg.MPA == nil && a.mpa != (verbs.MPAConfig{}) {
		cfg.MPA = &a.mpa
	}
}

// Dial implements verbs.Device.
func (a *asking) Dial(ctx context.Context, remote netip.AddrPort, qp verbs.QP,
	cfg verbs.ConnConfig) error {
	a.ask(&cfg)
	return a.Device.Dial(ctx, remote, qp, cfg)
}

// Listen implements verbs.Device.
func (a *asking) Listen(addr netip.AddrPort, backlog int,
	cfg verbs.ConnConfig) (verbs.Listener, error) {
	a.ask(&cfg)
	return a.Device.Listen(addr, backlog, cfg)
}
