package interop

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"xwarp/engine/esp"
	"xwarp/scripts/lab/vm"
)

// ikeHosts are two machines whose SAs strongSwan negotiates: ours runs xwarpd, siw runs soft-iWARP over the kernel's
// ESP.
type ikeHosts struct{ ours, siw *vm.VM }

// bootIKE boots both machines and starts strongSwan in them.
func bootIKE(t *testing.T, mtu int) *ikeHosts {
	t.Helper()
	dir := t.TempDir()
	compile(t, "build", "-o", dir, "xwarp/cmd/xwarp", "xwarp/cmd/xwarpd",
		"xwarp/engine/testkit/rping/pinger")
	n := network(t, mtu)
	h := &ikeHosts{ours: start(t, vm.Options{Network: n, Newest: true, NoSiw: true, Share: dir}),
		siw: start(t, vm.Options{Network: n})}
	for _, m := range []*vm.VM{h.ours, h.siw} {
		t.Cleanup(func() {
			if t.Failed() && m.Running() {
				out, _, _ := m.Run("tail -n 30 /tmp/*.log; ip -s xfrm state; ip xfrm policy",
					time.Minute)
				t.Log(out)
			}
		})
		h.script(t, m, startCharon)
	}
	return h
}

// startCharon is a script that starts charon, strongSwan's IKE daemon.
const startCharon = `modprobe -a esp4 esp6 xfrm_user
cat >/tmp/strongswan.conf <<C
charon {
  load = random nonce openssl aes sha1 sha2 hmac kdf gcm drbg kernel-netlink socket-default vici
  install_routes = no
  filelog {
    log {
      path = /tmp/charon.log
      default = 1
      flush_line = yes
    }
  }
  plugins {
    vici {
      socket = unix:///tmp/vici
    }
  }
}
swanctl {
  load = random openssl
}
C
mkdir -p /tmp/swanctl
cd /tmp/swanctl
mkdir -p x509 x509ca x509ocsp x509aa x509ac x509crl pubkey private rsa ecdsa bliss pkcs8 pkcs12
export STRONGSWAN_CONF=/tmp/strongswan.conf
setsid /usr/lib/ipsec/charon </dev/null >/tmp/charon.out 2>&1 &
for i in $(seq 60); do [ ! -S /tmp/vici ] || break; sleep 0.5; done
`

// swanctl returns a shell line that runs swanctl with the machine's configuration.
func swanctl(command string) string {
	return "STRONGSWAN_CONF=/tmp/strongswan.conf SWANCTL_DIR=/tmp/swanctl swanctl " + command +
		" --uri unix:///tmp/vici\n"
}

func (h *ikeHosts) script(t *testing.T, m *vm.VM, script string) string {
	t.Helper()
	out, err := m.Script(t.Output(), script, 3*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// protect configures IPsec for TCP between both machines, and restarts xwarpd.
func (h *ikeHosts) protect(t *testing.T, mode esp.Mode, v6 bool) {
	t.Helper()
	for _, m := range []*vm.VM{h.ours, h.siw} {
		peer, own := h.siw, ""
		if m == h.siw {
			peer = h.ours
		} else { // as the manual page xwarpd(8) says
			own = "if_id_in = 0x7877\nif_id_out = 0x7877\nmark_in = 0x7877\nmark_in_sa = yes\n"
		}
		h.script(t, m, fmt.Sprintf(`cat >/tmp/swanctl/swanctl.conf <<C
connections {
  xwarp {
    version = 2
    local_addrs = %[1]v
    remote_addrs = %[2]v
    proposals = aes128gcm16-prfsha256-x25519
    mobike = no
    local {
      auth = psk
    }
    remote {
      auth = psk
    }
    children {
      xwarp {
        mode = %[3]v
        local_ts = dynamic[6]
        remote_ts = dynamic[6]
        esp_proposals = aes128gcm16-x25519-esn
        replay_window = 1024
        start_action = trap
        %[4]s
      }
    }
  }
}
secrets {
  ike-xwarp {
    secret = "a long random text, the same on both hosts"
  }
}
C
%[5]s`, addrOf(m, v6), addrOf(peer, v6), mode, own, "! "+swanctl("--terminate --ike xwarp --force")+
			swanctl("--load-all")))
	}
	h.script(t, h.ours, fmt.Sprintf(`cat >/tmp/xwarp.toml <<C
[daemon]
socket = "/tmp/control"
drop_rights = false
[[interface]]
name = "eth0"
[[interface.ipsec]]
remote = ["%v"]
if_id = 0x7877
mode = "%v"
C
`, netip.PrefixFrom(addrOf(h.siw, v6), addrOf(h.siw, v6).BitLen()), mode))
	h.restart(t)
}

// restart kills xwarpd if it runs, starts it, and waits until it serves.
func (h *ikeHosts) restart(t *testing.T) {
	t.Helper()
	h.script(t, h.ours, `[ ! -e /tmp/pid ] || { kill -9 $(cat /tmp/pid); rm -f /tmp/control; }
setsid /share/xwarpd --config /tmp/xwarp.toml </dev/null >>/tmp/xwarpd.log 2>&1 &
echo $! >/tmp/pid
for i in $(seq 120); do [ ! -S /tmp/control ] || break; sleep 0.5; done
/share/xwarp status --socket /tmp/control`)
}

func addrOf(m *vm.VM, v6 bool) netip.Addr {
	if v6 {
		return m.Addr6
	}
	return m.Addr4
}

// ikeState has the parts of the JSON output of xwarp status and xwarp resource that the tests need.
type ikeState struct {
	Devices []struct {
		IPsec struct{ Replayed, Forged, Rekeys uint64 }
	}
	QP []struct {
		In uint64 `json:"payload_in"`
	}
}

// state returns the current state of xwarpd.
func (h *ikeHosts) state(t *testing.T) (s ikeState) {
	t.Helper()
	for _, command := range []string{"status", "resource show qp"} {
		out, code, err := h.ours.Run("/share/xwarp "+command+" --json --socket /tmp/control",
			time.Minute)
		if err != nil || code != 0 {
			t.Fatal(err, out)
		}
		if err := json.Unmarshal([]byte(out), &s); err != nil || len(s.Devices) != 1 {
			t.Fatal(err, out)
		}
	}
	return s
}

// payloadIn returns the bytes that the only queue pair of xwarpd has received.
func (s *ikeState) payloadIn() uint64 {
	if len(s.QP) != 1 {
		return 0
	}
	return s.QP[0].In
}

// pings runs rping twice: with xwarp as the client and with xwarp as the server.
func (h *ikeHosts) pings(t *testing.T, v6 bool) {
	t.Helper()
	const options = "timeout 100 rping -V -S 16384 -C 20 -p 7174 "
	const pinger = "timeout 100 /share/pinger /tmp/control "
	all := ""
	if v6 {
		all = " -a ::0"
	}
	for name, c := range map[string]struct{ server, client *vm.VM }{
		"our client": {h.siw, h.ours}, "our server": {h.ours, h.siw},
	} {
		server, client := options+"-s"+all, pinger+fmt.Sprintf("client %v 16384 20",
			netip.AddrPortFrom(addrOf(c.server, v6), 7174))
		if c.server == h.ours {
			at := addrOf(h.ours, v6)
			server = fmt.Sprintf("%sserver %v", pinger, netip.AddrPortFrom(at, 7174))
			client = fmt.Sprintf("%s-c -a %v", options, at)
		}
		s, err := c.server.Spawn(server)
		if err != nil {
			t.Fatal(err)
		}
		if c.server == h.siw {
			err = c.server.Listening(7174, time.Minute)
		} else {
			time.Sleep(3 * time.Second) // xwarpd's listener cannot be seen among the kernel's sockets
		}
		if err != nil {
			t.Fatal(name, err, s.Output())
		}
		out, code, err := c.client.Run(client, 2*time.Minute)
		if err != nil || code != 0 {
			t.Errorf("%s: status %d, %v\n%s\nserver:\n%s", name, code, err, out, s.Output())
		}
		if code, err := s.Wait(time.Minute); err != nil || code != 0 {
			t.Errorf("%s: server's status %d, %v\n%s", name, code, err, s.Output())
		}
	}
}

// TestStrongSwan runs rping between xwarpd and soft-iWARP. strongSwan negotiates the SAs when the first packet needs
// them.
func TestStrongSwan(t *testing.T) {
	if !*runLab {
		t.Skip("make lab, LAB=1 or -lab runs this")
	}
	vm.NeedNewest(t)
	t.Run("MTU 9000", func(t *testing.T) {
		h := bootIKE(t, 9000)
		h.test(t, esp.Transport, false, 9000)
		h.test(t, esp.Tunnel, true, 9000)
	})
	h := bootIKE(t, vm.DefaultMTU)
	for _, v6 := range []bool{false, true} {
		h.test(t, esp.Transport, v6, vm.DefaultMTU)
		h.test(t, esp.Tunnel, v6, vm.DefaultMTU)
	}
	h.protect(t, esp.Transport, false)
	t.Run("rekey", h.testRekey)
	t.Run("kill", h.testKill)
	t.Run("clock", h.testClock)
	t.Run("ports", h.testPorts)
	t.Run("secret", h.testSecret)
}

// test runs rping in one mode of ESP. It checks that the longest packet on the link is nearly as long as the MTU
// allows.
func (h *ikeHosts) test(t *testing.T, mode esp.Mode, v6 bool, mtu int) {
	t.Run(fmt.Sprintf("%v/IPv6 %v", mode, v6), func(t *testing.T) {
		h.protect(t, mode, v6)
		link := h.capture(t)
		h.pings(t, v6)
		frames, most := link(), 0
		for _, f := range frames {
			most = max(most, len(f))
		}
		const ethernet, slack = 14, 16 // header length; bytes that may stay unused, by padding and whole FPDUs
		if len(frames) < 100 || most > mtu+ethernet || most < mtu+ethernet-slack {
			t.Errorf("%d packets of ESP are on the link, the longest has %d bytes", len(frames),
				most)
		}
		n := h.state(t).Devices[0].IPsec
		if n.Forged != 0 || n.Replayed != 0 {
			t.Errorf("counters: %+v", n)
		}
	})
}

// ping starts a client over xwarp that pings a soft-iWARP server until it is killed.
func (h *ikeHosts) ping(t *testing.T) (client, server *vm.Process) {
	t.Helper()
	server, err := h.siw.Spawn("timeout --foreground 300 rping -s -V -P -S 4096 -p 7174")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.siw.Listening(7174, time.Minute); err != nil {
		t.Fatal(err, server.Output())
	}
	client, err = h.ours.Spawn(fmt.Sprintf("timeout --foreground 240 /share/pinger /tmp/control "+
		"client %v:7174 4096 0", h.siw.Addr4))
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

// testRekey replaces the SAs 20 times during one connection, and then once lets the peer delete them.
func (h *ikeHosts) testRekey(t *testing.T) {
	link := h.capture(t)
	client, server := h.ping(t)
	defer server.Kill()
	defer client.Kill()
	h.await(t, client, func(s *ikeState) bool { return s.payloadIn() > 1<<16 })
	for range 20 {
		h.script(t, h.ours, swanctl("--rekey --child xwarp")+"sleep 1")
	}
	h.script(t, h.siw, swanctl("--terminate --child xwarp"))
	was := h.state(t)
	before := was.payloadIn()
	h.await(t, client, func(s *ikeState) bool {
		return s.payloadIn() > before+1<<16
	})
	s := h.state(t)
	n := s.Devices[0].IPsec
	if n.Rekeys < 20 || n.Forged != 0 || n.Replayed != 0 {
		t.Errorf("counters: %+v", n)
	}
	link()
}

// testKill kills and restarts xwarpd during a transfer, three times. capture checks that the new process does not
// repeat sequence numbers of an SA.
func (h *ikeHosts) testKill(t *testing.T) {
	link := h.capture(t)
	for range 3 {
		client, server := h.ping(t)
		h.await(t, client, func(s *ikeState) bool { return s.payloadIn() > 1<<16 })
		h.restart(t)
		client.Kill()
		server.Kill()
	}
	h.pings(t, false)
	link()
}

// testClock sets the clock of each machine forward and back during one connection. The SAs are replaced each time, as
// charon does by itself when the kernel's SAs expire by that clock.
func (h *ikeHosts) testClock(t *testing.T) {
	link := h.capture(t)
	client, server := h.ping(t)
	defer server.Kill()
	defer client.Kill()
	h.await(t, client, func(s *ikeState) bool { return s.payloadIn() > 1<<16 })
	for _, m := range []*vm.VM{h.ours, h.siw} {
		for _, hours := range []int{2, -4, 2} {
			h.script(t, m, fmt.Sprintf("date -s @$(($(date +%%s) + %d))", hours*3600))
			before := h.state(t)
			h.script(t, h.ours, swanctl("--rekey --child xwarp"))
			h.await(t, client, func(s *ikeState) bool {
				return s.payloadIn() > before.payloadIn()+1<<16 &&
					s.Devices[0].IPsec.Rekeys > before.Devices[0].IPsec.Rekeys
			})
		}
	}
	link()
}

// testPorts lets charon add policies for the server's port during a connection, which then uses the SAs of these
// policies.
func (h *ikeHosts) testPorts(t *testing.T) {
	link := h.capture(t)
	client, server := h.ping(t)
	defer server.Kill()
	defer client.Kill()
	h.await(t, client, func(s *ikeState) bool { return s.payloadIn() > 1<<16 })
	h.countSAs(t, link, 2)

	link = h.capture(t)
	for _, c := range []struct {
		m    *vm.VM
		side string
	}{{h.siw, "local_ts"}, {h.ours, "remote_ts"}} {
		h.script(t, c.m, fmt.Sprintf(`cd /tmp/swanctl
sed -n '/^      xwarp {/,/^      }/p' swanctl.conf |
	sed 's/xwarp {/port {/; s/%s = dynamic.6./%[1]s = dynamic[6\/7174]/' >child
sed -i '/^    children {/r child' swanctl.conf
`, c.side)+swanctl("--load-conns"))
	}
	before := h.state(t)
	h.await(t, client, func(s *ikeState) bool {
		return s.payloadIn() > before.payloadIn()+1<<17
	})
	h.countSAs(t, link, 4)
}

// countSAs ends the capture by calling link, and checks that it has packets of exactly n SAs.
func (h *ikeHosts) countSAs(t *testing.T, link func() [][]byte, n int) {
	t.Helper()
	spis := map[uint32]bool{}
	for _, b := range link() {
		p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
		spis[p.Layer(layers.LayerTypeIPSecESP).(*layers.IPSecESP).SPI] = true
	}
	if len(spis) != n {
		t.Errorf("the link has packets of %d SAs, and not of %d", len(spis), n)
	}
}

// testSecret checks that a client cannot connect while the hosts have different secrets, that it and the operator's
// tools report why, and that nothing is sent in the clear. With equal secrets the client connects.
func (h *ikeHosts) testSecret(t *testing.T) {
	link := h.capture(t)
	change := func(from, to string) {
		h.script(t, h.ours, fmt.Sprintf(
			"sed -i 's/secret = \"%s/secret = \"%s/' /tmp/swanctl/swanctl.conf\n! ",
			from, to)+
			swanctl("--terminate --ike xwarp --force")+swanctl("--load-all"))
	}
	change("a", "not a")
	connect := fmt.Sprintf("/share/pinger /tmp/control client %v:7174 64 1", h.siw.Addr4)
	out, code, err := h.ours.Run(connect, time.Minute)
	if err != nil || code == 0 || !strings.Contains(out, "wait for an SA") {
		t.Errorf("status %d, %v: %s", code, err, out)
	}
	for command, text := range map[string]string{
		"cat /tmp/charon.log": "AUTHENTICATION_FAILED",
		connect + " >/tmp/connect &\nsleep 5\n" +
			"/share/xwarp status --socket /tmp/control": fmt.Sprintf("packets to %v wait "+
			"for an SA; see swanctl --list-sas and the log", h.siw.Addr4),
		"/share/xwarp doctor --interface eth0 --config /tmp/xwarp.toml": "if none comes, " +
			"see its log",
	} {
		if out, _, err := h.ours.Run(command, time.Minute); err != nil ||
			!strings.Contains(out, text) {
			t.Errorf("%s: %v, no %q in\n%s", command, err, text, out)
		}
	}
	if list := link(); len(list) > 0 {
		t.Errorf("%d packets of ESP without SAs", len(list))
	}
	change("not a", "a")
	h.pings(t, false)
}

// await waits until right accepts the state of xwarpd. If it does not within 60 s, the test fails with the output of
// client.
func (h *ikeHosts) await(t *testing.T, client *vm.Process, right func(*ikeState) bool) {
	t.Helper()
	var s ikeState
	for range 60 {
		if s = h.state(t); right(&s) {
			return
		}
		time.Sleep(time.Second)
	}
	text, _ := json.MarshalIndent(&s, "", " ")
	t.Fatalf("it stays so: %s\n%s", text, client.Output())
}

// capture starts a capture in the machine with xwarpd. The returned function ends the capture and returns the ESP
// packets. It fails the test if a TCP segment is in the clear, or if a pair of SPI and sequence number occurs twice.
func (h *ikeHosts) capture(t *testing.T) func() [][]byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "link.pcap")
	c, err := h.ours.Capture(file, "")
	if err != nil {
		t.Fatal(err)
	}
	return func() (list [][]byte) {
		t.Helper()
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
		seen := map[[2]uint32]bool{}
		for _, p := range packetsIn(t, file) {
			if p.Layer(layers.LayerTypeTCP) != nil {
				t.Errorf("TCP in the clear: %v", p)
			}
			e, _ := p.Layer(layers.LayerTypeIPSecESP).(*layers.IPSecESP)
			if e == nil {
				continue
			}
			if id := [2]uint32{e.SPI, e.Seq}; seen[id] {
				t.Errorf("SPI %#x has number %d twice", e.SPI, e.Seq)
			} else {
				seen[id] = true
			}
			list = append(list, p.Data())
		}
		if t.Failed() {
			keep(t, file)
		}
		return list
	}
}
