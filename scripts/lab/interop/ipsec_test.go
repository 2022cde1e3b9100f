package interop

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xwarp/bpf"
	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/ipsec"
	"xwarp/engine/xdp"
	"xwarp/scripts/lab/vm"
)

// TestXFRM runs the tests of package xfrm in a machine, because Debian's kernel there has ESP.
func TestXFRM(t *testing.T) {
	if !*runLab {
		t.Skip("make lab, LAB=1 or -lab runs this")
	}
	vm.Need(t)
	dir := t.TempDir()
	compile(t, "test", "-c", "-o", filepath.Join(dir, "xfrm.test"), "xwarp/engine/host/xfrm")
	m, err := vm.Start(t.Context(), vm.Options{Share: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	out, code, err := m.Run("cd /tmp && "+vm.SharePath+"/xfrm.test -test.v", 5*time.Minute)
	if err != nil || code != 0 || !strings.Contains(out, "--- PASS: TestTakesSAs") ||
		strings.Contains(out, "--- SKIP") {
		t.Errorf("exit status %d, %v\n%s", code, err, out)
	}
}

// TestRpingOverESP runs rping over soft-iWARP and the ESP of Debian's kernel against xwarp's ESP. It checks that no TCP
// is on the link in the clear, and that the kernel counts no errors in xwarp's packets.
func TestRpingOverESP(t *testing.T) {
	if !*runLab {
		t.Skip("make lab, LAB=1 or -lab runs this")
	}
	vm.Need(t)
	benches := map[int]*bench{}
	for i, c := range []struct {
		mode esp.Mode
		v6   bool
		bits int
		mtu  int
	}{{esp.Transport, false, 128, 1500}, {esp.Tunnel, true, 256, 1500},
		{esp.Transport, true, 256, 1500}, {esp.Tunnel, false, 128, 1500},
		{esp.Transport, false, 128, 9000}, {esp.Tunnel, true, 256, 9000}} {
		b := benches[c.mtu]
		if b == nil {
			b = boot(t, vm.Options{Network: network(t, c.mtu)})
			benches[c.mtu] = b
		}
		t.Run(fmt.Sprintf("%v/IPv6 %v/MTU %d", c.mode, c.v6, c.mtu), func(t *testing.T) {
			ours, theirs := vm.PeerAddr4, b.vm.Addr4
			if c.v6 {
				ours, theirs = vm.PeerAddr6, b.vm.Addr6
			}
			there, back := testSA(c.mode, c.bits, ours, theirs, uint32(0x2000+i)),
				testSA(c.mode, c.bits, theirs, ours, uint32(0x3000+i))
			script := "ip xfrm state flush; ip xfrm policy flush\n"
			for _, sa := range []*xfrm.SA{there, back} {
				script += fmt.Sprintf("ip xfrm state add src %v dst %v proto esp spi %#x reqid 9 "+
					"mode %v aead 'rfc4106(gcm(aes))' 0x%x 128 flag esn replay-window 1024\n", sa.Src,
					sa.Dst, sa.SPI, sa.Mode, []byte(sa.Keymat))
			}
			for direction, p := range map[string][2]netip.Addr{"out": {theirs, ours},
				"in": {ours, theirs}} {
				script += fmt.Sprintf("ip xfrm policy add src %[2]v dst %[3]v proto 6 dir %[1]s "+
					"tmpl src %[2]v dst %[3]v proto esp reqid 9 mode %[4]v\n", direction, p[0],
					p[1], c.mode)
			}
			if _, err := b.vm.Script(t.Output(), script, 2*time.Minute); err != nil {
				t.Fatal(err)
			}
			var d *xdp.Device
			if err := b.net.Peer.Do(func() (err error) {
				d, err = xdp.Open(xdp.Config{Interface: vm.PeerLink, Queues: []int{0},
					IPsec: &xdp.IPsecConfig{Rules: []ipsec.Rule{{Mode: c.mode}},
						Follow: xfrm.Static(&xfrm.Snapshot{Outbound: []*xfrm.SA{there},
							Inbound: []*xfrm.SA{back}})}})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			file := filepath.Join(t.TempDir(), "clear.pcap")
			clear, err := b.net.Capture(file, "tcp")
			if err != nil {
				t.Fatal(err)
			}
			for _, ours := range []string{"client", "server"} {
				const count = 20
				p := ping{"xdp", ours, c.v6, false, 16384, count}
				if res, err := p.run(b, d, port()); err != nil ||
					res.Iterations != count {
					t.Errorf("ours is %s: %+v, %v", ours, res, err)
				}
			}
			if err := clear.Stop(); err != nil {
				t.Fatal(err)
			}
			const header = 24 // size of a pcap file without packets
			if s, err := os.Stat(file); err != nil || s.Size() != header {
				t.Errorf("TCP in the clear is on the link: %v", err)
				keep(t, file)
			}
			n, err := d.Stats()
			if err != nil || n.Steering[bpf.ESP] < 100 {
				t.Errorf("%d frames of ESP, %v", n.Steering[bpf.ESP], err)
			}
			out, err := b.vm.Script(t.Output(), "ip -s xfrm state; cat /proc/net/xfrm_stat",
				time.Minute)
			if err != nil || strings.Count(out, "replay 0 failed 0") != 2 {
				t.Errorf("the kernel's counters, %v:\n%s", err, out)
			}
		})
	}
}

// testSA returns an SA with a random key of the given number of bits.
func testSA(mode esp.Mode, bits int, from, to netip.Addr, spi uint32) *xfrm.SA {
	key := make([]byte, bits/8+4)
	rand.Read(key)
	return &xfrm.SA{SA: esp.SA{SPI: spi, Mode: mode, ESN: true, Keymat: key}, Src: from, Dst: to}
}
