package vm

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	serverPort = 7174
	clientPort = 7274
	quiet      = time.Second // a peer that sends nothing for this time is assumed to have nothing more to send
)

// exchange is a connection to rping -s over siw. The test sends the bytes of each step and records siw's answer to it.
type exchange struct {
	name  string
	steps [][]byte
}

func responderCases() []exchange {
	send := fpdu(untagged(3, 0, 1, rpingInfo(64)...), false)
	req := func(flags, rev byte, private ...byte) []byte {
		return startup(keyReq, flags, rev, private...)
	}
	cat := func(b ...[]byte) []byte { return slices.Concat(b...) }
	rev2 := func(flags byte, ird, ord uint16) []byte { return req(flags|flagS, 2, v2(ird, ord)...) }
	cases := []exchange{
		{"rev 1", [][]byte{req(0, 1), send}},
		{"rev 1, C", [][]byte{req(flagC, 1), send}},
		{"rev 1, M", [][]byte{req(flagM, 1)}},
		{"rev 1, M and C", [][]byte{req(flagM|flagC, 1)}},
		{"rev 1, C, 4 bytes private", [][]byte{req(flagC, 1, v2(1, 1)...), send}},
		{"rev 1, C, 255 bytes private", [][]byte{req(flagC, 1, make([]byte, 255)...), send}},
		{"rev 1, C, 256 bytes private", [][]byte{req(flagC, 1, make([]byte, 256)...), send}},
		{"rev 1, C, 512 bytes private", [][]byte{req(flagC, 1, make([]byte, 512)...), send}},
		{"rev 1, C, 513 bytes private", [][]byte{req(flagC, 1, make([]byte, 513)...)}},
		{"rev 1, C and S, 4 bytes private", [][]byte{req(flagC|flagS, 1, v2(1, 1)...), send}},
		{"rev 1, C and R", [][]byte{req(flagC|flagR, 1), send}},
		{"rev 1, C, reserved bits 0x07", [][]byte{req(flagC|7, 1), send}},
		{"rev 1, C, reserved bit 0x08", [][]byte{req(flagC|8, 1), send}},
		{"rev 0, C", [][]byte{req(flagC, 0), send}},
		{"rev 0, M and C", [][]byte{req(flagM|flagC, 0)}},
		{"rev 3, C", [][]byte{req(flagC, 3)}},
		{"rev 2, C, no S", [][]byte{req(flagC, 2), send}},
		{"rev 2, C, S, no private data", [][]byte{req(flagC|flagS, 2)}},
		{"rev 2, M, C, S, IRD 1 ORD 1", [][]byte{rev2(flagM|flagC, 1, 1)}},
		{"rev 2, S, IRD 1 ORD 1", [][]byte{rev2(0, 1, 1), send}},
		{"rev 2, C, S, IRD 1 ORD 1", [][]byte{rev2(flagC, 1, 1), send}},
		{"rev 2, C, S, IRD 0 ORD 0", [][]byte{rev2(flagC, 0, 0), send}},
		{"rev 2, C, S, IRD 0 ORD 1", [][]byte{rev2(flagC, 0, 1), send}},
		{"rev 2, C, S, IRD 1 ORD 0", [][]byte{rev2(flagC, 1, 0), send}},
		{"rev 2, C, S, IRD 32 ORD 32", [][]byte{rev2(flagC, 32, 32), send}},
		{"rev 2, C, S, IRD 300 ORD 300", [][]byte{rev2(flagC, 300, 300), send}},
		{"rev 2, C, S, IRD 0x3fff ORD 0x3fff", [][]byte{rev2(flagC, 0x3fff, 0x3fff), send}},
		{"rev 2, C, S, IRD 1 ORD 1, 8 bytes private",
			[][]byte{req(flagC|flagS, 2, append(v2(1, 1), 1, 2, 3, 4)...), send}},
		{"rev 2, C, S, A and B (Send)", [][]byte{rev2(flagC, 0x8000|0x4000|1, 1),
			fpdu(untagged(3, 0, 1), false)}},
		{"rev 2, C, S, A and C (Write)", [][]byte{rev2(flagC, 0x8000|1, 0x8000|1),
			fpdu(tagged(0, 1), false), send}},
		{"rev 2, C, S, A and D (Read)", [][]byte{rev2(flagC, 0x8000|1, 0x4000|1),
			fpdu(untagged(1, 1, 1, make([]byte, 28)...), false), send}},
		{"rev 2, C, S, A, B, C and D", [][]byte{rev2(flagC, 0xc000|1, 0xc000|1),
			fpdu(tagged(0, 1), false), send}},
		{"rev 2, C, S, A and C, no RTR but a Send", [][]byte{rev2(flagC, 0x8000|1, 0x8000|1),
			send}},
		{"rev 2, C, S, A only", [][]byte{rev2(flagC, 0x8000|1, 1), fpdu(tagged(0, 1), false),
			send}},
		{"a Reply where the Request belongs", [][]byte{startup(keyRep, flagC, 1)}},
		{"Request and FPDU in one segment", [][]byte{cat(req(flagC, 1), send)}},
		{"Request with private data and FPDU in one segment",
			[][]byte{cat(rev2(flagC, 1, 1), send)}},
		{"bad CRC with CRC on", [][]byte{rev2(flagC, 1, 1),
			fpdu(untagged(3, 0, 1, rpingInfo(64)...), true)}},
		{"bad CRC with CRC off", [][]byte{rev2(0, 1, 1), fpdu(untagged(3, 0, 1, rpingInfo(64)...),
			true)}},
		{"Send with MSN 2", [][]byte{rev2(flagC, 1, 1), fpdu(untagged(3, 0, 2, rpingInfo(64)...),
			false)}},
		{"Send on queue 3", [][]byte{rev2(flagC, 1, 1), fpdu(untagged(3, 3, 1, rpingInfo(64)...),
			false)}},
		{"Send longer than the receive", [][]byte{rev2(flagC, 1, 1),
			fpdu(untagged(3, 0, 1, make([]byte, 100)...), false)}},
		{"Write to an unknown STag", [][]byte{rev2(flagC, 1, 1),
			fpdu(tagged(0, 0x77777700, 1, 2, 3, 4), false)}},
		{"Read Request for an unknown STag", [][]byte{rev2(flagC, 1, 1),
			fpdu(untagged(1, 1, 1, readRequest(0x77777700, 4)...), false)}},
		{"Immediate Data (opcode 8)", [][]byte{rev2(flagC, 1, 1),
			fpdu(untagged(8, 0, 1, make([]byte, 8)...), false)}},
		{"Atomic Request (opcode 10)", [][]byte{rev2(flagC, 1, 1),
			fpdu(untagged(10, 1, 1, make([]byte, 52)...), false)}},
		{"DDP version 0", [][]byte{rev2(flagC, 1, 1),
			fpdu(append([]byte{0x40}, untagged(3, 0, 1, rpingInfo(64)...)[1:]...), false)}},
		{"Terminate", [][]byte{rev2(flagC, 1, 1), fpdu(untagged(7, 2, 1, 0x20, 2, 0, 0), false)}},
	}
	return cases
}

// readRequest returns the RDMAP header of a Read Request for size bytes of stag, into STag 1.
func readRequest(stag, size uint32) []byte {
	b := make([]byte, 28)
	b[3] = 1
	for i := range 4 {
		b[12+i] = byte(size >> (24 - 8*i))
		b[16+i] = byte(stag >> (24 - 8*i))
	}
	return b
}

// server keeps an rping -s -P running in a machine. That program sometimes exits when a client disconnects early,
// because its threads share an event channel that one of them closes.
type server struct {
	v    *VM
	port int
}

func (s *server) start(t *testing.T) {
	t.Helper()
	s.port++
	if _, err := s.v.Spawn(fmt.Sprintf("rping -s -P -p %d", s.port)); err != nil {
		t.Fatal(err)
	}
	if err := s.v.Listening(uint16(s.port), time.Minute); err != nil {
		t.Fatal(err)
	}
}

// dial connects to the server. If rping has exited, it starts a new one first.
func (s *server) dial(t *testing.T) net.Conn {
	t.Helper()
	for try := 0; ; try++ {
		c, err := s.v.net.Peer.Dial(t.Context(), netip.AddrPort{},
			netip.AddrPortFrom(s.v.Addr4, uint16(s.port)))
		if err == nil {
			return c
		}
		if try == 3 || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
		t.Logf("rping -s -P ended: %v", err)
		s.start(t)
	}
}

// TestResponder compares siw's answers to many kinds of Requests with testdata/responder.txt.
func TestResponder(t *testing.T) {
	v, _ := pair(t)
	s := &server{v, serverPort}
	s.start(t)
	var g golden
	for _, c := range responderCases() {
		g.check(t, "responder.txt", c.name, func(quiet time.Duration) string {
			return c.run(t, s, quiet)
		})
	}
	g.done(t, "responder.txt")
}

func (c *exchange) run(t *testing.T, s *server, quiet time.Duration) string {
	var report strings.Builder
	conn := s.dial(t)
	defer conn.Close()
	for i, step := range c.steps {
		if _, err := conn.Write(step); err != nil {
			report.WriteString("  > cannot be sent: the connection is gone\n")
			break
		}
		words := describeFPDUs
		if i == 0 {
			words = describe
		}
		got, how := listen(conn, quiet)
		fmt.Fprintf(&report, "  > %s\n  < %s; %s\n", words(step), describeOr(got, words), how)
	}
	return report.String()
}

// TestResponderTimeout checks that siw accepts a Request that arrives one byte at a time, and that it closes a
// connection without a Request within a minute. While the driver cleans up after a program that ended, it does neither.
func TestResponderTimeout(t *testing.T) {
	v, _ := pair(t)
	s := &server{v, serverPort + 50}
	for try := 0; ; try++ {
		s.start(t)
		err := errors.Join(s.slow(t), s.silent(t))
		if err == nil {
			return
		}
		if try == 2 {
			t.Fatal(err)
		}
		t.Logf("again: %v", err)
	}
}

func (s *server) slow(t *testing.T) error {
	c := s.dial(t)
	defer c.Close()
	for _, b := range startup(keyReq, flagC|flagS, 2, v2(1, 1)...) {
		if _, err := c.Write([]byte{b}); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got, how := listen(c, 4*quiet); len(got) != 24 || how != "open" {
		return fmt.Errorf("a Request one byte at a time: answer %s; %s", describe(got), how)
	}
	return nil
}

func (s *server) silent(t *testing.T) error {
	c := s.dial(t)
	defer c.Close()
	start := time.Now()
	got, how := listen(c, time.Minute)
	t.Logf("without a Request: %d bytes, %s after %v", len(got), how,
		time.Since(start).Round(100*time.Millisecond))
	if len(got) != 0 || how == "open" {
		return errors.New("siw keeps a connection without a Request open for more than a minute")
	}
	return nil
}

// answer is a Reply of the test's listener to the Request of rping -c over siw.
type answer struct {
	name   string
	params string // a module parameter of siw, NAME=VALUE; empty: the defaults
	reply  []byte // nil: the listener closes the connection without a Reply
}

func initiatorCases() []answer {
	rep := func(flags, rev byte, private ...byte) []byte {
		return startup(keyRep, flags, rev, private...)
	}
	return []answer{
		{"accepted", "", rep(flagS, 2, v2(1, 1)...)},
		{"accepted with C", "", rep(flagS|flagC, 2, v2(1, 1)...)},
		{"accepted with IRD 0 ORD 0", "", rep(flagS, 2, v2(0, 0)...)},
		{"accepted with ORD 200", "", rep(flagS, 2, v2(1, 200)...)},
		{"accepted with 0x3fff", "", rep(flagS, 2, v2(0x3fff, 0x3fff)...)},
		{"accepted with private data", "", rep(flagS, 2, append(v2(1, 1), 1, 2, 3, 4)...)},
		{"accepted, and an FPDU behind the Reply", "",
			slices.Concat(rep(flagS|flagC, 2, v2(1, 1)...),
				fpdu(untagged(3, 0, 1, rpingInfo(64)...), false))},
		{"rejected", "", rep(flagS|flagR, 2, v2(1, 1)...)},
		{"M in the Reply", "", rep(flagS|flagM|flagC, 2, v2(1, 1)...)},
		{"rev 1 in the Reply", "", rep(0, 1)},
		{"rev 2 without S in the Reply", "", rep(0, 2)},
		{"a Request for a Reply", "", startup(keyReq, flagS, 2, v2(1, 1)...)},
		{"closed at once", "", nil},
		{"CRC required, accepted with C", "mpa_crc_required=1", rep(flagS|flagC, 2, v2(1, 1)...)},
		{"CRC required, accepted without C", "mpa_crc_required=1", rep(flagS, 2, v2(1, 1)...)},
		{"rev 1 asked, accepted", "mpa_version=1", rep(0, 1)},
		{"rev 1 asked, accepted with C", "mpa_version=1", rep(flagC, 1)},
		{"rev 1 asked, rev 0 answered", "mpa_version=1", rep(flagC, 0)},
		{"peer to peer, Write chosen", "peer_to_peer=1",
			rep(flagS|flagC, 2, v2(0x8000|1, 0x8000|1)...)},
		{"peer to peer, Read chosen", "peer_to_peer=1",
			rep(flagS|flagC, 2, v2(0x8000|1, 0x4000|1)...)},
		{"peer to peer, Write and Read chosen", "peer_to_peer=1",
			rep(flagS|flagC, 2, v2(0x8000|1, 0xc000|1)...)},
		{"peer to peer, Send chosen", "peer_to_peer=1", rep(flagS|flagC, 2, v2(0xc000|1, 1)...)},
		{"peer to peer, no A in the Reply", "peer_to_peer=1", rep(flagS|flagC, 2, v2(1, 1)...)},
	}
}

// TestInitiator compares what rping -c over siw sends, before and after many kinds of Replies, with
// testdata/initiator.txt.
func TestInitiator(t *testing.T) {
	_, v := pair(t)
	l, err := v.net.Peer.Listen(netip.AddrPortFrom(PeerAddr4, clientPort))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const params = "cd /sys/module/siw/parameters; echo N > mpa_crc_required; echo N > " +
		"peer_to_peer; echo 2 > mpa_version;"
	defer v.Run(params+"echo Y > mpa_crc_required", time.Minute)
	var g golden
	for _, c := range initiatorCases() {
		set := params
		if name, value, ok := strings.Cut(c.params, "="); ok {
			set += "echo " + value + " > " + name
		}
		if out, code, err := v.Run(set, time.Minute); err != nil || code != 0 {
			t.Fatalf("%s: %v %s", set, err, out)
		}
		name := strings.TrimSuffix(c.name+" ("+c.params+")", " ()")
		g.check(t, "initiator.txt", name, func(quiet time.Duration) string {
			return c.run(t, v, l.(*net.TCPListener), quiet)
		})
	}
	g.done(t, "initiator.txt")
}

func (c *answer) run(t *testing.T, v *VM, l *net.TCPListener, quiet time.Duration) string {
	var report strings.Builder
	client, err := v.Spawn(fmt.Sprintf("rping -c -C 1 -S 64 -a %v -p %d", PeerAddr4, clientPort))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Kill() // rping -c does not exit if it is refused
	l.SetDeadline(time.Now().Add(time.Minute))
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("%s: siw did not connect: %v", c.name, err)
	}
	defer conn.Close()
	request, how := listen(conn, quiet)
	fmt.Fprintf(&report, "  < %s; %s\n", describe(request), how)
	if c.reply != nil {
		if _, err := conn.Write(c.reply); err != nil {
			t.Errorf("%s: reply: %v", c.name, err)
		}
		got, how := listen(conn, quiet)
		fmt.Fprintf(&report, "  > %s\n  < %s; %s\n", describe(c.reply),
			describeOr(got, describeFPDUs), how)
	}
	conn.Close()
	client.Wait(2 * quiet)
	// Only the line with the event does not depend on which of rping's threads is faster.
	for line := range strings.Lines(client.Output()) {
		if strings.HasPrefix(line, "cma event") {
			fmt.Fprintf(&report, "  rping: %s\n", strings.TrimSpace(line))
		}
	}
	return report.String()
}

func describeOr(b []byte, f func([]byte) string) string {
	if len(b) == 0 {
		return "nothing"
	}
	return f(b)
}

// dial connects from the peer namespace to a port of the machine over kernel TCP.
func dial(t *testing.T, v *VM, port int) net.Conn {
	t.Helper()
	c, err := v.net.Peer.Dial(t.Context(), netip.AddrPort{},
		netip.AddrPortFrom(v.Addr4, uint16(port)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestProbeFrames(t *testing.T) {
	// RFC 5044, 7.1.1, and the control bytes of RFC 5040 and 5041.
	want := []byte("MPA ID Req Frame\xd0\x02\x00\x04\x80\x01\x40\x01")
	if got := startup(keyReq, flagM|flagC|flagS, 2, v2(0x8001, 0x4001)...); !bytes.Equal(got,
		want) {
		t.Errorf("startup = %x, want %x", got, want)
	}
	if got := tagged(0, 1)[:6]; !bytes.Equal(got, []byte{0xc1, 0x40, 0, 0, 0, 1}) {
		t.Errorf("tagged = %x", got)
	}
}
