package daemon_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
)

// freePort returns an unused port of the loopback interface.
func freePort(t testing.TB) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

// peer is connected to an export, over kernel sockets.
type peer struct {
	*verbstest.End
	info verbs.RemoteMR
}

func dialExport(t testing.TB, at netip.AddrPort) (*peer, error) {
	t.Helper()
	return dialExportBy(t, sockets.Config{}, at)
}

func dialExportBy(t testing.TB, cfg sockets.Config, at netip.AddrPort) (*peer, error) {
	t.Helper()
	dev, err := sockets.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	p := &peer{End: verbstest.New(t, dev, 4096)}
	if err := dev.Dial(t.Context(), at, p.QP,
		verbs.DialConfig{MPA: &verbs.MPAConfig{SingleAttempt: true}}); err != nil {
		return nil, err
	}
	if p.info, err = verbs.ParseRemoteMR(p.QP.Params().PrivateData); err != nil {
		t.Fatalf("private data of the reply: %x", p.QP.Params().PrivateData)
	}
	return p, nil
}

func (p *peer) do(wr verbs.SendWR) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return p.Do(ctx, wr)
}

// flush requests a flush of the bytes [off, off+n) of the export, and returns the status and the byte count of the
// reply.
func (p *peer) flush(off, n uint64) (byte, uint64, error) {
	if err := p.QP.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{p.MR.SGE(2048, 16)}}); err != nil {
		return 0, 0, err
	}
	m := append([]byte{1, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 16)...)
	binary.BigEndian.PutUint64(m[8:], off)
	binary.BigEndian.PutUint64(m[16:], n)
	if err := p.QP.PostSend(&verbs.SendWR{Op: rdmap.WRSend, Inline: m}); err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := p.Next(ctx)
	return p.Mem[2048+1], binary.BigEndian.Uint64(p.Mem[2048+8:]), err
}

func TestExports(t *testing.T) {
	anon, file, guarded, files := freePort(t), freePort(t), freePort(t), freePort(t)
	path := filepath.Join(t.TempDir(), "region")
	d, socket := kernel(t, fmt.Sprintf(`
[[export]]
name = "scratch"
listen = %q
size = "64KiB"
connections = 1
[[export]]
name = "file"
listen = %q
path = %q
size = 10000
[[export]]
name = "guarded"
listen = %q
size = 4096
access = "read"
allow = ["192.0.2.0/24"]
[[export]]
name = "files"
listen = %q
size = "10KiB"
serve = "directory"
path = %q
`, anon, file, path, guarded, files, t.TempDir()))
	p, err := dialExport(t, anon)
	if err != nil {
		t.Fatal(err)
	}
	want := verbs.RemoteMR{Access: verbs.RemoteRead | verbs.RemoteWrite, STag: p.info.STag,
		Base: p.info.Base, Length: 64 << 10}
	if p.info != want {
		t.Errorf("the region: %+v, want %+v", p.info, want)
	}
	copy(p.Mem, "into the region")
	if err := p.do(verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{p.MR.SGE(0, 15)},
		RemoteSTag: p.info.STag, RemoteTO: p.info.Base + 100}); err != nil {
		t.Fatal(err)
	}
	if err := p.do(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{p.MR.SGE(1000, 15)},
		RemoteSTag: p.info.STag, RemoteTO: p.info.Base + 100}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p.Mem[1000:1015], p.Mem[:15]) {
		t.Error("the bytes read differ from those written")
	}
	if status, _, err := p.flush(0, 0); err != nil || status != 1 {
		t.Errorf("flush of memory: status %d, %v", status, err)
	}
	if _, err := dialExport(t, anon); !errors.Is(err, verbs.ErrRejected) {
		t.Errorf("a second connection of one: %v", err)
	}
	if _, err := dialExport(t, guarded); !errors.Is(err, verbs.ErrRejected) {
		t.Errorf("a peer that is not on the list: %v", err)
	}
	t.Run("file", func(t *testing.T) { exportFile(t, file, path, socket) })
	t.Run("directory", func(t *testing.T) { exportTransfer(t, d, files) })
	for _, e := range d.Snapshot().Exports {
		if e.Name == "scratch" && (e.Connections != 1 || e.Rejected != 1 || e.Size != 64<<10) {
			t.Errorf("%+v", e)
		}
	}
}

func exportFile(t *testing.T, at netip.AddrPort, path, socket string) {
	p, err := dialExport(t, at)
	if err != nil {
		t.Fatal(err)
	}
	if !p.info.Flushable || p.info.Length != 10000 {
		t.Errorf("the region: %+v", p.info)
	}
	copy(p.Mem, "onto the disk")
	if err := p.do(verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{p.MR.SGE(0, 13)},
		RemoteSTag: p.info.STag, RemoteTO: p.info.Base + 9000}); err != nil {
		t.Fatal(err)
	}
	if status, n, err := p.flush(9000, 13); err != nil || status != 0 || n != 13 {
		t.Errorf("flush: status %d, %d bytes, %v", status, n, err)
	}
	if status, _, err := p.flush(9990, 100); err != nil || status != 1 {
		t.Errorf("flush beyond the end: status %d, %v", status, err)
	}
	b, err := os.ReadFile(path)
	if err != nil || len(b) != 10000 || string(b[9000:9013]) != "onto the disk" {
		t.Errorf("the file: %d bytes, %v", len(b), err)
	}
	dev, err := client.Open(control.OperatorPath(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if err := dev.FlushExport(t.Context(), "file"); err != nil {
		t.Error(err)
	}
	if dev.FlushExport(t.Context(), "scratch") == nil {
		t.Error("memory can be flushed")
	}
	// Access beyond the end of the export fails.
	if err := p.do(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{p.MR.SGE(0, 8)},
		RemoteSTag: p.info.STag, RemoteTO: p.info.Base + 9996}); err == nil {
		t.Error("a Read beyond the end of the region succeeds")
	}
}

func exportTransfer(t *testing.T, d *daemon.Daemon, at netip.AddrPort) {
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	c, err := transfer.Dial(t.Context(), dev, at, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("content "), 1000)
	store := func(content []byte) error {
		_, err := c.StoreFrom(t.Context(), "file", 0o600, bytes.NewReader(content))
		return err
	}
	if err := store(content); err != nil {
		t.Fatal(err)
	}
	s := d.Snapshot()
	i := slices.IndexFunc(s.QPs, func(q control.QPState) bool { return q.Export == "files" })
	if i < 0 || s.QPs[i].RDMA["payload_in"] < uint64(len(content)) {
		t.Errorf("the connection does not show the received bytes: %+v", s.QPs)
	}
	for range 2 {
		if n, err := c.FetchTo(t.Context(), "file", io.Discard); err != nil || n != 8000 {
			t.Errorf("fetch: %d bytes, %v", n, err)
		}
	}
	if err := store(content); err == nil {
		t.Error("more bytes are stored than the directory may have")
	}
	c.Close()
	want := map[string]uint64{"puts": 1, "put_bytes": 8000, "gets": 2, "get_bytes": 16000,
		"failed": 1, "rejected": 0}
	patience := time.After(time.Minute)
	transfers := func(s *control.Snapshot, export string) map[string]uint64 {
		for _, v := range s.Statistics {
			if v.Export == export {
				return v.Counters
			}
		}
		return nil
	}
	for { // the server notices the end of a connection after the client
		s = d.Snapshot()
		i = slices.IndexFunc(s.Exports, func(e control.ExportState) bool {
			return e.Name == "files"
		})
		e := s.Exports[i]
		if e.Connections == 0 && maps.Equal(transfers(&s, "files"), want) {
			break
		}
		select {
		case <-patience:
			t.Fatalf("%d connections, %v, want none and %v", e.Connections,
				transfers(&s, "files"), want)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestReloadKeepsContent: a reload that changes who may connect, or the maximum number of connections, keeps the memory
// of an export and its connections. The change applies to new connections.
func TestReloadKeepsContent(t *testing.T) {
	at := freePort(t)
	nic := "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n"
	export := fmt.Sprintf("[[export]]\nname = \"scratch\"\nlisten = %q\nsize = 4096\n", at)
	d, _ := kernel(t, export)
	p, err := dialExport(t, at)
	if err != nil {
		t.Fatal(err)
	}
	copy(p.MR.Bytes(), "kept")
	if err := p.do(verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{p.MR.SGE(0, 4)},
		RemoteSTag: p.info.STag, RemoteTO: p.info.Base}); err != nil {
		t.Fatal(err)
	}
	now, _ := load(t, nic+export+"connections = 1\nallow = [\"127.0.0.0/8\"]\n")
	if err := d.ApplyConfig(now); err != nil {
		t.Fatal(err)
	}
	if err := p.do(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{p.MR.SGE(1000, 4)},
		RemoteSTag: p.info.STag, RemoteTO: p.info.Base}); err != nil {
		t.Fatalf("the connection ended: %v", err)
	}
	if got := string(p.MR.Bytes()[1000:1004]); got != "kept" {
		t.Errorf("the content is %q", got)
	}
	if _, err := dialExport(t, at); err == nil {
		t.Error("a second connection, and one is allowed now")
	}
	none, _ := load(t, nic+export+"allow = [\"192.0.2.0/24\"]\n")
	if err := d.ApplyConfig(none); err != nil {
		t.Fatal(err)
	}
	if _, err := dialExport(t, at); err == nil {
		t.Error("a peer that is not in allow may connect")
	}
}

// TestReload: a reload applies a changed list of exports, MPA settings, limits, and denied peers.
func TestReload(t *testing.T) {
	first, second := freePort(t), freePort(t)
	const nic = "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n"
	export := func(name string, at netip.AddrPort) string {
		return fmt.Sprintf("[[export]]\nname = %q\nlisten = %q\nsize = 4096\n", name, at)
	}
	d, socket := kernel(t, export("first", first))
	p, err := dialExport(t, first)
	if err != nil {
		t.Fatal(err)
	}
	now, _ := load(t, nic+export("second", second)+
		"[limits]\npds = 0\n[[peer]]\nprefix = \"127.0.0.0/8\"\nmarkers = false\n")
	if err := d.ApplyConfig(now); err != nil {
		t.Fatal(err)
	}
	<-p.QP.Done()
	if _, err := dialExport(t, first); err == nil {
		t.Error("a removed export accepts connections")
	}
	if p, err = dialExport(t, second); err != nil {
		t.Fatalf("the new export: %v", err)
	}
	if p.QP.Params().Send.Markers {
		t.Error("the new policy for the peer does not count")
	}
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if _, err := dev.AllocPD(); err == nil {
		t.Error("the new limits do not count")
	}
	denied, _ := load(t, nic+export("second", second)+
		"[[peer]]\nprefix = \"127.0.0.1/32\"\nallow = false\n")
	if err := d.ApplyConfig(denied); err != nil {
		t.Fatal(err)
	}
	if _, err := dialExport(t, second); err == nil {
		t.Error("a peer that is denied may connect")
	}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, _ := dev.CreateCQ(16)
	qp, err := dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq, SendDepth: 4,
		RecvDepth: 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Dial(t.Context(), first, qp, verbs.DialConfig{}); err == nil {
		t.Error("a program may connect to a peer that is denied")
	}
}

// TestShutdown stops a daemon: a peer of an export sees a graceful close, a program gets ErrDaemonGone, and the port is
// free afterwards.
func TestShutdown(t *testing.T) {
	at := freePort(t)
	cfg, socket := load(t, fmt.Sprintf("[[interface]]\nname = \"lo\"\ntransport = "+
		"\"kernel\"\n[[export]]\nname = \"x\"\nlisten = %q\nsize = 4096\n", at))
	d, err := daemon.New(cfg, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := dialExport(t, at)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	<-p.QP.Done()
	if err := p.QP.Err(); err != nil {
		t.Errorf("a peer sees the end as %v", err)
	}
	if _, err := dev.AllocPD(); !errors.Is(err, client.ErrDaemonGone) {
		t.Errorf("a program sees the end as %v", err)
	}
	if err := bindable(at); err != nil {
		t.Errorf("the port is not free: %v", err)
	}
}

// TestStartErrors checks the errors of a daemon that cannot start, and of a program that finds no daemon.
func TestStartErrors(t *testing.T) {
	_, socket := kernel(t, "")
	for _, tc := range []struct{ name, text, want string }{
		{"no interface", "", "no [[interface]] configured"},
		{"no Ethernet", "[[interface]]\nname = \"lo\"\n", "Ethernet"},
	} {
		cfg, _ := load(t, tc.text)
		d, err := daemon.New(cfg, daemon.Options{})
		if err == nil {
			d.Close()
		}
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte(tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	cfg, _ := load(t, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n")
	cfg.Daemon.Socket = socket
	if _, err := daemon.New(cfg, daemon.Options{}); err == nil ||
		!bytes.Contains([]byte(err.Error()), []byte("another xwarpd")) {
		t.Errorf("a second daemon on the same socket: %v", err)
	}
	if _, err := client.Open(filepath.Join(t.TempDir(), "none")); err == nil ||
		!bytes.Contains([]byte(err.Error()), []byte("systemctl start xwarpd")) {
		t.Errorf("no daemon: %v", err)
	}
}
