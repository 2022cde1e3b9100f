package bpf

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// TestMutated corrupts fixtures at random. Every frame must have exactly one outcome. If a redirected frame is a TCP
// segment for an independent decoder, its destination port must be claimed.
func TestMutated(t *testing.T) {
	const rounds = 20000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	b := newBench(t, true)
	seeds := slices.DeleteFunc(fixtures(), func(f fixture) bool { return len(f.frame) > 1000 })
	claimed := []layers.TCPPort{listenPort, anyPort, any4Port, any6Port, flowPort}
	var redirected, decoded int
	for range rounds {
		f := slices.Clone(seeds[rng.IntN(len(seeds))].frame)
		for range 1 + rng.IntN(3) {
			// Half of the corruption goes to the link and network headers.
			n := len(f)
			if rng.IntN(2) == 0 {
				n = min(n, 60)
			}
			f[rng.IntN(n)] ^= byte(1 << rng.IntN(8))
		}
		if rng.IntN(4) == 0 {
			f = f[:14+rng.IntN(len(f)-13)]
		}
		switch action := b.action(f); action {
		case xdpPass:
			continue
		case xdpRedirect:
		default:
			t.Fatalf("action %d\n% x", action, f)
		}
		redirected++
		seg, ok := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(
			layers.LayerTypeTCP).(*layers.TCP)
		if !ok {
			continue // ESP, a quoting error, a fragment, or options that the decoder rejects
		}
		decoded++
		if !slices.Contains(claimed, seg.DstPort) {
			t.Fatalf("redirected a segment to port %d\n% x", seg.DstPort, f)
		}
	}
	c, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if c.Total() != rounds {
		t.Errorf("%d frames counted, %d sent", c.Total(), rounds)
	}
	var steered uint64
	for o, n := range c {
		if Outcome(o).Steered() {
			steered += n
		}
	}
	if steered != uint64(redirected) {
		t.Errorf("%d frames counted as steered, %d redirected", steered, redirected)
	}
	if decoded < redirected/3 || redirected < rounds/20 {
		t.Errorf("%d redirected, %d of them decoded: too few for a test", redirected, decoded)
	}
	t.Logf("%d redirected, %d of them decoded", redirected, decoded)
}
