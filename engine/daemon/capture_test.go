package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/pcapgo"

	"xwarp/bench/topo"
	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/internal/core"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// captured is the output of a capture.
type captured struct {
	data   []byte
	result control.CaptureResult
}

// capturing runs f while dev captures with the arguments a, and returns the capture.
func capturing(t *testing.T, dev *client.Device, a control.CaptureArgs, f func()) captured {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := dev.Capture(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var v captured
	read := make(chan error, 1)
	go func() {
		b, err := io.ReadAll(c)
		v.data = b
		read <- err
	}()
	f()
	r, err := c.End(ctx)
	if err := errors.Join(err, <-read); err != nil || r.Error != "" {
		t.Fatalf("capture: %v, %+v", err, r)
	}
	v.result = r
	return v
}

// conversation is a connection between a program of the daemon on host A and an engine on host B.
type conversation struct {
	socket string
	p      *verbstest.End
	peer   netip.AddrPort
	ctx    context.Context
}

// converse connects the two ends of a conversation, without markers.
func converse(t *testing.T, tn *topo.Net) *conversation {
	t.Helper()
	v := awaitConversation(t, tn, ethTable+"[mpa]\nmarkers = false\n",
		verbs.MPAConfig{Markers: verbs.MarkersOff}, 2)
	v.p = v.connect(t)
	return v
}

// awaitConversation starts both ends. The end on host B accepts n connections.
func awaitConversation(t *testing.T, tn *topo.Net, text string, far verbs.MPAConfig,
	n int) *conversation {
	t.Helper()
	_, socket := run(t, tn.A, text)
	var dev *xdp.Device
	if err := tn.B.Do(func() (err error) {
		dev, err = xdp.Open(xdp.Config{Interface: "eth0", Options: core.Options{MPA: far}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	v := &conversation{socket: socket, peer: netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)}
	responder(t, dev, v.peer, n)
	var cancel context.CancelFunc
	v.ctx, cancel = context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return v
}

func (v *conversation) connect(t *testing.T) *verbstest.End {
	t.Helper()
	dev, err := client.Open(control.OperatorPath(v.socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	p := verbstest.New(t, dev, 64<<10)
	if _, err := p.Dial(v.ctx, v.peer); err != nil {
		t.Fatal(err)
	}
	return p
}

// device returns the daemon's device as opened by the operator.
func (v *conversation) device() *client.Device { return v.p.Dev.(*client.Device) }

func (v *conversation) write(t *testing.T, p *verbstest.End, times, data int) {
	t.Helper()
	for range times {
		if err := p.Do(v.ctx, verbs.SendWR{Op: rdmap.WRWrite,
			SGL:        []verbs.SGE{p.MR.SGE(0, data)},
			RemoteSTag: peerSTag(p.QP.Params().PrivateData)}); err != nil {
			t.Fatal(err)
		}
	}
}

// tshark returns a line for each packet of a file that matches the filter: its fields, separated by tabs.
func tshark(t *testing.T, file string, filter string, fields ...string) []string {
	t.Helper()
	args := []string{"-Y", filter, "-T", "fields"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	return tsharkLines(t, file, args...)
}

func tsharkLines(t *testing.T, file string, args ...string) (lines []string) {
	t.Helper()
	args = append([]string{"-n", "-r", file, "-o", "tcp.try_heuristic_first:TRUE"}, args...)
	var stderr bytes.Buffer
	cmd := exec.Command("tshark", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v (apt-get install tshark)\n%s", err, &stderr)
	}
	for l := range strings.Lines(string(out)) {
		lines = append(lines, strings.TrimSuffix(l, "\n"))
	}
	return lines
}

func save(t *testing.T, b []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.pcapng")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestCaptureMidConnection starts a capture in the middle of a connection. tshark must decode every FPDU of it, because
// the file starts with the connection's start-up frames.
func TestCaptureMidConnection(t *testing.T) {
	tn := hosts(t)
	v := converse(t, tn)
	v.write(t, v.p, 50, 32<<10) // long after the start-up
	const writes = 5
	c := capturing(t, v.device(), control.CaptureArgs{}, func() { v.write(t, v.p, writes, 4096) })
	file := save(t, c.data)
	if c.result.Dropped != 0 || c.result.Start < 5 {
		t.Errorf("%+v: want the start-up (SYN, SYN-ACK, ACK, Request, Reply) and no drops",
			c.result)
	}
	if n := len(tshark(t, file, "iwarp_mpa.req || iwarp_mpa.rep", "frame.number")); n != 2 {
		t.Errorf("%d frames with Request or Reply, want 2", n)
	}
	// After the start-up frames, tshark must see 3 segments for each Write at an MTU of 1500, all with a valid CRC.
	last := 0
	for _, l := range tshark(t, file, fmt.Sprintf("iwarp_mpa.fpdu && frame.number > %d",
		c.result.Start), "iwarp_ddp.last_flag") {
		last += strings.Count(l, "1") + strings.Count(l, "True")
	}
	text := strings.Join(tsharkLines(t, file, "-Y", fmt.Sprintf("frame.number > %d",
		c.result.Start), "-V", "-O", "iwarp_mpa,iwarp_ddp_rdmap"), "\n")
	good, bad := strings.Count(text, "(Good CRC32)"), strings.Count(text, "Bad CRC32")
	if good < 3*writes || bad > 0 || last != writes || strings.Contains(text, "Malformed") {
		t.Errorf("tshark decodes %d FPDUs after the gap and %d with a bad CRC, %d of them the "+
			"last of a message; want %d, 0 and %d:\n%s",
			good, bad, last, 3*writes, writes, text)
	}
}

// TestCaptureBlocks sends over a link of MTU 9000 with the transmit mode that "auto" selects, which hands blocks of
// several segments to the kernel. tshark must see the segments as a NIC would cut them from the blocks: the longest
// fills the MTU, and each is one whole FPDU, with its markers and a valid CRC. Segments that tshark decodes wrongly are
// not checked.
func TestCaptureBlocks(t *testing.T) {
	tn := hosts(t, topo.Options{MTU: 9000})
	v := awaitConversation(t, tn, ethTable, verbs.MPAConfig{}, 1)
	v.p = v.connect(t)
	const want = "packet-gso in packets of 9000 bytes: "
	if i := v.device().Transport(); !strings.HasPrefix(i.Way, want) || i.MTU != 9000 {
		t.Errorf("MTU %d, %q; want %q", i.MTU, i.Way, want)
	}
	const writes = 20
	c := capturing(t, v.device(), control.CaptureArgs{}, func() { v.write(t, v.p, writes, 64<<10) })
	file := save(t, c.data)
	const sent = "tcp.dstport == 7174 && tcp.len > 0 && !iwarp_mpa.req && !tcp.analysis.flags"
	longest, segments, first, skip := 0, 0, 0, false
	judged := map[string]bool{} // by frame number
	for _, l := range tshark(t, file, sent, "tcp.len", "tcp.seq", "iwarp_mpa.ulpdulength",
		"iwarp_mpa.marker_fpduptr", "frame.number") {
		f := strings.Split(l, "\t")
		n, seq := number(t, f[0]), number(t, f[1])
		if first == 0 {
			first = seq
		}
		segments++
		longest = max(longest, n)
		// If a marker is due right after a segment, tshark counts it as part of the segment. It then decodes the
		// following segments wrongly, until one begins where it expects an FPDU.
		due, whole := (seq+n-first)%512 == 0, isWholeFPDU(n, f[2], f[3])
		if due || skip && !whole {
			skip = true
			continue
		}
		skip = false
		judged[f[4]] = true
		if !whole {
			t.Errorf("a segment of %d bytes with a ULPDU of %q and markers %q", n, f[2], f[3])
		}
	}
	if most := 9000 - 52; longest > most || longest < most-3 || len(judged) < 4*writes {
		t.Errorf("%d segments of up to %d bytes, want %d; tshark judges %d", segments, longest,
			most, len(judged))
	}
	text := strings.Join(tsharkLines(t, file, "-Y", sent, "-V", "-O", "iwarp_mpa"), "\n")
	for _, frame := range strings.Split("\n"+text, "\nFrame ")[1:] {
		name, _, _ := strings.Cut(frame, ":")
		if judged[name] && (!strings.Contains(frame, "(Good CRC32)") ||
			strings.Contains(frame, "Bad CRC32") || strings.Contains(frame, "Malformed")) {
			t.Errorf("an FPDU without a right CRC: %s", frame)
		}
		delete(judged, name)
	}
	if len(judged) > 0 {
		t.Errorf("tshark did not print frames %v", judged)
	}
}

// isWholeFPDU reports whether tshark's fields of a segment of n bytes are those of one FPDU: its length field, the
// ULPDU, padding, the CRC and the markers.
func isWholeFPDU(n int, ulpdu, markers string) bool {
	length, err := strconv.Atoi(ulpdu)
	count := 0
	if markers != "" {
		count = len(strings.Split(markers, ","))
	}
	return err == nil && 2+length+(-(2+length)&3)+4+4*count == n
}

// number returns a numeric tshark field.
func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestCaptureFilters captures two connections to one port with filters. Each filter must show exactly the connections
// that match. A capture with limits must keep at most SnapLen bytes of each frame after the start-up frames, and end
// after Frames frames.
func TestCaptureFilters(t *testing.T) {
	tn := hosts(t)
	v := converse(t, tn)
	other := v.connect(t)
	both := func() {
		v.write(t, v.p, 3, 1000)
		v.write(t, other, 3, 1000)
	}
	flow := control.CaptureFlow{Local: v.p.QP.LocalAddr(), Remote: v.p.QP.RemoteAddr()}
	for _, tc := range []struct {
		name  string
		args  control.CaptureArgs
		conns int
	}{
		{"all", control.CaptureArgs{}, 2},
		{"port of the peer", control.CaptureArgs{Port: 7174}, 2},
		{"own port", control.CaptureArgs{Port: v.p.QP.LocalAddr().Port()}, 1},
		{"another port", control.CaptureArgs{Port: 9}, 0},
		{"peer", control.CaptureArgs{Remote: netip.PrefixFrom(v.peer.Addr(), 24)}, 2},
		{"another peer", control.CaptureArgs{Remote: netip.MustParsePrefix("203.0.113.0/24")}, 0},
		{"queue pair", control.CaptureArgs{Flows: []control.CaptureFlow{flow}}, 1},
	} {
		c := capturing(t, v.device(), tc.args, both)
		ports := map[string]bool{}
		for _, p := range tshark(t, save(t, c.data), "tcp.srcport == 7174", "tcp.dstport") {
			ports[p] = true
		}
		if len(ports) != tc.conns || (c.result.Frames == 0) != (tc.conns == 0) {
			t.Errorf("%s: %d connections, %+v; want %d", tc.name, len(ports), c.result, tc.conns)
		}
	}
	c := capturing(t, v.device(), control.CaptureArgs{SnapLen: 70, Frames: 20}, func() {
		v.write(t, v.p, 20, 1000)
	})
	r, err := pcapgo.NewNgReader(bytes.NewReader(c.data), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	n, cut := 0, 0
	for {
		_, ci, err := r.ReadPacketData()
		if err != nil {
			break
		}
		if n++; n > c.result.Start && ci.CaptureLength > 70 {
			t.Errorf("frame %d has %d bytes", n, ci.CaptureLength)
		}
		if ci.CaptureLength < ci.Length {
			cut++
		}
	}
	if n != 20 || c.result.Frames != 20 || cut == 0 {
		t.Errorf("%d frames, %d cut off, %+v; want 20", n, cut, c.result)
	}
}

// TestCaptureOfSlowReader: nobody reads the pipe of a capture for a while. The engine must not block, and the file must
// say how many frames are missing.
func TestCaptureOfSlowReader(t *testing.T) {
	tn := hosts(t)
	v := converse(t, tn)
	c, err := v.device().Capture(v.ctx, control.CaptureArgs{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	v.write(t, v.p, 400, 64<<10) // 26 MB through a ring of 8 MiB and a pipe
	ended := make(chan control.CaptureResult, 1)
	go func() {
		r, err := c.End(v.ctx)
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	b, err := io.ReadAll(c)
	r := <-ended
	if err != nil || r.Dropped == 0 || r.Frames == 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	rd, err := pcapgo.NewNgReader(bytes.NewReader(b), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for n := uint64(0); ; n++ {
		if _, _, err := rd.ReadPacketData(); err != nil {
			if n != r.Frames || !errors.Is(err, io.EOF) {
				t.Errorf("%d frames, %v; want %d", n, err, r.Frames)
			}
			break
		}
	}
	i, err := rd.Interface(0)
	if err != nil || i.Statistics.PacketsDropped != r.Dropped || i.Name != "eth0 queue 0" {
		t.Errorf("statistics in the file: %+v, %v; want %d dropped", i.Statistics, err, r.Dropped)
	}
}

// captureRole tries to capture and prints the error. Its argument: the socket.
func captureRole(args []string) error {
	dev, err := client.Open(args[0])
	if err != nil {
		return err
	}
	defer dev.Close()
	c, err := dev.Capture(context.Background(), control.CaptureArgs{Frames: 1})
	if err == nil {
		c.Close()
	}
	fmt.Println(err)
	return nil
}

// TestCaptureRights: the operator may capture, other users only as members of the configured group. The captures of a
// program end with its session. At most four captures run on a device at a time.
func TestCaptureRights(t *testing.T) {
	tn := hosts(t)
	exe := publicExe(t)
	for _, tc := range []struct{ config, want string }{
		{"", "and members of daemon.capture_group"},
		{"capture_group = \"0\"\n", "and members of daemon.capture_group"},
		{fmt.Sprintf("capture_group = \"%d\"\n", nobody), "<nil>"},
		{fmt.Sprintf("capture = false\ncapture_group = \"%d\"\n", nobody),
			"daemon.capture = false"},
	} {
		d, socket := run(t, tn.A, tc.config+ethTable)
		if got := start(t, exe, nobody, "capture", socket).line(); !strings.Contains(got, tc.want) {
			t.Errorf("with %q: %q, want %q", tc.config, got, tc.want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	d, socket := run(t, tn.A, ethTable)
	for range 3 { // more than the limit of captures, if they stayed
		dev, err := client.Open(control.OperatorPath(socket))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := dev.Capture(t.Context(), control.CaptureArgs{}); err != nil {
				t.Fatal(err)
			}
		}
		dev.Close()
		if _, ok := eventually(func() bool {
			return len(d.Snapshot().Sessions) == 0
		}); !ok {
			t.Fatal("the session stays")
		}
	}
	dev, err := client.Open(control.OperatorPath(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	var running [4]any // the garbage collector would end captures that nobody holds
	for i := range running {
		if running[i], err = dev.Capture(t.Context(), control.CaptureArgs{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := dev.Capture(t.Context(), control.CaptureArgs{}); err == nil ||
		!strings.Contains(err.Error(), "4 captures are already running") {
		t.Errorf("a fifth capture: %v", err)
	}
	runtime.KeepAlive(running)
}

func TestCaptureOnKernel(t *testing.T) {
	_, socket := kernel(t, "")
	dev, err := client.Open(control.OperatorPath(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if _, err := dev.Capture(t.Context(), control.CaptureArgs{}); err == nil ||
		!strings.Contains(err.Error(), "tcpdump") {
		t.Errorf("capture on the kernel's sockets: %v", err)
	}
}
