package loss

import (
	"testing"

	"xwarp/tcp/seq"
)

// TestDSACKForms checks which first blocks report duplicates, with the examples of RFC 2883, 4 and their segments of
// 500 bytes. Invalid blocks, such as those of bytes that were not sent or were sent long ago, are counted and ignored.
func TestDSACKForms(t *testing.T) {
	at := func(from, to int) seq.Range { return seq.Range{Start: seq.Num(from), End: seq.Num(to)} }
	for _, c := range []struct {
		name   string
		ack    int
		blocks []seq.Range
		dsack  bool
		sacked int

		invalid uint64
	}{
		{"4.1.1", 4000, []seq.Range{at(3000, 3500)}, true, 0, 0},
		{"4.1.2", 4000, []seq.Range{at(3000, 3500), at(4500, 5000)}, true, 500, 0},
		{"4.1.3", 4000, []seq.Range{at(5000, 5500), at(4500, 5500)}, true, 1000, 0},
		{"4.2.1", 2500, []seq.Range{at(1000, 1500)}, true, 0, 0},
		{"4.2.2", 2500, []seq.Range{at(1000, 1500), at(3000, 3500)}, true, 500, 0},
		{"4.2.3", 1000, []seq.Range{at(1500, 2000), at(1500, 3000), at(3500, 4000)}, true, 2000, 0},
		{"plain", 1000, []seq.Range{at(2000, 2500), at(3000, 3500)}, false, 1000, 0},
		{"all", 1000, []seq.Range{at(1500, 6000)}, false, 4500, 0},
		{"beyond", 1000, []seq.Range{at(9000, 9500)}, false, 0, 1},
		{"partly beyond", 1000, []seq.Range{at(5500, 6001)}, false, 0, 1},
		{"second beyond", 1000, []seq.Range{at(2000, 2500), at(5500, 6500)}, false, 500, 1},
		{"inverted", 1000, []seq.Range{at(3000, 2500)}, false, 0, 1},
		{"empty", 1000, []seq.Range{at(3000, 3000)}, false, 0, 1},
		{"long ago", 1000, []seq.Range{at(6000-maxDSACK-1, 2500)}, false, 0, 1},
		{"nearly so", 1000, []seq.Range{at(6000-maxDSACK, 2500)}, false, 1500, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := conf(RACK)
			cfg.CC.MSS = 500
			b := newBench(t, cfg, 100*ms)
			b.s.Init(&cfg, 0, b.now)
			b.base = 0
			b.send(0, 12)
			b.wait(100 * ms)
			r := b.input(Ack{Ack: seq.Num(c.ack)}, c.blocks...)
			b.want("DSACK", r.DSACK, c.dsack)
			b.want("bytes", b.s.q.list[sacked].bytes, c.sacked)
			b.want("invalid", b.s.count.InvalidSACK, c.invalid)
		})
	}
}
