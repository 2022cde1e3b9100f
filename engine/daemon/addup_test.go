package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
)

func init() { roles["elsewhere"] = elsewhereRole }

// elsewhereRole is a peer on kernel sockets that runs until it is killed. Its arguments: "stream", the address of an
// export, and a file that it stores there; or "write" and the address of a memory export, to which it writes in a loop.
func elsewhereRole(args []string) error {
	dev, err := sockets.Open(sockets.Config{
		Options: core.Options{MPA: verbs.MPAConfig{Markers: verbs.MarkersOff}}})
	if err != nil {
		return err
	}
	if args[0] == "stream" {
		return storeBy(dev, args)
	}
	e, err := verbstest.Make(dev, 32<<10)
	if err != nil {
		return err
	}
	ctx := context.Background()
	to, err := e.Dial(ctx, netip.MustParseAddrPort(args[1]))
	for n := 0; err == nil; n++ {
		if err = e.Do(ctx, transferOf(rdmap.WRWrite, e, to, 32<<10)); n == 10 {
			fmt.Println("loaded")
		}
	}
	return err
}

// transferOf is an RDMA Write or Read between the starts of e's memory and a peer's memory.
func transferOf(op verbs.WROp, e *verbstest.End, peer verbs.RemoteMR, n int) verbs.SendWR {
	return verbs.SendWR{Op: op, SGL: []verbs.SGE{e.MR.SGE(0, n)}, RemoteSTag: peer.STag,
		RemoteTO: peer.Base}
}

// writes and reads are the numbers of bytes that each well-behaved connection of the test transfers by RDMA Write and
// by RDMA Read, puts is the length of the stored file.
const (
	writes = 30_011
	reads  = 20_007
	puts   = 700_001
)

// moved is a daemon on host B, with its clients on B and on A.
type moved struct {
	*testing.T
	ctx    context.Context
	tn     *topo.Net
	socket string
	web    *http.Client
	near   *client.Device // of a program on B
	far    *core.Device   // on kernel sockets of A
	there  netip.AddrPort // A's listening address
	last   uint16         // last port assigned to a way
}

const movedConfig = `
[http]
listen = %q
[mpa]
markers = false
[[interface]]
name = "eth0"
[[export]]
name = "memory"
listen = "0.0.0.0:7174"
size = "1MiB"
[[export]]
name = "content"
listen = "0.0.0.0:7175"
serve = "directory"
path = %q
[[export]]
name = "guarded"
listen = "0.0.0.0:7176"
size = "1MiB"
allow = ["198.51.100.0/24"]
`

// ways are ways to open, use and end a connection of the daemon.
var ways = map[string]func(m *moved){
	"memory export": func(m *moved) { m.useExport() }, // it stays connected
	"transfer":      func(m *moved) { m.transfer() },
	"program":       func(m *moved) { m.orderly(m.dial()) },
	"listener":      func(m *moved) { m.accept(false) },
	"rejected by the export": func(m *moved) {
		m.rejected(m.connect(m.far, m.at(m.tn.B, 7176)))
	},
	"rejected by the program": func(m *moved) { m.accept(true) },
	"rejected by the peer": func(m *moved) {
		at := m.port(m.tn.A)
		m.reject(m.far, at)
		m.rejected(m.connect(m.near, at))
	},
	"refused": func(m *moved) {
		if err := m.connect(m.near, m.port(m.tn.A)); !errors.Is(err,
			syscall.ECONNREFUSED) {
			m.Errorf("no listener: %v", err)
		}
	},
	"reset by the peer":    func(m *moved) { m.useExport().QP.Close() },
	"reset by the program": func(m *moved) { m.dial().QP.Close() },
	"program killed": func(m *moved) {
		m.killed("loaded", start(m, publicExe(m), nobody, "load", m.socket, m.there.String(), "2"))
	},
	"peer killed": func(m *moved) {
		m.killed("loaded", m.elsewhere("write", m.at(m.tn.B, 7174).String()))
	},
	"store killed": func(m *moved) {
		file := filepath.Join(m.TempDir(), "large")
		if err := os.WriteFile(file, make([]byte, 3<<20), 0o600); err != nil {
			m.Fatal(err)
		}
		m.killed("begun", m.elsewhere("stream", m.at(m.tn.B, 7175).String(), file))
	},
}

// TestCountersAddUp transfers data in every way while status and metrics are read continuously. No total may decrease
// meanwhile. Afterwards the daemon's totals, which include connections that ended, must match what the other host's
// kernel saw on the wire, to the byte: TCP payload, and payload of Sends, RDMA Writes and Read Responses. The metrics
// must equal the status, and the counters of the exports must match the transfers.
func TestCountersAddUp(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{Queues: 2, IPv4Only: true,
		OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads}) // the tap keeps only snapLength bytes of a frame
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	w := tap(t, tn.A)
	web := filepath.Join(t.TempDir(), "web")
	d, socket := run(t, tn.B, fmt.Sprintf(movedConfig, web, t.TempDir()))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	m := &moved{T: t, ctx: ctx, tn: tn, socket: socket, web: browser(here, "unix", web),
		far: kernelOn(t, tn.A), there: netip.AddrPortFrom(tn.A.Addr4.Addr(), 7180), last: 7180}
	if m.near, err = client.Open(socket); err != nil {
		t.Fatal(err)
	}
	defer m.near.Close()
	responder(t, m.far, m.there, 4)
	stop := m.scrape()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			one := *m
			one.T = t
			way(&one)
			m.last = one.last
		})
	}
	var in, out uint64
	host := tn.B.Addr4.Addr()
	if _, ok := eventually(func() bool {
		in, out = w.bytes(host)
		n := values(d, "tcp")
		return n["bytes_in"] == in && n["bytes_out"] == out
	}); !ok {
		t.Errorf("%d bytes of TCP received and %d sent, the daemon counts %v", in, out,
			values(d, "tcp"))
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	in, out = w.payload(host)
	s := d.Snapshot()
	n := s.Devices[0]
	if n.In != in || n.Out != out || in < 10*writes ||
		out < 5*reads {
		t.Errorf("%d bytes of RDMA received and %d sent, the daemon counts %+v", in, out, n)
	}
	m.metricsAreStatus(s.Statistics)
	for _, e := range s.Exports {
		want := map[string][2]uint64{"content": {puts, puts}}[e.Name]
		rejected := map[string]uint64{"guarded": 1}[e.Name]
		if got := [2]uint64{e.PutBytes, e.GetBytes}; got != want || e.Rejected != rejected {
			t.Errorf("export %s: %d bytes put and got, %d rejected; want %d, %d", e.Name, got,
				e.Rejected, want, rejected)
		}
	}
}

func (m *moved) at(h *topo.Host, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(h.Addr4.Addr(), port)
}

// port returns a port that no other way uses.
func (m *moved) port(h *topo.Host) netip.AddrPort {
	m.last++
	return m.at(h, m.last)
}

// connect connects a new end of dev to at, and returns the error.
func (m *moved) connect(dev verbs.Device, at netip.AddrPort) error {
	m.Helper()
	return dev.Dial(m.ctx, at, verbstest.New(m, dev, writes).QP, verbs.DialConfig{})
}

// work writes and reads the memory of a peer.
func (m *moved) work(e *verbstest.End, peer verbs.RemoteMR) {
	m.Helper()
	if err := errors.Join(e.Do(m.ctx, transferOf(rdmap.WRWrite, e, peer, writes)),
		e.Do(m.ctx, transferOf(rdmap.WRRead, e, peer, reads))); err != nil {
		m.Fatal(err)
	}
}

// use connects a new end of dev to a listener, and writes and reads the memory that the listener names.
func (m *moved) use(dev verbs.Device, at netip.AddrPort) *verbstest.End {
	m.Helper()
	e := verbstest.New(m, dev, writes)
	peer, err := e.Dial(m.ctx, at)
	if err != nil {
		m.Fatal(err)
	}
	m.work(e, peer)
	return e
}

// useExport connects a peer on A to the memory export of the daemon, and writes and reads there.
func (m *moved) useExport() *verbstest.End { return m.use(m.far, m.at(m.tn.B, 7174)) }

// dial connects a program of the daemon to A, and writes and reads memory there.
func (m *moved) dial() *verbstest.End { return m.use(m.near, m.there) }

func (m *moved) orderly(e *verbstest.End) {
	m.Helper()
	if err := e.QP.Disconnect(); err != nil {
		m.Error(err)
	}
	<-e.QP.Done()
}

// transfer stores a file in an export and fetches it.
func (m *moved) transfer() {
	c, err := transfer.Dial(m.ctx, m.far, m.at(m.tn.B, 7175), 0)
	if err != nil {
		m.Fatal(err)
	}
	content := bytes.Repeat([]byte("7"), puts)
	var got bytes.Buffer
	if _, err = c.StoreFrom(m.ctx, "file", 0o600, bytes.NewReader(content)); err == nil {
		_, err = c.FetchTo(m.ctx, "file", &got)
	}
	if err = errors.Join(err, c.Close()); err != nil || !bytes.Equal(got.Bytes(), content) {
		m.Errorf("%d bytes, %v", got.Len(), err)
	}
}

// accept runs a program that listens, and a peer that connects to it. The program rejects the peer, or the peer writes
// and reads memory of the program.
func (m *moved) accept(reject bool) {
	at := m.port(m.tn.B)
	if reject {
		m.reject(m.near, at)
		m.rejected(m.connect(m.far, at))
		return
	}
	mine := verbstest.New(m, m.near, writes)
	l, err := m.near.Listen(at, verbs.ListenConfig{})
	if err != nil {
		m.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(m.ctx)
		if err == nil {
			err = r.Accept(m.ctx, mine.QP, mine.MR.Remote().Append(nil))
		}
		accepted <- err
	}()
	e := m.use(m.far, at)
	if err := <-accepted; err != nil {
		m.Fatal(err)
	}
	m.orderly(e)
}

// reject runs a listener that rejects one connection.
func (m *moved) reject(dev verbs.Device, at netip.AddrPort) {
	m.Helper()
	l, err := dev.Listen(at, verbs.ListenConfig{})
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { l.Close() })
	go func() {
		if r, err := l.Accept(m.ctx); err == nil {
			r.Reject([]byte("no"))
		}
	}()
}

func (m *moved) rejected(err error) {
	m.Helper()
	if !errors.Is(err, verbs.ErrRejected) {
		m.Errorf("%v, want a rejection by the peer", err)
	}
}

func (m *moved) elsewhere(args ...string) (c *child) {
	m.tn.A.Do(func() error { c = start(m, "/proc/self/exe", 0, "elsewhere", args...); return nil })
	return c
}

// killed kills a process once it has printed the line at, while it transfers data.
func (m *moved) killed(at string, c *child) {
	m.Helper()
	if got := c.line(); got != at {
		m.Fatalf("the process says %q, want %q", got, at)
	}
	c.kill()
}

// scrape reads status and metrics continuously until stop is called. stop returns an error if reading failed or a total
// decreased.
func (m *moved) scrape() (stop func() error) {
	done := make(chan struct{})
	var group sync.WaitGroup
	var errs [2]error
	again := func(err *error, look func() ([3]float64, error)) {
		group.Go(func() {
			var last [3]float64
			for {
				now, e := look()
				for i := range now {
					if e == nil && now[i] < last[i] {
						e = fmt.Errorf("a total fell: %v, then %v", last, now)
					}
				}
				last = now
				select {
				case <-done:
					return
				default:
				}
				if *err = e; e != nil {
					return
				}
			}
		})
	}
	again(&errs[0], m.status)
	again(&errs[1], m.metrics)
	return func() error { close(done); group.Wait(); return errors.Join(errs[:]...) }
}

func (m *moved) status() (v [3]float64, err error) {
	dev, err := client.Open(control.OperatorPath(m.socket))
	if err != nil {
		return v, err
	}
	defer dev.Close()
	s, err := dev.Snapshot(m.ctx)
	if err != nil {
		return v, err
	}
	n := s.Devices[0]
	return [3]float64{float64(n.In), float64(n.Out),
		float64(s.Statistics.Values(n.Name, "tcp")["bytes_in"])}, nil
}

// series returns the current metrics.
func (m *moved) series() (map[string]string, error) {
	r, err := m.web.Get("http://localhost/metrics")
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	_, series := families(string(b))
	return series, err
}

func (m *moved) metrics() (v [3]float64, err error) {
	series, err := m.series()
	for i, name := range []string{counters.PayloadIn.Metric, counters.PayloadOut.Metric,
		"xwarp_tcp_rx_bytes_total"} {
		if err == nil {
			v[i], err = strconv.ParseFloat(series[name+`{device="eth0"}`], 64)
		}
	}
	return v, err
}

// metricsAreStatus compares each RDMA, MPA and TCP total of the device in the status with its metric, if it has one. No
// data may be transferred meanwhile.
func (m *moved) metricsAreStatus(l control.Statistics) {
	m.Helper()
	series, err := m.series()
	if err != nil {
		m.Fatal(err)
	}
	compared := 0
	for _, part := range []string{"rdma", "mpa", "tcp"} {
		values := l.Values("eth0", part)
		for _, c := range counters.ByPart(part) {
			text, ok := series[c.Metric+`{device="eth0"}`]
			if c.Metric == "" || c.Cause != "" || !ok {
				continue
			}
			compared++
			if v, err := strconv.ParseFloat(text, 64); err != nil || v != float64(c.Of(values)) {
				m.Errorf("%s is %s, and %s is %d", c.Metric, text, c.Key, c.Of(values))
			}
		}
	}
	if compared < 20 {
		m.Errorf("%d counters have metrics of the device's", compared)
	}
}
