package sockets

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"xwarp/engine/verbs"
)

// TestDeviceCloseEndsDial: if its device is closed during the kernel's handshake, Dial returns ErrClosed, and the
// context of Config.Dial is cancelled.
func TestDeviceCloseEndsDial(t *testing.T) {
	asked, ended := make(chan struct{}), make(chan struct{})
	d, err := Open(Config{Dial: func(ctx context.Context, _, _ netip.AddrPort) (
		net.Conn,
		error) {
		close(asked)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}})
	if err != nil {
		t.Fatal(err)
	}
	pd, _ := d.AllocPD()
	cq, _ := d.CreateCQ(16)
	q, err := d.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-asked
		d.Close()
	}()
	if err := d.Dial(t.Context(), netip.MustParseAddrPort("192.0.2.1:1"), q,
		verbs.DialConfig{}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Dial: %v", err)
	}
	<-ended
}
