package bpf

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/google/gopacket/layers"
)

// TestListenerCacheInvalidated: what the program remembers of a listener counts no more when the listener is gone, when
// the addresses are others, and when another user takes the program over.
func TestListenerCacheInvalidated(t *testing.T) {
	runtime.LockOSThread() // the program remembers for each processor; a change of it makes this test say less
	defer runtime.UnlockOSThread()
	b := newBench(t, true)
	exact, any4 := at(local4, listenPort), at(netip.IPv4Unspecified(), any4Port)
	to := func(l netip.AddrPort) []byte {
		return frame(ether4(), ip4(local4, protoTCP), segmentTo(layers.TCPPort(l.Port())))
	}
	all := func(l netip.AddrPort, want Outcome) {
		t.Helper()
		for range 16 {
			b.expect(to(l), want)
		}
	}
	done := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	all(exact, Listener)
	done(b.RemoveListener(exact))
	all(exact, PassNoMatch)
	done(b.AddListener(exact))
	all(exact, Listener)
	all(any4, Listener)
	done(b.SetLocal(hosts(other4)))
	all(any4, PassNotLocal)
	all(exact, Listener)
	done(b.SetLocal(hosts(local4)))
	all(any4, Listener)
	done(b.RemoveClaims())
	all(any4, PassNoMatch)
	all(exact, PassNoMatch)
}
