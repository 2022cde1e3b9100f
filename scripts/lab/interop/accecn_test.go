package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/scripts/lab/vm"
	"xwarp/tcp"
)

// marks selects the packets of a connection that get CE or are dropped on the path, in both directions.
type marks struct {
	syn, synACK bool // SYNs; SYN-ACKs
	again       bool // the first SYN-ACK is not marked, and the answers to it are dropped, so that it is sent again
	data, acks  int  // every data-th ECT packet that carries data, and every acks-th pure acknowledgement; 0: none
	drop        int  // every drop-th packet with new data is dropped; 0: none
}

// ecnPacket is a TCP segment that the path delivered.
type ecnPacket struct {
	toMachine          bool
	syn, ack, fin, rst bool
	retransmission     bool // its data begins below the end of earlier data
	len                int
	ecn                tcp.ECN
}

// ecnPath marks and records the packets of one connection. Its method frame is a vm.Intercept.
type ecnPath struct {
	mu sync.Mutex
	ecnTrace
}

// ecnTrace is ecnPath's record of a connection. The zero value passes all frames.
type ecnTrace struct {
	port    uint16
	marks   marks
	packets []ecnPacket
	pcap    *pcapgo.Writer
	failed  error     // the error of writing the capture
	ways    [2]ecnWay // the direction to xwarp, and that to the machine
	synACKs int
	closing bool // a FIN has passed, so that packets are no longer marked
}

// ecnWay counts the packets of one direction.
type ecnWay struct {
	data, ect, acks int    // packets with new data, those of them with ECT, and pure acknowledgements
	end             uint32 // sequence number after the newest data
	begun           bool   // end is valid
}

func (p *ecnPath) begin(port uint16, m marks, file io.Writer) error {
	w := pcapgo.NewWriterNanos(file)
	if err := w.WriteFileHeader(1<<16, layers.LinkTypeEthernet); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ecnTrace = ecnTrace{port: port, marks: m, pcap: w}
	return nil
}

// end ends the record of the connection and returns the delivered packets.
func (p *ecnPath) end() ([]ecnPacket, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.ecnTrace
	p.ecnTrace = ecnTrace{}
	return t.packets, t.failed
}

func (p *ecnPath) frame(toMachine bool, b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	decoded := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
	h, ok := decoded.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok || p.port == 0 || uint16(h.SrcPort) != p.port && uint16(h.DstPort) != p.port {
		return true
	}
	s := ecnPacket{toMachine: toMachine, syn: h.SYN, ack: h.ACK, fin: h.FIN, rst: h.RST,
		len: len(h.Payload), ecn: ecnOf(b)}
	s.retransmission = p.way(&s).isRetransmission(h.Seq, s.len)
	if p.lost(&s) {
		return false
	}
	if p.marked(&s) {
		setCE(b)
		s.ecn = tcp.CE
	}
	p.closing = p.closing || h.FIN
	p.packets = append(p.packets, s)
	if err := p.pcap.WritePacket(gopacket.CaptureInfo{Timestamp: time.Now(), CaptureLength: len(b),
		Length: len(b)}, b); err != nil {
		p.failed = err
	}
	return true
}

func (t *ecnTrace) way(s *ecnPacket) *ecnWay {
	if s.toMachine {
		return &t.ways[1]
	}
	return &t.ways[0]
}

// isRetransmission reports whether n bytes of data at seq begin below the end of earlier data. If not, and n is not 0,
// it records the end of the new data.
func (w *ecnWay) isRetransmission(seq uint32, n int) bool {
	if n == 0 || w.begun && int32(seq-w.end) < 0 {
		return n > 0
	}
	w.begun, w.end = true, seq+uint32(n)
	return false
}

// nth increments *n and reports whether it is now a multiple of row. A row of 0 has no multiples.
func nth(n *int, row int) bool {
	*n++
	return row > 0 && *n%row == 0
}

// lost reports whether a segment is dropped.
func (t *ecnTrace) lost(s *ecnPacket) bool {
	if s.syn && s.ack {
		t.synACKs++
	}
	if t.marks.again && t.synACKs == 1 {
		return !s.syn
	}
	return s.len > 0 && !s.retransmission && nth(&t.way(s).data, t.marks.drop)
}

// marked reports whether a segment gets CE. Retransmitted data does not, so that each byte is counted once.
func (t *ecnTrace) marked(s *ecnPacket) bool {
	w := t.way(s)
	switch {
	case s.syn && s.ack:
		return t.marks.synACK && (t.synACKs > 1 || !t.marks.again)
	case s.syn:
		return t.marks.syn
	case t.closing || s.fin || s.retransmission:
		return false
	case s.len > 0:
		return s.ecn == tcp.ECT0 && nth(&w.ect, t.marks.data)
	}
	return nth(&w.acks, t.marks.acks) // whether they are ECT or not: xwarp sends them without ECT
}

// ecnOf returns the ECN field of an IPv4 or IPv6 frame. setCE sets it to CE.
func ecnOf(frame []byte) tcp.ECN {
	if frame[14]>>4 == 4 {
		return tcp.ECN(frame[15] & 3)
	}
	return tcp.ECN(frame[15] >> 4 & 3)
}

func setCE(frame []byte) {
	if frame[14]>>4 == 6 {
		frame[15] |= 3 << 4
		return
	}
	frame[15] |= 3
	h := frame[14 : 14+int(frame[14]&15)*4]
	h[10], h[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum+sum>>16))
}

// received are the counts that one end must have when it has received all packets of a connection.
type received struct {
	ce               uint32 // packets with CE, except SYNs and SYN-ACKs
	synACK           uint32 // 1 if a SYN-ACK had CE, otherwise 0
	ceBytes, e0Bytes uint32 // bytes in packets with CE, and with ECT(0)
	again            bool   // some bytes may have arrived twice
}

func receivedBy(machine bool, packets []ecnPacket) (r received) {
	for _, p := range packets {
		switch {
		case p.toMachine != machine:
			continue
		case p.syn && p.ack && p.ecn == tcp.CE:
			r.synACK = 1
		case p.syn:
		case p.ecn == tcp.CE:
			r.ce++
			r.ceBytes += uint32(p.len)
		case p.ecn == tcp.ECT0:
			r.e0Bytes += uint32(p.len)
		}
		r.again = r.again || p.retransmission
	}
	return r
}

const ecnBytes = 200_000 // in each direction

// ecnLab is a machine whose Linux has accurate ECN, and an xwarp device that is connected to it.
type ecnLab struct {
	vm   *vm.VM
	path ecnPath
	dev  *xdp.Device
}

func newECNLab(t *testing.T) *ecnLab {
	t.Helper()
	if !*runLab {
		t.Skip("make lab, LAB=1 or -lab runs this")
	}
	vm.NeedNewest(t)
	share := t.TempDir()
	compile(t, "build", "-o", share, "xwarp/scripts/lab/kernelpeer")
	l := &ecnLab{}
	b := boot(t, vm.Options{Newest: true, NoSiw: true, Share: share, Intercept: l.path.frame})
	l.vm, l.dev = b.vm, b.xdpDevice(t)
	l.sysctl(t, "tcp_ecn", 3)
	return l
}

func (l *ecnLab) sysctl(t *testing.T, name string, value int) {
	t.Helper()
	if _, err := l.vm.Script(t.Output(), fmt.Sprintf("echo %d > /proc/sys/net/ipv4/%s", value,
		name), time.Minute); err != nil {
		t.Fatalf("%s = %d needs Linux 7.0: %v", name, value, err)
	}
}

// connect starts the program kernelpeer in the machine and makes a connection with it. xwarp is the server if server,
// otherwise the client.
func (l *ecnLab) connect(ctx context.Context, server bool, port uint16) (*xdp.NetConn,
	*vm.Process, error) {
	cfg := xdp.StreamConfig{TCP: &xdp.TCPConfig{Config: tcp.Config{ECN: tcp.ECNAccurate}}}
	start := func(role string, at netip.AddrPort) (*vm.Process, error) {
		return l.vm.Spawn(fmt.Sprintf("%s/kernelpeer %s %v %d", vm.SharePath, role, at, ecnBytes))
	}
	if !server {
		at := netip.AddrPortFrom(l.vm.Addr4, port)
		p, err := start("listen", at)
		if err == nil {
			err = l.vm.Listening(port, time.Minute)
		}
		if err != nil {
			return nil, nil, err
		}
		c, err := l.dev.DialStream(ctx, at, cfg)
		return c, p, err
	}
	at := netip.AddrPortFrom(vm.PeerAddr6, port)
	listener, err := l.dev.ListenStream(at, 0, cfg)
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	p, err := start("dial", at)
	if err != nil {
		return nil, nil, err
	}
	select {
	case <-listener.Changed():
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("no connection: %w; %s", ctx.Err(), p.Output())
	}
	s, err := listener.Accept()
	if err != nil {
		return nil, nil, err
	}
	return xdp.NewNetConn(s), p, nil
}

// converse sends and receives ecnBytes, closes the connection, and returns the TCP state of both ends.
func converse(c *xdp.NetConn, p *vm.Process) (ours verbs.TCPInfo, theirs unix.TCPInfo,
	err error) {
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := c.Write(make([]byte, ecnBytes)); err != nil {
		return ours, theirs, fmt.Errorf("send: %w", err)
	}
	if _, err := io.CopyN(io.Discard, c, ecnBytes); err != nil {
		return ours, theirs, fmt.Errorf("receive: %w", err)
	}
	for c.Unsent() > 0 && c.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	if err := c.CloseWrite(); err != nil {
		return ours, theirs, err
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		return ours, theirs, fmt.Errorf("wait for the FIN: %w", err)
	}
	if ours, err = c.Info(); err != nil {
		return ours, theirs, err
	}
	if code, err := p.Wait(time.Minute); err != nil || code != 0 {
		return ours, theirs, fmt.Errorf("exit code %d, %v: %s", code, err, p.Output())
	}
	return ours, theirs, json.Unmarshal([]byte(p.Output()), &theirs)
}

// TestAccurateECN transfers data over a path that sets CE. It compares the path's marks with the counts of xwarp and
// Linux, with the feedback that each sends, and with what each computes from the other's feedback.
//
//req:rfc9768-3.2.2-2 rfc9768-3.2.2.1-1 rfc9768-3.2.2.2-1 rfc9768-3.2.2.2-5 rfc9768-3.2.2.3-1 rfc9768-3.2.2.3-2
//req:rfc9768-3.2.3.3-3 rfc9768-3.2.3.3-8
func TestAccurateECN(t *testing.T) {
	l := newECNLab(t)
	for _, tc := range []struct {
		name     string
		marks    marks
		noOption bool // Linux sends no AccECN option
	}{
		{name: "no marks"},
		{name: "data", marks: marks{data: 5}},
		{name: "data, no option", marks: marks{data: 5}, noOption: true},
		{name: "all data", marks: marks{data: 1}},
		{name: "acknowledgements", marks: marks{acks: 1}},
		{name: "data and acknowledgements", marks: marks{data: 7, acks: 3}},
		{name: "SYN", marks: marks{syn: true, data: 5}},
		{name: "SYN-ACK", marks: marks{synACK: true, data: 5}},
		{name: "second SYN-ACK", marks: marks{synACK: true, again: true, data: 5}},
		{name: "data, losses", marks: marks{data: 5, drop: 20}},
		{name: "data and acknowledgements, losses", marks: marks{data: 3, acks: 4, drop: 30}},
	} {
		for _, server := range []bool{false, true} {
			name := "xwarp is client, IPv4, " + tc.name
			if server {
				name = "xwarp is server, IPv6, " + tc.name
			}
			t.Run(name, func(t *testing.T) {
				l.sysctl(t, "tcp_ecn_option", map[bool]int{true: 0, false: 2}[tc.noOption])
				l.run(t, server, tc.noOption, tc.marks)
			})
		}
	}
}

// run makes and checks one connection: over IPv6 with xwarp as the server if server, otherwise over IPv4 with Linux as
// the server.
func (l *ecnLab) run(t *testing.T, server, noOption bool, m marks) {
	port := port()
	file := filepath.Join(t.TempDir(), "path.pcap")
	t.Cleanup(func() {
		if t.Failed() {
			keep(t, file)
		}
	})
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := l.path.begin(port, m, f); err != nil {
		t.Fatal(err)
	}
	c, p, err := l.connect(limited(t, 2*time.Minute), server, port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ours, theirs, err := converse(c, p)
	packets, pathErr := l.path.end()
	if err := errors.Join(err, pathErr); err != nil {
		t.Fatal(err)
	}
	us, them := receivedBy(false, packets), receivedBy(true, packets)
	if server && m.again {
		// Linux 7.3 counts CE only on the first SYN-ACK. RFC 9768, 3.2.2.2 asks for it on each.
		them.synACK = 0
	}
	t.Logf("to xwarp %+v, to Linux %+v", us, them)
	if ours.ECN != tcp.ECNAccurate {
		t.Errorf("the handshake agreed on mode %d", ours.ECN)
	}
	// CE on a SYN or SYN-ACK, which is not ECT, shows a path that changes the ECN field (RFC 9768, 3.2.2.3).
	if want := m.syn && !server || m.synACK && server; ours.NoECT != want {
		t.Errorf("xwarp sends without ECT: %t, want %t", ours.NoECT, want)
	}
	equal := func(what string, got, want uint32) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	equal("packets with CE that xwarp counted", uint32(ours.CEIn), us.ce)
	equal("packets with CE that Linux counted", theirs.Received_ce, them.ce+them.synACK)
	equal("bytes with CE that Linux counted", theirs.Received_ce_bytes, them.ceBytes)
	// Without the AccECN option, the 3 bits of an acknowledgement cannot report more than 7 segments.
	if got := uint32(ours.CEBytesOut); !noOption || got < them.ceBytes {
		equal("bytes that Linux reported to xwarp as marked", got, them.ceBytes)
	}
	// Linux counts packets from 3 bits, and may assume one wrap too many or too few: see README.md.
	if got, want := theirs.Delivered_ce, us.ce+us.synACK; (got-want)%8 != 0 {
		t.Errorf("packets that xwarp reported to Linux as marked: %d, want %d", got, want)
	}
	equal("bytes that xwarp reported to Linux as marked", theirs.Delivered_ce_bytes, us.ceBytes)
	if !them.again {
		equal("bytes with ECT(0) that Linux counted", theirs.Received_e0_bytes, them.e0Bytes)
	}
	if !us.again {
		equal("bytes that xwarp reported to Linux as ECT(0)", theirs.Delivered_e0_bytes, us.e0Bytes)
	}
	ace, err := tsharkACE(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(ace) != len(packets) {
		t.Fatalf("tshark decodes %d of %d packets", len(ace), len(packets))
	}
	var xwarpACE, linuxACE string
	for i, p := range packets {
		switch {
		case p.rst: // a RST carries no ACE field
		case p.toMachine:
			xwarpACE = ace[i]
		default:
			linuxACE = ace[i]
		}
	}
	field := func(r received) string { return fmt.Sprint((5 + r.ce + r.synACK) & 7) }
	if xwarpACE != field(us) || linuxACE != field(them) {
		t.Errorf("the last ACE field of xwarp is %q, that of Linux %q by tshark; want %q and %q",
			xwarpACE, linuxACE, field(us), field(them))
	}
}

// tsharkACE returns the ACE field of each packet in file as tshark decodes it. It is empty for a SYN.
func tsharkACE(file string) (fields []string, err error) {
	var stderr bytes.Buffer
	cmd := exec.Command("tshark", "-n", "-r", file, "-T", "fields", "-e", "frame.number", "-e",
		"tcp.flags.ace")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("tshark: %w: %s", err, stderr.String())
	}
	for line := range strings.Lines(string(out)) {
		_, ace, _ := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		fields = append(fields, ace)
	}
	return fields, nil
}
