package xdp_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"

	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/stress"
)

var (
	stressRounds = flag.Int("stress.rounds", 3, "rounds of TestKernelStress and TestQueueStress")
	stressSeed   = flag.Uint64("stress.seed", 1, "seed of their first round")
)

// TestKernelStress opens and closes kernel-transport connections in all ways of package stress at the same time, on
// several workers. Afterwards no state, descriptor or goroutine of them may be left.
func TestKernelStress(t *testing.T) {
	openKernels(t, false, false)[0].Close() // makes the runtime create its poller, which has descriptors
	for round := range *stressRounds {
		seed := *stressSeed + uint64(round)
		rnd := rand.New(rand.NewPCG(seed, 0))
		files, routines := descriptors(t), runtime.NumGoroutine()
		devs := openKernels(t, rnd.IntN(2) == 0, rnd.IntN(3) == 0)
		c := stress.Config{Seed: seed, A: devs[0], B: devs[1], Loopback: true, Lines: 16, Each: 6,
			At: netip.MustParseAddrPort("127.0.0.1:0")}
		if rnd.IntN(3) == 0 {
			c.Close = devs[rnd.IntN(2)].Close
		}
		if err := stress.Run(c); err != nil {
			t.Error(err)
		}
		nothingLeft(t, c.Close != nil, devs...)
		if !soon(func() bool {
			return descriptors(t) <= files && runtime.NumGoroutine() <= routines
		}) {
			var b strings.Builder
			pprof.Lookup("goroutine").WriteTo(&b, 1)
			t.Errorf("%d descriptors, before %d; %d goroutines, before %d:\n%s", descriptors(t),
				files, runtime.NumGoroutine(), routines, b.String())
		}
		if t.Failed() {
			t.Fatalf("again with -stress.seed %d", seed)
		}
	}
}

// nothingLeft checks the devices for leftover state, unless some were closed in the middle, and closes them.
func nothingLeft(t *testing.T, closed bool, devs ...*core.Device) {
	t.Helper()
	for _, d := range devs {
		if !closed && !soon(func() bool { return core.Leftovers(d) == "" }) {
			t.Errorf("left in a device: %s", core.Leftovers(d))
		}
	}
	for _, d := range devs {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// openKernels opens two kernel-transport devices. With narrow their sockets have small buffers. With short the second
// device sends short FPDUs.
func openKernels(t *testing.T, narrow, short bool) (devs []*core.Device) {
	t.Helper()
	for i := range 2 {
		cfg := sockets.Config{}
		if i == 1 && short {
			cfg.EMSS = 1448
		}
		if narrow {
			cfg.Window, cfg.Dial, cfg.Listen = 1, narrowDial, narrowListen
		}
		d, err := sockets.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		devs = append(devs, d)
	}
	return devs
}

// narrowDial and narrowListen create sockets with small buffers.
func narrowDial(ctx context.Context, _, remote netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{Control: stress.Narrow}
	return d.DialContext(ctx, "tcp", remote.String())
}

func narrowListen(at netip.AddrPort) (net.Listener, error) {
	l := net.ListenConfig{Control: stress.Narrow}
	return l.Listen(context.Background(), "tcp", at.String())
}

// soon is eventually with a limit ten times as long, for a loaded machine.
func soon(ok func() bool) bool {
	for range 10 {
		if eventually(ok) {
			return true
		}
	}
	return false
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
