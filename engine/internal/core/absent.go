package core

import (
	"context"
	"io"
	"net/netip"

	"xwarp/engine/verbs"
)

// Absent returns a closed device that has failed with the error why. A daemon uses it in place of a device that cannot
// be opened yet. Its methods behave as those of any failed device.
func Absent(t verbs.Transport, why error) *Device {
	d := newDevice(Options{})
	d.drv = absent{t, why}
	d.fail(why)
	d.Close()
	return d
}

// absent is the driver of a device that Absent returned.
type absent struct {
	transport verbs.Transport
	why       error
}

func (a absent) Start(context.Context, *Conn, netip.AddrPort, netip.AddrPort) error { return a.why }

func (a absent) Listen(*Listener) (at netip.AddrPort, stop io.Closer, err error) {
	return at, nil, a.why
}

func (a absent) Resolve(context.Context, netip.Addr) error { return a.why }

func (a absent) Detach() error               { return nil }
func (a absent) Do(f func() error) error     { return f() }
func (a absent) Describe() verbs.Transport   { return a.transport }
func (a absent) Footprint(accepted bool) int { return 0 }
func (a absent) Close() error                { return nil }
