package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"xwarp/bpf/needs"
)

func TestConfig(t *testing.T) {
	good := Config{Size: 1 << 20, Markers: true, CRC: true}
	if err := good.Complete(); err != nil || good.MTU != 1500 || good.Timeout != DefaultTimeout {
		t.Errorf("%+v, %v", good, err)
	}
	for _, tc := range []struct {
		name string
		edit func(*Config)
		want string
	}{
		{"loss above 1", func(c *Config) { c.Loss = 1.01 }, "fraction from 0 to 1"},
		{"negative reorder", func(c *Config) { c.Reorder = -1e-9 }, "fraction from 0 to 1"},
		{"NaN", func(c *Config) { c.Duplicate = math.NaN() }, "fraction from 0 to 1"},
		{"everything corrupted", func(c *Config) { c.Corrupt = 1 }, "nothing ever arrives"},
		{"corrupt what is encrypted", func(c *Config) { c.IPsec, c.Corrupt = true, 0.1 },
			"cannot change"},
		{"small MTU", func(c *Config) { c.MTU = 1279 }, "MTU 1279"},
		{"large MTU", func(c *Config) { c.MTU = MaxMTU + 1 }, "MTU 65515"},
		{"negative size", func(c *Config) { c.Size = -1 }, "size -1"},
		{"more than the machine has", func(c *Config) { c.Size = MaxSize }, "of memory in all"},
		{"negative timeout", func(c *Config) { c.Timeout = -1 }, "negative"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := good
			tc.edit(&c)
			if err := c.Complete(); !errors.Is(err, ErrConfig) ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestRequestsCoverTheSize(t *testing.T) {
	for _, size := range []int64{1, 4095, chunk, chunk + 1, maxRequests * chunk,
		maxRequests*chunk + 1, 1 << 39} {
		c := Config{Size: size}
		r := run{cfg: c, each: c.requestLen()}
		r.requests = int((size + r.each - 1) / r.each)
		if r.requests > maxRequests {
			t.Errorf("size %d: %d work requests, limit %d", size, r.requests, maxRequests)
		}
		end := int64(0)
		for i := range r.requests {
			off, n := r.piece(i)
			if off != end || n <= 0 {
				t.Fatalf("size %d: piece %d is %d bytes at %d, want it at %d", size, i, n, off,
					end)
			}
			end = off + n
		}
		if end != size {
			t.Errorf("size %d: the pieces end at %d", size, end)
		}
	}
}

func TestDiffer(t *testing.T) {
	src := make([]byte, 200_000)
	fill(src, 1)
	dst := bytes.Clone(src)
	dst[70_000] ^= 1
	dst[199_999] = 0
	src[199_999] = 9
	err := differ(src, dst)
	if !errors.Is(err, ErrBytes) ||
		!strings.Contains(err.Error(), "2 of 200000, first at offset 70000; 1 of them are zero") {
		t.Error(err)
	}
}

func TestAvailableMemory(t *testing.T) {
	name := filepath.Join(t.TempDir(), "meminfo")
	os.WriteFile(name, []byte("MemTotal:       100 kB\nMemAvailable:    48 kB\n"), 0o600)
	if n, ok := availableMemory(name); n != 48<<10 || !ok {
		t.Errorf("%d %v", n, ok)
	}
	if _, ok := availableMemory(name + ".not"); ok {
		t.Error("a file that is not there says something")
	}
}

func quick(edit func(*Config)) Config {
	c := Config{Size: 1<<20 + 77, Markers: true, CRC: true, Seed: 5, Timeout: 40 * time.Second}
	if edit != nil {
		edit(&c)
	}
	return c
}

func TestRun(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	for _, tc := range []struct {
		name  string
		edit  func(*Config)
		check func(*testing.T, *Result)
	}{
		{"plain", nil, func(t *testing.T, r *Result) {
			if r.AToB.Exceptions+r.BToA.Exceptions > 0 || r.AToB.Unaligned+r.BToA.Unaligned > 0 ||
				r.AToB.Held > 0 {
				t.Errorf("a path that does nothing broke the alignment: %+v", r.AToB)
			}
		}},
		{"one byte", func(c *Config) { c.Size = 1 }, nil},
		{"ipv6", func(c *Config) { c.IPv6 = true }, nil},
		{"mtu 9000", func(c *Config) { c.MTU = 9000 }, nil},
		{"largest mtu", func(c *Config) { c.MTU = MaxMTU }, nil},
		{"smallest mtu", func(c *Config) { c.MTU = 1280 }, nil},
		{"no CRC", func(c *Config) { c.CRC = false }, nil},
		{"loss with markers", func(c *Config) { c.Loss = 0.02 }, func(t *testing.T, r *Result) {
			if s, ok := r.AToB.PlacedShare(); !ok || s < 0.9 {
				t.Errorf("%.0f %% placed on arrival, want most: %+v", 100*s, r.AToB)
			}
			if r.AToB.Relay.Lost == 0 || r.AToB.Retransmissions == 0 {
				t.Errorf("the relay lost %d, %d were sent again", r.AToB.Relay.Lost,
					r.AToB.Retransmissions)
			}
		}},
		{"loss without markers", func(c *Config) {
			c.Loss, c.Markers = 0.02, false
		}, func(t *testing.T, r *Result) {
			if r.MPA.Markers || r.AToB.ByMarker > 0 || r.AToB.Held == 0 ||
				r.AToB.HeldHighWater == 0 {
				t.Errorf("behind a gap no FPDU start is known, so it is held: %+v", r.AToB)
			}
		}},
		{"everything", func(c *Config) {
			c.Loss, c.Reorder, c.Duplicate, c.Corrupt = 0.01, 0.05, 0.01, 0.003
		}, func(t *testing.T, r *Result) {
			if x := r.AToB.Relay; x.Lost == 0 || x.Reordered == 0 || x.Duplicated == 0 ||
				x.Corrupted == 0 {
				t.Errorf("the relay did not do everything: %+v", *x)
			}
			if r.AToB.CRCDrops == 0 {
				t.Error(
					"corrupted segments have a right TCP checksum: the CRC must have found them")
			}
		}},
		{"encrypted", func(c *Config) { c.IPsec = true }, func(t *testing.T, r *Result) {
			if r.IPsec == nil || r.IPsec.ESP == 0 || r.IPsec.TCP > 0 {
				t.Errorf("%+v", r.IPsec)
			}
		}},
		{"encrypted IPv6 with losses", func(c *Config) {
			c.IPsec, c.IPv6, c.Loss, c.Reorder, c.Duplicate = true, true, 0.02, 0.05, 0.01
		}, func(t *testing.T, r *Result) {
			if r.AToB.ByMarker == 0 || r.AToB.HeldHighWater > 0 {
				t.Errorf("%d FPDUs behind a gap were found by a marker, %d bytes held",
					r.AToB.ByMarker, r.AToB.HeldHighWater)
			}
		}},
		{"resegment", func(c *Config) { c.Resegment = true }, func(t *testing.T, r *Result) {
			if r.AToB.Unaligned == 0 {
				t.Error("no segment was re-cut")
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Run(t.Context(), quick(tc.edit))
			if err != nil {
				t.Fatalf("%v\n%+v", err, r)
			}
			if len(r.Verbs) != 3 || !r.OK || r.A.XDPMode != "generic" || r.B.XDPMode != "generic" {
				t.Errorf("%+v", r)
			}
			if tc.check != nil {
				tc.check(t, r)
			}
			var table bytes.Buffer
			if err := r.WriteTable(&table); err != nil ||
				strings.Count(table.String(), "equal") != 3 {
				t.Errorf("%v\n%s", err, &table)
			}
		})
	}
}

// TestRunGivesUp checks that a cancelled run fails with the cause of the cancellation, and that it leaves no descriptor
// open: no namespace, socket or BPF program.
func TestRunGivesUp(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	files := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	one := func() {
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough seen")
		c := quick(func(c *Config) {
			c.Size = 8 << 20
			c.Progress = func(verb string, done, total int64) {
				if done > 0 {
					cancel(enough)
				}
			}
		})
		r, err := Run(ctx, c)
		if !errors.Is(err, enough) || r.OK || r.Error == "" {
			t.Errorf("%v, %+v", err, r)
		}
	}
	one() // opens descriptors that stay open in this process, such as that of Go's network poller
	before := files()
	one()
	if after := files(); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// TestCapture checks the capture file of a run: it begins with the SYN, and has a FIN and at least the bytes that the
// three verbs move. When Run returns, the file has as many packets as the result says.
func TestCapture(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	c := quick(func(c *Config) {
		c.Size, c.Capture = 100_000, filepath.Join(t.TempDir(), "demo.pcapng")
	})
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(c.Capture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ng, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	var segments []*layers.TCP
	packets, byteCount := 0, 0
	for ; ; packets++ {
		b, _, err := ng.ReadPacketData()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("packet %d: %v", packets, err)
		}
		p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.DecodeOptions{})
		if e := p.ErrorLayer(); e != nil {
			t.Fatalf("packet %d: %v", packets, e.Error())
		}
		if s, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP); ok {
			segments = append(segments, s)
			byteCount += len(s.Payload)
		}
	}
	if uint64(packets) != r.Capture.Packets || r.Capture.File != c.Capture {
		t.Errorf("%d packets in the file, the result says %+v", packets, *r.Capture)
	}
	if byteCount < 3*int(c.Size) {
		t.Errorf("%d bytes of TCP payload, but three verbs moved %d each", byteCount, c.Size)
	}
	fins := 0
	for _, s := range segments {
		if s.FIN {
			fins++
		}
	}
	if len(segments) == 0 || !segments[0].SYN || segments[0].ACK || fins < 1 {
		t.Errorf("%d segments with %d FINs, want the first to be the SYN, and a FIN", len(segments),
			fins)
	}
}
