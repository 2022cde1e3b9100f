package xfrm

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
	"xwarp/engine/esp"
)

const testKey = "000102030405060708090a0b0c0d0e0f10111213"

// ipsec moves the test to its own network namespace. It requires a kernel with ESP.
func ipsec(t *testing.T) {
	t.Helper()
	needs.ESP(t)
	namespace(t)
}

// addSA installs an SA from one address to another. more has further arguments of ip xfrm, which may replace the mode
// and the algorithm.
func addSA(t *testing.T, from, to string, spi int, more string) {
	t.Helper()
	algorithm := "aead 'rfc4106(gcm(aes))' 0x" + testKey + " 128"
	if strings.Contains(more, "enc ") {
		algorithm = ""
	}
	mode := "mode transport"
	if strings.Contains(more, "mode ") {
		mode = ""
	}
	ip(t, fmt.Sprintf("xfrm state add src %s dst %s proto esp spi %#x reqid 9 %s %s %s", from, to,
		spi, mode, algorithm, more))
}

const (
	fresh      = "if_id 0x7877 flag esn replay-window 1024"
	receivable = fresh + " mark 0x7877 mask 0xffffffff"
)

// sentBy returns the kernel's send counter of an SA, from the output of ip.
func sentBy(t *testing.T, spi int) (oseq uint64) {
	t.Helper()
	text := ip(t, "xfrm state get src "+us+" dst "+peer+" proto esp spi "+fmt.Sprintf("%#x", spi))
	m := regexp.MustCompile(`oseq-hi 0x([0-9a-f]+), oseq 0x([0-9a-f]+)`).FindStringSubmatch(text)
	if m == nil {
		m = regexp.MustCompile(`anti-replay context: seq 0x[0-9a-f]+, ()oseq 0x([0-9a-f]+)`).
			FindStringSubmatch(text)
	}
	if m == nil {
		t.Fatalf("no send counter in %s", text)
	}
	high, _ := strconv.ParseUint(m[1], 16, 32)
	low, _ := strconv.ParseUint(m[2], 16, 32)
	return high<<32 | low
}

func TestTakesSAs(t *testing.T) {
	ipsec(t)
	addPolicies(t, "if_id 0x7877")
	f, s := follow(t)
	addSA(t, peer, us, 0x2001, receivable)
	addSA(t, us, peer, 0x1001, fresh)
	x := s.wait(t, "pair of SAs", func(x *Snapshot) bool {
		return len(x.Inbound) == 1 && len(x.Outbound) == 1
	})
	key, _ := hex.DecodeString(testKey)
	for _, sa := range []*SA{x.Inbound[0], x.Outbound[0]} {
		if !bytes.Equal(sa.Keymat, key) || !sa.ESN || sa.Mode != esp.Transport ||
			sa.Window != 1024 || sa.ReqID != 9 || sa.IfID != testIfID {
			t.Errorf("%+v", sa)
		}
	}
	in, out := x.Inbound[0], x.Outbound[0]
	if in.SPI != 0x2001 || in.Src.String() != peer || in.Dst.String() != us ||
		out.SPI != 0x1001 || out.Src.String() != us || out.Dst.String() != peer {
		t.Errorf("inbound %v, outbound %v", in, out)
	}
	if n := sentBy(t, 0x1001); n != 1<<64-1 {
		t.Errorf("the kernel's send counter is %#x", n)
	}
	if n, err := f.Counters(); n != (Counters{Taken: 1}) || err != nil {
		t.Errorf("%+v, %v", n, err)
	}
	// Rekey: the new pair is added, then the old one is removed.
	addSA(t, peer, us, 0x2002, receivable)
	addSA(t, us, peer, 0x1002, fresh)
	x = s.wait(t, "second pair", func(x *Snapshot) bool {
		return len(x.Inbound) == 2 && len(x.Outbound) == 2
	})
	if x.Outbound[1].SPI != 0x1002 || x.Outbound[0] != out || x.Inbound[0] != in {
		t.Errorf("outbound %v, inbound %v", x.Outbound, x.Inbound)
	}
	ip(t, "xfrm state delete src "+us+" dst "+peer+" proto esp spi 0x1001")
	s.wait(t, "deletion", func(x *Snapshot) bool { return len(x.Outbound) == 1 })
	ip(t, "xfrm state flush")
	s.wait(t, "flush", func(x *Snapshot) bool { return len(x.Outbound)+len(x.Inbound) == 0 })
}

// TestTakesSAsOfEachKind uses SAs older than the Follower, SAs added before their policies, IPv6, tunnels, keys of 256
// bits, and SAs without ESN, whose counters the kernel keeps in another form.
func TestTakesSAsOfEachKind(t *testing.T) {
	ipsec(t)
	addSA(t, us, peer, 0x1001, "if_id 0x7877 replay-window 32")
	addSA(t, us, peer, 0x1002, "if_id 0x7877 replay-window 128")
	_, s := follow(t)
	addSA(t, us, peer, 0x1003, fresh+" mode tunnel")
	if x := s.last(); len(x.Outbound) != 0 {
		t.Errorf("without a policy: %v", x.Outbound)
	}
	addPolicies(t, "if_id 0x7877")
	s.wait(t, "two SAs", func(x *Snapshot) bool { return len(x.Outbound) == 2 })
	for _, spi := range []int{0x1001, 0x1002} {
		if n := sentBy(t, spi); n != 1<<32-1 {
			t.Errorf("SPI %#x: the kernel's send counter is %#x", spi, n)
		}
	}
	ip(t, "xfrm policy add src fd99::/64 dst fd98::/64 dir out if_id 0x7877 tmpl src fd99::1 "+
		"dst fd98::1 proto esp reqid 11 mode tunnel")
	ip(t, "xfrm state add src fd99::1 dst fd98::1 proto esp spi 0x1004 reqid 11 mode tunnel aead "+
		"'rfc4106(gcm(aes))' 0x"+testKey+"14151617"+testKey[:24]+" 128 flag esn replay-window 64 "+
		"if_id 0x7877 limit byte-soft 1000 limit byte-hard 2000 limit packet-hard 7")
	x := s.wait(t, "tunnel", func(x *Snapshot) bool { return len(x.Outbound) == 3 })
	sa := x.Outbound[2]
	if sa.Mode != esp.Tunnel || sa.Src.String() != "fd99::1" || len(sa.Keymat) != 36 ||
		sa.Limits.SoftBytes != 1000 || sa.Limits.HardBytes != 2000 || sa.Limits.HardPackets != 7 ||
		sa.Window != 64 {
		t.Errorf("%+v, key of %d bytes", sa, len(sa.Keymat))
	}
	if _, err := esp.NewOut(&sa.SA, 0); err != nil {
		t.Error(err)
	}
}

// TestKernelCannotSendWithATakenSA routes the kernel's own traffic over an SA. The kernel must not send with an SA that
// is taken, and an SA with which the kernel has sent must not be taken. The test uses the worst configuration: an XFRM
// interface with the engine's if_id.
func TestKernelCannotSendWithATakenSA(t *testing.T) {
	ipsec(t)
	const inner = "10.98.0.2" // an XFRM interface works in tunnel mode only
	ip(t, "xfrm policy add src "+us+" dst "+inner+" dir out if_id 0x7877 tmpl src "+us+" dst "+peer+
		" proto esp reqid 9 mode tunnel")
	ip(t, "link add ipsec0 type xfrm dev v0 if_id 0x7877")
	ip(t, "link set ipsec0 up")
	ip(t, "route add "+inner+"/32 dev ipsec0 src "+us)
	send := func() {
		d := net.Dialer{Timeout: 300 * time.Millisecond}
		if c, err := d.Dial("tcp", inner+":4791"); err == nil {
			c.Close()
			t.Error("a connection without a listener")
		}
	}
	d := newDaemon(t)
	f, s := follow(t)
	addSA(t, us, peer, 0x1001, fresh+" mode tunnel")
	x := s.wait(t, "SA", func(x *Snapshot) bool { return len(x.Outbound) == 1 })
	before := outStateSeqErrors(t)
	send()
	if n := outStateSeqErrors(t) - before; n == 0 {
		t.Error("the kernel did not try to send: this test proves nothing")
	}
	now, err := f.client.reread(x.Outbound[0])
	if err != nil || now.Packets != 0 || now.Sent != 1<<64-1 {
		t.Errorf("%v: %d packets, send counter %#x, %v", now, now.Packets, now.Sent, err)
	}
	// The reverse: the kernel sends first.
	f.Close()
	ip(t, "xfrm state flush")
	addSA(t, us, peer, 0x1002, fresh+" mode tunnel")
	send()
	if n := sentBy(t, 0x1002); n == 0 {
		t.Fatal("the kernel did not send")
	}
	f, s = follow(t)
	hears(t, d.expired, "0x1002 hard 0")
	n, why := f.Counters()
	if n != (Counters{Refused: 1}) || !errors.Is(why, errUsed) ||
		!strings.Contains(why.Error(), "XFRM interface") || len(s.last().Outbound) != 0 {
		t.Errorf("%+v, %v, outbound %v", n, why, s.last().Outbound)
	}
}

func outStateSeqErrors(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/net/xfrm_stat")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`XfrmOutStateSeqError\s+(\d+)`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("%s", b)
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

func TestNeverTakesAnSATwice(t *testing.T) {
	ipsec(t)
	addPolicies(t, "if_id 0x7877")
	d := newDaemon(t)
	f, s := follow(t)
	addSA(t, us, peer, 0x1001, fresh)
	addSA(t, us, peer, 0x1002, "if_id 0x7877 replay-window 32")
	addSA(t, peer, us, 0x2001, receivable)
	s.wait(t, "SAs", func(x *Snapshot) bool { return len(x.Outbound) == 2 && len(x.Inbound) == 1 })
	f.Close() // as a crash would
	f, s = follow(t)
	heard := map[string]bool{<-d.expired: true, <-d.expired: true, <-d.expired: true}
	if !heard["0x1001 hard 0"] || !heard["0x1002 hard 0"] || !heard["0x2001 hard 0"] {
		t.Errorf("the daemon received %v", heard)
	}
	if n, err := f.Counters(); n != (Counters{Refused: 3}) || !errors.Is(err, errUsed) ||
		len(s.last().Inbound) != 0 {
		t.Errorf("%+v, %v, inbound %v", n, err, s.last().Inbound)
	}
	addSA(t, us, peer, 0x1003, fresh) // the daemon's answer
	x := s.wait(t, "successor", func(x *Snapshot) bool { return len(x.Outbound) == 1 })
	if x.Outbound[0].SPI != 0x1003 {
		t.Error(x.Outbound)
	}
}

func TestRefusesUnusableSAs(t *testing.T) {
	ipsec(t)
	addPolicies(t, "if_id 0x7877")
	f, s := follow(t)
	spi, refusals := 0x3000, uint64(0)
	for _, c := range []struct{ more, want string }{
		{fresh, "mark_in = 0x7877"},
		{fresh + " mark 0x99", "its mark is 0x99"},
		{receivable + " enc cbc(aes) 0x00112233445566778899aabbccddeeff auth hmac(sha256) " +
			"0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "esp_proposals"},
		{receivable + " encap espinudp 4500 4500 0.0.0.0", "encap = no"},
		{receivable + " extra-flag oseq-may-wrap", "may wrap"},
	} {
		spi++
		addSA(t, peer, us, spi, c.more)
		refusals++
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			if n, _ := f.Counters(); n.Refused == refusals {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: not refused: %v", c.more, s.last().Inbound)
			}
		}
		_, err := f.Counters()
		if !strings.Contains(err.Error(), c.want) || len(s.last().Inbound) != 0 {
			t.Errorf("%s: %v, inbound %v", c.more, err, s.last().Inbound)
		}
		if strings.Contains(err.Error(), testKey) {
			t.Errorf("the key is in %v", err)
		}
	}
	// An SA for the host's own traffic is ignored.
	addSA(t, peer, us, 0x4000, "flag esn replay-window 32")
	addSA(t, peer, us, 0x4001, receivable)
	s.wait(t, "good one", func(x *Snapshot) bool { return len(x.Inbound) == 1 })
	if n, _ := f.Counters(); n.Refused != refusals {
		t.Errorf("%+v", n)
	}
}

func TestExpireAndAccount(t *testing.T) {
	ipsec(t)
	addPolicies(t, "if_id 0x7877")
	d := newDaemon(t)
	f, s := follow(t)
	addSA(t, peer, us, 0x2001, receivable)
	addSA(t, us, peer, 0x1001, fresh)
	x := s.wait(t, "pair of SAs", func(x *Snapshot) bool {
		return len(x.Inbound) == 1 && len(x.Outbound) == 1
	})
	for _, sa := range []*SA{x.Inbound[0], x.Outbound[0]} {
		if err := f.Account(sa, 123, 4567890); err != nil {
			t.Error(err)
		}
		now, err := f.client.reread(sa)
		if err != nil || now.info.Curlft.Packets != 123 || now.info.Curlft.Bytes != 4567890 {
			t.Errorf("%+v, %v", now.info.Curlft, err)
		}
		if now.info.Curlft.AddTime != sa.info.Curlft.AddTime {
			t.Error("the SA is of another age now")
		}
	}
	if err := f.Expire(x.Outbound[0], false); err != nil {
		t.Error(err)
	}
	hears(t, d.expired, "0x1001 hard 0")
	for _, sa := range []*SA{x.Inbound[0], x.Outbound[0]} {
		if err := f.Expire(sa, true); err != nil {
			t.Error(err)
		}
		hears(t, d.expired, fmt.Sprintf("%#x hard 1", sa.SPI))
	}
	s.wait(t, "end of both", func(x *Snapshot) bool { return len(x.Outbound)+len(x.Inbound) == 0 })
	if err := f.Account(x.Inbound[0], 1, 1); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a deleted SA: %v", err)
	}
}
