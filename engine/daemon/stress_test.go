package daemon_test

import (
	"flag"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"testing"

	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/testkit/stress"
)

var (
	stressRounds = flag.Int("stress.rounds", 3, "rounds of TestStress")
	stressSeed   = flag.Uint64("stress.seed", 1, "seed of the first round")
)

// TestStress: two programs of one daemon open and close connections in every way at the same time. In some rounds one
// program closes its device meanwhile. After each round the daemon must have released everything of both.
func TestStress(t *testing.T) {
	cfg, socket := load(t, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n")
	d, err := daemon.New(cfg, daemon.Options{Log: slog.New(slog.NewTextHandler(t.Output(),
		&slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for round := range *stressRounds {
		seed := *stressSeed + uint64(round)
		rnd := rand.New(rand.NewPCG(seed, 0))
		var devs [2]*client.Device
		for i := range devs {
			if devs[i], err = client.Open(socket); err != nil {
				t.Fatal(err)
			}
		}
		c := stress.Config{Seed: seed, A: devs[0], B: devs[1], Loopback: true, Lines: 12, Each: 6,
			At: netip.MustParseAddrPort("127.0.0.1:0")}
		if rnd.IntN(2) == 0 {
			c.Close = devs[rnd.IntN(2)].Close
		}
		if err := stress.Run(c); err != nil {
			t.Error(err)
		}
		for _, dev := range devs {
			dev.Close()
		}
		if _, ok := eventually(func() bool { return nothingLeft(d) }); !ok {
			t.Errorf("left in the daemon: %+v", d.Snapshot())
		}
		if t.Failed() {
			t.Fatalf("again with -stress.seed %d", seed)
		}
	}
}
