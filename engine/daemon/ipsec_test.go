package daemon_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
	"xwarp/tcp/ip"
)

const (
	ipsecTable   = "[[interface.ipsec]]\nif_id = 0x7877\n"
	scratchTable = "[[export]]\nname = \"scratch\"\nlisten = \"0.0.0.0:7174\"\nsize = \"1MiB\"\n"
)

func init() { roles["ipsec"] = ipsecRole }

// journal keeps what daemons log.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// protectedPair is two hosts whose daemons use IPsec.
type protectedPair struct {
	tn   *topo.Net
	fake *fakeXFRM
	d    [2]*daemon.Daemon // nil: the daemon runs in another process
	at   netip.AddrPort    // address of the export of the second host
	log  journal
	wire *wire
}

func newProtectedPair(t *testing.T, options topo.Options) *protectedPair {
	t.Helper()
	options.Relay = true
	p := &protectedPair{tn: hosts(t, options), wire: &wire{t: t}}
	p.at = netip.AddrPortFrom(p.tn.B.Addr4.Addr(), 7174)
	p.fake = newFakeXFRM(t, p.tn.A.Addr4.Addr(), p.tn.B.Addr4.Addr())
	p.bridge(t)
	return p
}

// bridge joins the two links of the namespace between the hosts, and captures the frames that arrive there.
func (p *protectedPair) bridge(t *testing.T) {
	t.Helper()
	m := p.tn.Relay
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	nl := m.Netlink()
	err := nl.LinkAdd(link)
	for _, l := range []topo.Link{m.ToA, m.ToB} {
		var nic netlink.Link
		if err == nil {
			nic, err = nl.LinkByName(l.Name)
		}
		if err == nil {
			err = nl.LinkSetMaster(nic, link)
		}
	}
	if err == nil {
		err = nl.LinkSetUp(link)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []topo.Link{m.ToA, m.ToB} {
		p.wire.listen(t, m.Namespace, l.Index, true)
	}
}

// start starts the daemon of a host in this process.
func (p *protectedPair) start(t *testing.T, i int, text string) (socket string) {
	t.Helper()
	h := []*topo.Host{p.tn.A, p.tn.B}[i]
	cfg, socket := load(t, ethTable+ipsecTable+text)
	log := slog.New(slog.NewJSONHandler(&p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if err := h.Do(func() (err error) {
		p.d[i], err = daemon.New(cfg, daemon.Options{Log: log,
			FollowSAs: followFake(p.fake.path, p.fake.hosts[i])})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.d[i].Close() })
	return socket
}

// dial connects a program of the first host to the export of the second.
func (p *protectedPair) dial(t *testing.T, socket string) (e *verbstest.End, peer verbs.RemoteMR) {
	t.Helper()
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	e = verbstest.New(t, dev, 1<<20)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if peer, err = e.Dial(ctx, p.at); err != nil {
		t.Fatalf("%v\n%s", err, p.log.String())
	}
	return e, peer
}

// state returns the IPsec state of a host's device, and the retransmission timeouts of its TCP.
func (p *protectedPair) state(t *testing.T, i int) (s *control.IPsecState, timeouts uint64) {
	t.Helper()
	v := p.d[i].Snapshot()
	d := v.Devices[0]
	tcp := v.Statistics.Values(d.Name, "tcp")
	if d.IPsec == nil || tcp == nil {
		t.Fatalf("%+v", d)
	}
	return d.IPsec, tcp["timeouts"]
}

// frames returns the captured ESP frames. It fails if any captured frame carries TCP in the clear.
func (p *protectedPair) frames(t *testing.T) (esp [][]byte) {
	t.Helper()
	p.wire.mu.Lock()
	defer p.wire.mu.Unlock()
	for _, f := range p.wire.frames {
		if len(f) < espAt+espHeader || binary.BigEndian.Uint16(f[12:]) != uint16(ip.TypeIPv4) {
			continue
		}
		switch f[23] {
		case ip.ProtoTCP:
			t.Fatalf("TCP in the clear: % x", f[:60])
		case ip.ProtoESP:
			esp = append(esp, f)
		}
	}
	return esp
}

// Offsets in an ESP frame over IPv4, and the length of the ESP header.
const (
	espAt     = 34
	espHeader = 16
)

// unique fails if two frames have the same SPI and sequence number, which would break AES-GCM.
func unique(t *testing.T, frames [][]byte) {
	t.Helper()
	seen := map[uint64]bool{}
	for _, f := range frames {
		id := binary.BigEndian.Uint64(f[espAt:])
		if seen[id] {
			t.Fatalf("SPI %#x has number %d twice", id>>32, uint32(id))
		}
		seen[id] = true
	}
}

// TestIPsec runs programs over daemons with IPsec: frames on the wire, rekeys, deletion, forgeries and replays.
//
//req:rfc5044-9.3-1 rfc5044-9.4-1 rfc5041-8.4.2-1 rfc5040-8.2.2-1 rfc5040-8.2.2-8 rfc5041-8.4.2-7
func TestIPsec(t *testing.T) {
	for _, queues := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d queues", queues), func(t *testing.T) { testIPsec(t, queues) })
	}
}

func testIPsec(t *testing.T, queues int) {
	t.Parallel()
	p := newProtectedPair(t, topo.Options{Queues: queues})
	dir := t.TempDir()
	p.start(t, 1, scratchTable+fmt.Sprintf("[[export]]\nname = \"files\"\n"+
		"listen = \"0.0.0.0:7175\"\nserve = \"directory\"\npath = %q\nsize = \"64MiB\"\n", dir))
	socket := p.start(t, 0, "")
	e, peer := p.dial(t, socket)
	p.fake.mu.Lock()
	asked := p.fake.asked
	p.fake.mu.Unlock()
	if asked == 0 {
		t.Error("no SA was requested from the IKE daemon")
	}
	work := func(until func() bool) (rounds int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for ; !until() || rounds < 3; rounds++ {
			if err := e.WriteAndRead(ctx, peer); err != nil {
				t.Fatalf("round %d: %v\n%s", rounds, err, p.log.String())
			}
		}
		return rounds
	}

	// Rekeys under load.
	const rekeys = 20
	_, before := p.state(t, 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rekeys {
			p.fake.rekey()
		}
	}()
	work(func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	for i := range p.d {
		s, timeouts := p.state(t, i)
		// A busy machine causes a timeout now and then. A rekey that lost packets would cause one each time.
		if s.Rekeys < rekeys-1 || i == 0 && timeouts-before > rekeys/4 {
			t.Errorf("host %d: %+v, %d retransmission timeouts", i, s, timeouts-before)
		}
	}
	work(func() bool { return true }) // with the keys of the last rekey
	p.decode(t)

	if queues == 1 {
		p.captures(t, socket, func() { work(func() bool { return true }) })
	}
	p.copyFile(t, socket, dir)

	// Deleted SAs must not end the stream.
	p.fake.deleteAll()
	time.AfterFunc(700*time.Millisecond, p.fake.answer)
	began := time.Now()
	work(func() bool { return true })
	if time.Since(began) < 500*time.Millisecond {
		t.Error("the stream went on without SAs")
	}

	unique(t, p.frames(t))
	t.Logf("stream went on after %v", time.Since(began))
	p.attack(t)
	work(func() bool { return true })
	p.secrets(t)

	// A peer that does not encrypt gets no reply.
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if c, err := p.tn.A.Dial(ctx, netip.AddrPort{}, p.at); err == nil {
		c.Close()
		t.Error("connected in the clear")
	}
	if n := values(p.d[1], "steering")["drop_clear"]; n == 0 {
		t.Error("no segment in the clear was dropped")
	}
}

// copyFile puts a file into a directory export while its SAs are rekeyed.
func (p *protectedPair) copyFile(t *testing.T, socket, dir string) {
	t.Helper()
	const size = 8 << 20
	data := make([]byte, size)
	rand.Read(data)
	f, err := os.Open(save(t, data))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	c, err := transfer.Dial(t.Context(), dev, netip.AddrPortFrom(p.at.Addr(), 7175), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	attr := transfer.Attr{Kind: transfer.KindFile, Mode: 0o600, Length: size}
	to, err := c.Store(t.Context(), "copy", attr, 1, f)
	for at := int64(0); at < size && err == nil; at += size / 4 {
		p.fake.rekey()
		err = to.Move(t.Context(), at, size/4)
	}
	if err == nil {
		err = to.Close(t.Context(), true)
	}
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "copy")); err != nil || !bytes.Equal(b, data) {
		t.Errorf("the copy of %d bytes is another file: %v", len(b), err)
	}
}

// captures captures during work, first ESP frames only, then the decrypted packets too. tshark must find in each file
// what belongs there. A program that is not the operator must not capture decrypted packets.
func (p *protectedPair) captures(t *testing.T, socket string, work func()) {
	t.Helper()
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if _, err := dev.Capture(t.Context(), control.CaptureArgs{Decrypted: true}); err == nil ||
		!strings.Contains(err.Error(), "only the operator may capture with decrypted frames") {
		t.Errorf("a program captured encrypted connections of others: %v", err)
	}
	operator, err := client.Open(control.OperatorPath(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	files := map[bool]string{}
	for _, decrypted := range []bool{false, true} {
		files[decrypted] = save(t, capturing(t, operator,
			control.CaptureArgs{Decrypted: decrypted}, work).data)
	}
	for _, c := range []struct {
		decrypted bool
		filter    string
		want      bool
	}{
		{false, "esp", true},
		{false, "tcp || iwarp_mpa", false},
		{true, "esp && !(frame.interface_name contains \"decrypted\")", true},
		{true, "esp && frame.interface_name contains \"decrypted\"", false},
		{true, "tcp && !(frame.interface_name contains \"decrypted\")", false},
		{true, "iwarp_mpa.req && frame.interface_name contains \"decrypted\"", true},
		{true, "iwarp_mpa.rep && frame.interface_name contains \"decrypted\"", true},
		{true, "tcp.dstport == 7174 && tcp.len > 1000 && tcp.checksum.status == 1", true},
		{true, "tcp.srcport == 7174 && tcp.len > 1000 && tcp.checksum.status == 1", true},
		{true, "tcp.checksum.status == 0", false},
	} {
		n := len(tsharkLines(t, files[c.decrypted], "-o", "tcp.check_checksum:TRUE", "-Y",
			c.filter))
		if n > 0 != c.want {
			t.Errorf("capture, decrypted %v: %d frames are %s", c.decrypted, n, c.filter)
		}
	}
}

// attack sends each host one packet again, which it has received before, many times, and then copies of it with changed
// sequence numbers and contents. The host must count the former as replayed and the latter as forged.
func (p *protectedPair) attack(t *testing.T) {
	t.Helper()
	keys := p.fake.keys()
	for i, h := range []*topo.Host{p.tn.B, p.tn.A} { // the attacker is at the other end of the link
		var frame []byte
		for _, f := range p.frames(t) {
			src, _ := netip.AddrFromSlice(f[26:30])
			if keys[binary.BigEndian.Uint32(f[espAt:])] != nil && src == p.fake.hosts[1-i] {
				frame = f
			}
		}
		if frame == nil {
			t.Fatal("no packet to replay")
		}
		const replays, forgeries = 1000, 512
		inject := injector(t, h)
		was, _ := p.state(t, i)
		forged := bytes.Clone(frame)
		for n := range uint32(replays + forgeries) {
			b := frame
			if n >= replays {
				b = forged
				binary.BigEndian.PutUint32(b[espAt+4:], 1<<20+n)
				b[espAt+espHeader+int(n)%8] ^= 1 << (n % 8)
			}
			inject(b)
			if n%64 == 63 {
				time.Sleep(time.Millisecond) // the receive ring is short
			}
		}
		var now *control.IPsecState
		if _, ok := eventually(func() bool {
			now, _ = p.state(t, i)
			return now.Replayed-was.Replayed == replays &&
				now.Forged-was.Forged == forgeries
		}); !ok {
			t.Errorf("host %d: before %+v, now %+v", i, was, now)
		}
	}
}

// injector returns a function that sends a frame from a host's interface.
func injector(t *testing.T, from *topo.Host) func(frame []byte) {
	t.Helper()
	fd := -1
	if err := from.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return func(frame []byte) {
		t.Helper()
		to := unix.SockaddrLinklayer{Ifindex: from.Link.Index, Halen: 6}
		copy(to.Addr[:], frame)
		if err := unix.Sendto(fd, frame, 0, &to); err != nil {
			t.Fatal(err)
		}
	}
}

// present returns the captured ESP frames whose keys still exist. It waits a while for the first one.
func (p *protectedPair) present(t *testing.T, keys map[uint32][]byte) (frames [][]byte) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); len(frames) == 0 && time.Now().Before(end); {
		for _, b := range p.frames(t) {
			if keys[binary.BigEndian.Uint32(b[espAt:])] != nil {
				frames = append(frames, b)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return frames
}

// decode decrypts up to 2000 captured frames with tshark, which must find the port of the export in each.
func (p *protectedPair) decode(t *testing.T) {
	t.Helper()
	keys := p.fake.keys()
	frames := p.present(t, keys)
	file := filepath.Join(t.TempDir(), "esp.pcap")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := pcapgo.NewWriter(f)
	err = w.WriteFileHeader(65535, layers.LinkTypeEthernet)
	n := 0
	for _, b := range frames {
		if n == 2000 {
			break
		}
		n++
		err = errors.Join(err, w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1, 0),
			CaptureLength: len(b), Length: len(b)}, b))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	args := []string{"-n", "-r", file, "-o", "esp.enable_encryption_decode:TRUE", "-T", "fields",
		"-e", "tcp.port"}
	for spi, key := range keys {
		args = append(args, "-o", fmt.Sprintf(`uat:esp_sa:"IPv4","*","*","0x%08x",`+
			`"AES-GCM with 16 octet ICV [RFC4106]","0x%x","NULL",""`, spi, key))
	}
	out, err := exec.Command("tshark", args...).Output()
	if err != nil {
		t.Fatalf("tshark: %v (apt-get install tshark)", err)
	}
	if got := strings.Count(string(out), "7174"); n == 0 || got != n {
		t.Errorf("tshark reads %d packets of %d", got, n)
	}
}

// secrets searches for the current keys in the snapshots, the log and the captured frames. It also checks that the
// process may not write core files.
func (p *protectedPair) secrets(t *testing.T) {
	t.Helper()
	keys := p.fake.keys()
	var seen []byte
	for i, d := range p.d {
		v := d.Snapshot()
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for spi := range keys {
			if !bytes.Contains(b, fmt.Appendf(nil, `"spi":"0x%08x"`, spi)) {
				t.Errorf("host %d shows no SPI %#x: this test proves nothing", i, spi)
			}
		}
		seen = append(append(seen, b...), fmt.Sprintf("%+v", v)...)
	}
	seen = append(seen, p.log.String()...)
	sent := map[uint32]bool{}
	for _, f := range p.frames(t) {
		sent[binary.BigEndian.Uint32(f[espAt:])] = true
		seen = append(seen, f...)
	}
	for spi, key := range keys {
		if !sent[spi] {
			t.Errorf("no packet has SPI %#x: this test proves nothing", spi)
		}
		for _, form := range []string{string(key), hex.EncodeToString(key),
			strings.ToUpper(hex.EncodeToString(key)), base64.StdEncoding.EncodeToString(key),
			strings.Trim(fmt.Sprint(key), "[]")} {
			if bytes.Contains(seen, []byte(form)) {
				t.Errorf("the key of SPI %#x can be seen", spi)
			}
		}
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil || limit.Max > 1 {
		t.Errorf("core files of %d bytes may be written, %v", limit.Max, err)
	}
}

// ipsecRole runs a daemon with IPsec. Its arguments: the path of its namespace, the configuration, the path of the
// socket of a fakeXFRM, the address of the host.
func ipsecRole(args []string) error {
	cfg, err := loadIn(args[0], args[1])
	if err != nil {
		return err
	}
	d, err := daemon.New(cfg, daemon.Options{
		Log:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
		FollowSAs: followFake(args[2], netip.MustParseAddr(args[3]))})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return d.Run(context.Background())
}

// TestKillIPsecDaemon kills a daemon with IPsec in mid-stream, and restarts it. No SA may use a sequence number twice
// (RFC 4106: a reused nonce breaks AES-GCM), and no packet may be in the clear.
func TestKillIPsecDaemon(t *testing.T) {
	t.Parallel()
	p := newProtectedPair(t, topo.Options{})
	path, _ := writeConfig(t, ethTable+ipsecTable+scratchTable)
	startB := func() *child {
		c := start(t, "/proc/self/exe", 0, "ipsec", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(),
			p.tn.B.Fd()), path, p.fake.path, p.fake.hosts[1].String())
		if got := c.line(); got != "ready" {
			t.Fatalf("daemon: %q", got)
		}
		return c
	}
	b := startB()
	socket := p.start(t, 0, "")
	for round := range 5 {
		e, peer := p.dial(t, socket)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := e.WriteAndRead(ctx, peer); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := e.QP.PostSend(&verbs.SendWR{Op: verbs.WRWrite,
			SGL: []verbs.SGE{e.MR.SGE(0, len(e.Mem))}, RemoteSTag: peer.STag,
			RemoteTO: peer.Base}); err != nil {
			t.Fatal(err)
		}
		cancel()
		b.kill()
		b = startB()
		select {
		case <-e.QP.Done():
		case <-time.After(20 * time.Second):
			t.Fatalf("round %d: the connection to a killed daemon does not end", round)
		}
		e.Dev.Close()
	}
	frames := p.frames(t)
	unique(t, frames)
	p.fake.mu.Lock()
	defer p.fake.mu.Unlock()
	if p.fake.expired < 5 || len(frames) < 1000 {
		t.Errorf("%d SAs of dead daemons were replaced; %d frames", p.fake.expired, len(frames))
	}
}

// TestReloadIPsec turns encryption off and on again by reloads. A connection whose protection changes must end.
func TestReloadIPsec(t *testing.T) {
	p := newProtectedPair(t, topo.Options{})
	p.start(t, 1, scratchTable)
	socket := p.start(t, 0, "")
	reload := func(i int, text string) {
		cfg, _ := load(t, ethTable+text)
		if err := p.d[i].ApplyConfig(cfg); err != nil {
			t.Fatal(err)
		}
	}
	e, peer := p.dial(t, socket)
	if err := e.WriteAndRead(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	other := "[[interface.ipsec]]\nremote = [\"198.51.100.0/24\"]\nif_id = 0x7877\n"
	p.frames(t)
	reload(1, other+scratchTable)
	select {
	case <-e.QP.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the connection does not end")
	}
	p.frames(t) // fails if the end of the connection was in the clear
	reload(0, other)
	e, peer = p.dial(t, socket)
	if err := e.WriteAndRead(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	reload(0, ipsecTable)
	reload(1, ipsecTable+scratchTable)
	<-e.QP.Done()
	s, _ := p.state(t, 0)
	sealed := s.PacketsOut
	e, peer = p.dial(t, socket)
	if err := e.WriteAndRead(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	if s, _ = p.state(t, 0); s.PacketsOut < sealed+100 {
		t.Errorf("%+v", s)
	}
	if log := p.log.String(); !strings.Contains(log, "their IPsec configuration changed") {
		t.Error(log)
	}
}

// TestIPsecWithoutPolicy uses the XFRM of this kernel, to which no IKE daemon has added policies. The status must say
// what to add, and the error of a program that cannot connect must say that its packets wait for an SA. A daemon must
// not start if another process uses the SAs with its if_id.
func TestIPsecWithoutPolicy(t *testing.T) {
	tn := hosts(t)
	d, socket := run(t, tn.A, ethTable+ipsecTable)
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	e := verbstest.New(t, dev, 4096)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = e.Dial(ctx, netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174))
	if !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "packets wait for an SA") {
		t.Fatalf("connecting: %v", err)
	}
	s := d.Snapshot().Devices[0].IPsec
	const remedy = "add a CHILD_SA with this mode, the engine's if_id"
	if s == nil || !strings.Contains(s.Error, remedy) ||
		values(d, "ipsec")["failures"] == 0 || values(d, "ipsec")["requests"] == 0 {
		t.Errorf("%+v", s)
	}
	// Another daemon must not use the same SAs.
	if err := tn.B.Do(func() error {
		f, err := xfrm.Follow(xfrm.Options{IfID: 0x7877, Notify: func(*xfrm.Snapshot) {}})
		if err == nil {
			t.Cleanup(f.Close)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	says(t, startFails(t, tn.B, ethTable+ipsecTable),
		"another process uses the SAs with if_id 0x7877", "stop it or choose another if_id")
}
