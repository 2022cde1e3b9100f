package xdp_test

import (
	"errors"
	"syscall"
	"testing"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/xdp"
)

// TestErrors: both transports return the errors that the verbs document.
func TestErrors(t *testing.T) {
	for _, transport := range []string{"kernel", "xdp"} {
		t.Run(transport, func(t *testing.T) {
			a, b, at := pairOf(t, transport)
			verbstest.Errors(t, a, b, at.Addr())
		})
	}
}

// TestOpenErrors: the error of Open wraps ENODEV for an unknown interface, EINVAL for an MTU that is too large, and
// EBUSY if another device has the interface open.
func TestOpenErrors(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	n, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for want, cfg := range map[syscall.Errno]xdp.Config{
		syscall.ENODEV: {Interface: "nosuch0"},
		syscall.EINVAL: {Interface: n.A.Link.Name, MTU: 65000},
		syscall.EBUSY:  {Interface: n.A.Link.Name},
	} {
		if err := n.A.Do(func() error {
			if want == syscall.EBUSY {
				first, err := xdp.Open(cfg)
				if err != nil {
					return err
				}
				defer first.Close()
			}
			_, err := xdp.Open(cfg)
			return err
		}); !errors.Is(err, want) {
			t.Errorf("Open: %v, want %v", err, want)
		}
	}
}
