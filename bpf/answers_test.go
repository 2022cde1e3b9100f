package bpf

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/google/gopacket/layers"
)

// TestListenerCacheInvalidated: the program's cache of listeners becomes invalid when a listener is removed, when the
// local addresses change, and when the VLAN is closed.
func TestListenerCacheInvalidated(t *testing.T) {
	runtime.LockOSThread() // the cache is per CPU, so after a migration to another CPU this test checks less
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
	done(b.VLAN.Close())
	done(b.SetMAC([6]byte(localMAC)))
	all(any4, PassNoMatch)
	all(exact, PassNoMatch)
}
