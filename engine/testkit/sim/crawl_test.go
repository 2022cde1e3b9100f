package sim

import (
	"testing"

	"xwarp/tcp/tick"
)

// TestCrawls runs seeds in which a connection once stalled, or ended without a reason. Each must end within its own
// limit, 5 to 45 s after the last fault. workTime, which must suit any seed, would hide a timer that has grown to half
// a minute.
func TestCrawls(t *testing.T) {
	for _, c := range []struct {
		name string
		seed uint64
		most tick.Duration // from the last fault to the end of the last connection
	}{
		{"back-off that grew while bytes kept arriving behind holes", 748803, 5 * tick.Second},
		{"RST of a cookie listener for the tail of a first flight whose head was lost, TIME-WAIT " +
			"included", 5237458, 45 * tick.Second},
		{"black hole that was found after four timeouts of a backed off RTO", 7007431,
			10 * tick.Second},
		{"the last record, whose FIN is never reported, before the holes in front of it; TIME-WAIT " +
			"included", 275884, 45 * tick.Second},
		{"lost records that were not sent again in the order of the stream, to a peer without room", 94011668,
			15 * tick.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := draw(c.seed, nil, nil)
			if err := s.guard(); err != nil {
				t.Fatalf("seed %d: %v\n  scenario: %v", c.seed, err, s)
			}
			after := s.afterFaults()
			if after > c.most {
				t.Errorf("seed %d was over %d ms after the last fault, want at most %d s", c.seed,
					after/ms, c.most/tick.Second)
			}
		})
	}
}
