package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"xwarp/ddp/rdmap"
	"xwarp/engine"
)

//req:rfc5044-7.1-2
func TestKernelTransfer(t *testing.T) {
	for _, tc := range []struct {
		name string
		mpa  engine.MPAConfig
	}{
		{"markers", engine.MPAConfig{}},
		{"no markers", engine.MPAConfig{NoMarkers: true}},
		{"no CRC", engine.MPAConfig{NoCRC: true}},
		{"revision 1", engine.MPAConfig{Revision1: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			open := func() *engine.Device {
				cfg := engine.KernelConfig{}
				cfg.MPA = tc.mpa
				cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
				d, err := engine.OpenKernel(cfg)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { d.Close() })
				return d
			}
			const size = 4 << 20
			a, b := newEnd(t, open(), size), newEnd(t, open(), size)
			connect(t, a, b, netip.MustParseAddrPort("127.0.0.1:0"))
			exercise(t, a, b)
		})
	}
}

// TestKernelDialGivesUp cancels Dial while the kernel still connects: there is no session then, and the socket that comes
// too late must not stay.
func TestKernelDialGivesUp(t *testing.T) {
	asked, late := make(chan struct{}), make(chan net.Conn)
	cfg := engine.KernelConfig{Dial: func(context.Context, netip.AddrPort, netip.AddrPort) (net.Conn, error) {
		close(asked)
		return <-late, nil
	}}
	d, err := engine.OpenKernel(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	e := newEnd(t, d, 4096)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if err := d.Dial(ctx, netip.MustParseAddrPort("192.0.2.1:1"), e.qp, engine.ConnConfig{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial: %v", err)
	}
	ours, theirs := net.Pipe()
	late <- theirs
	if _, err := ours.Read(make([]byte, 1)); err == nil {
		t.Error("the late connection was used")
	}
	if err := e.qp.Close(); err != nil {
		t.Error(err)
	}
}

// TestPostAfterClose posts on a queue pair whose device is gone: an error says so, for no completion would ever come.
func TestPostAfterClose(t *testing.T) {
	open := func() *engine.Device {
		d, err := engine.OpenKernel(engine.KernelConfig{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	a, b := newEnd(t, open(), 1<<12), newEnd(t, open(), 1<<12)
	connect(t, a, b, netip.MustParseAddrPort("127.0.0.1:0"))
	if err := a.dev.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.qp.PostSend(&engine.SendWR{Op: rdmap.WRSend}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("PostSend: %v, want ErrClosed", err)
	}
	if err := a.qp.PostRecv(&engine.RecvWR{}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("PostRecv: %v, want ErrClosed", err)
	}
}

// TestRegionAfterClose: what names a region stays readable, for those who list regions while one is closed.
func TestRegionAfterClose(t *testing.T) {
	d, err := engine.OpenKernel(engine.KernelConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.RegMR(make([]byte, 4096), engine.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	tag, piece := mr.STag(), mr.SGE(16, 8)
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	if mr.STag() != tag || mr.SGE(16, 8) != piece {
		t.Errorf("STag %v and piece %v, before %v and %v", mr.STag(), mr.SGE(16, 8), tag, piece)
	}
}
