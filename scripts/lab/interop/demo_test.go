package interop

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"xwarp/bench/demo"
)

// TestDemoCapture lets tshark decode the file of `xwarp demo --pcap`. It must find every FPDU, with a good CRC, and
// report nothing as malformed.
//
//req:rfc5044-4.1-1 rfc5044-4.3-2 rfc5040-6.1-1
func TestDemoCapture(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Fatalf("%v (apt-get install tshark)", err)
	}
	for _, tc := range []struct {
		name string
		cfg  demo.Config
	}{
		{"markers", demo.Config{Markers: true, CRC: true}},
		{"no markers", demo.Config{CRC: true}},
		{"no CRC", demo.Config{Markers: true}},
		{"IPv6, 9000", demo.Config{Markers: true, CRC: true, IPv6: true, MTU: 9000}},
		{"IPv6, no markers", demo.Config{CRC: true, IPv6: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := tc.cfg
			cfg.Size, cfg.Timeout, cfg.Seed = 1<<20, 2*time.Minute, 7
			cfg.Capture = filepath.Join(dir, "demo.pcapng")
			if cfg.MTU == 0 {
				cfg.MTU = 1500
			}
			res, err := demo.Run(context.Background(), cfg)
			if err != nil || res.Capture == nil {
				t.Fatalf("%v\n%+v", err, res)
			}
			if err := judge(cfg.Capture, filepath.Join(dir, "recut.pcap"), "Write", "Read Request",
				"Read Response", "Send"); err != nil {
				t.Error(err)
			}
		})
	}
}
