package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

func here(f func() error) error { return f() }

// browser is an HTTP client for servers in the namespace of do. It always dials network and address, whatever the URL
// names.
func browser(do func(func() error) error, network, address string) *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
			err = do(func() error {
				c, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return c, err
		},
	}}
}

func fetch(t testing.TB, c *http.Client, url string) (status int, body string) {
	t.Helper()
	r, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// families returns the names of the metrics in a scrape, and the value of each series.
func families(text string) (names map[string]bool, series map[string]string) {
	names, series = map[string]bool{}, map[string]string{}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ := strings.Cut(rest, " ")
			names[name] = true
		} else if line[0] != '#' {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			series[name] = value
		}
	}
	return names, series
}

var metricName = regexp.MustCompile(`\bxwarp_[a-z_]+\b`)

// TestMetricsOfXDP: a scrape of an AF_XDP daemon, with a connection and exports of both kinds, has every metric that
// the dashboard and the alert rules use. Five values must match what the test did. The status page is off, so its data
// is not served.
func TestMetricsOfXDP(t *testing.T) {
	tn := hosts(t)
	const listen = "127.0.0.1:9479"
	text := ethTable + fmt.Sprintf("[http]\nlisten = %q\n[[export]]\nname = \"scratch\"\nlisten = "+
		"\"0.0.0.0:7175\"\nsize = \"64KiB\"\n"+
		"[[export]]\nname = \"images\"\nlisten = \"0.0.0.0:7176\"\nserve = \"directory\"\npath = %q\n",
		listen, t.TempDir())
	_, socket := run(t, tn.A, text)
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	responder(t, embedded(t, tn.B.Do), at, 1)
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	const size = 64 << 10
	p := verbstest.New(t, dev, size)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	to, err := p.Dial(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Do(ctx, verbs.SendWR{Op: rdmap.WRWrite, SGL: []verbs.SGE{p.MR.SGE(0, size)},
		RemoteSTag: to.STag}); err != nil {
		t.Fatal(err)
	}
	c := browser(tn.A.Do, "tcp", listen)
	status, body := fetch(t, c, "http://"+listen+"/metrics")
	names, series := families(body)
	if status != 200 {
		t.Fatalf("status %d\n%s", status, body)
	}
	for _, file := range []string{"grafana-dashboard.json", "prometheus-alerts.yaml"} {
		b, err := os.ReadFile("../../scripts/package/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range metricName.FindAllString(string(b), -1) {
			if !names[n] {
				t.Errorf("%s uses %s, which the daemon does not export", file, n)
			}
		}
	}
	for name, want := range map[string]string{
		`xwarp_rdma_tx_bytes_total{device="eth0"}`:     fmt.Sprint(size),
		`xwarp_queue_pairs{device="eth0",state="RTS"}`: "1", `xwarp_sessions`: "1",
		`xwarp_export_connections{export="scratch"}`: "0",
		`xwarp_objects{device="eth0",kind="mr"}`:     "1",
	} {
		if series[name] != want {
			t.Errorf("%s is %q, want %s", name, series[name], want)
		}
	}
	if status, body := fetch(t, c, "http://"+listen+"/status.json"); status != 404 {
		t.Errorf("the status page is off, but %d: %s", status, body)
	}
}

// TestMetricsOnUnixSocket: the Unix socket of http.listen has the mode of the control socket, and is removed when the
// daemon ends. A second daemon with the same path records an error, and runs without metrics.
func TestMetricsOnUnixSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "http")
	cfg, _ := load(t, fmt.Sprintf("[[interface]]\nname = \"lo\"\ntransport = "+
		"\"kernel\"\n[http]\nlisten = %q\n", path))
	d, err := daemon.New(cfg, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o666 {
		t.Fatalf("%v, %v; want the mode of the control socket, 0666", st.Mode(), err)
	}
	status, body := fetch(t, browser(here, "unix", path), "http://localhost/metrics")
	if status != 200 || !strings.Contains(body,
		`xwarp_device_info{copy="",device="lo",interface="",transport="kernel",xdp_mode=""} 1`) {
		t.Errorf("status %d\n%s", status, body)
	}
	cfg2, _ := load(t, fmt.Sprintf("[[interface]]\nname = \"lo\"\ntransport = "+
		"\"kernel\"\n[http]\nlisten = %q\n", path))
	d2, err := daemon.New(cfg2, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d2.Close()
	if e := event(d2.Snapshot(), "cannot serve metrics"); e == nil ||
		!strings.Contains(e.Error, "another process serves") {
		t.Errorf("a second daemon on the same socket: %+v", e)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestMetricsAddresses: if the port is in use, the daemon logs an error with the next step, and serves metrics once the
// port is free. If the network can reach the port, it logs a warning.
func TestMetricsAddresses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const nic = "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n"
	cfg, _ := load(t, nic+fmt.Sprintf("[http]\nlisten = %q\n", taken.Addr()))
	waits := running(t, cfg)
	e := event(waits.Snapshot(), "cannot serve metrics")
	if e == nil || e.Level != "ERROR" ||
		!strings.Contains(e.Error, "http.listen") || !strings.Contains(e.Error, "ss -ltnp") {
		t.Errorf("a taken port: %+v", e)
	}
	taken.Close()
	if _, ok := eventually(func() bool {
		return event(waits.Snapshot(), "serving metrics") != nil
	}); !ok {
		t.Error("metrics are not served when the port is free")
	}
	cfg, _ = load(t, nic+fmt.Sprintf("[http]\nlisten = \"0.0.0.0:%d\"\n", freePort(t).Port()))
	d, err := daemon.New(cfg, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if e := event(d.Snapshot(), "metrics are exposed"); e == nil || e.Level != "WARN" ||
		!strings.Contains(e.Detail["next"], "127.0.0.1") {
		t.Errorf("the warning: %+v", e)
	}
}

// event returns the latest event whose text starts with text, or nil.
func event(s control.Snapshot, text string) (found *control.EventRecord) {
	for i := range s.Events {
		if strings.HasPrefix(s.Events[i].Event, text) {
			found = &s.Events[i]
		}
	}
	return found
}

// TestEvents: the daemon records events with the names of RDMA_CM, and of the status of a failed completion, even
// without a log. A snapshot has the newest 512.
func TestEvents(t *testing.T) {
	cfg, socket := load(t, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n")
	d, err := daemon.New(cfg, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	dev, err := client.OpenConfig(client.Config{Path: socket, Program: "writer"})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	peer, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	at := freePort(t)
	responder(t, peer, at, 1)
	p := verbstest.New(t, dev, 4096)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	to, err := p.Dial(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	up := event(d.Snapshot(), "RDMA_CM_EVENT_ESTABLISHED")
	if up == nil || up.Remote != at.String() || up.Device != "lo" || up.Detail["revision"] != "2" {
		t.Fatalf("established: %+v", up)
	}
	if err := p.Do(ctx, verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{p.MR.SGE(0, 64)},
		RemoteSTag: to.STag ^ 0x5a5a5a00}); err == nil {
		t.Fatal("a Read of a missing region succeeds")
	}
	<-p.QP.Done()
	if _, ok := eventually(func() bool {
		return event(d.Snapshot(), "RDMA_CM_EVENT_DISCONNECTED") != nil
	}); !ok {
		t.Error("no RDMA_CM_EVENT_DISCONNECTED")
	}
	s := d.Snapshot()
	wc := event(s, "IBV_WC_")
	if wc == nil || wc.Event != "IBV_WC_REM_ACCESS_ERR" || wc.Remote != at.String() ||
		wc.Level != "WARN" || wc.Detail["op"] != "read" || wc.Session == 0 {
		t.Errorf("the failed completion: %+v", wc)
	}
	for i, e := range s.Events {
		if i > 0 && e.Seq <= s.Events[i-1].Seq || e.Time.IsZero() {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	for range 600 { // newer events replace the oldest
		cfg := *cfg
		cfg.Config.Daemon.Grace = config.Duration(time.Second)
		if err := d.ApplyConfig(&cfg); err != nil {
			t.Fatal(err)
		}
	}
	if s := d.Snapshot(); len(s.Events) != 512 || event(s, "RDMA_CM_EVENT_ESTABLISHED") != nil ||
		s.Events[511].Seq <= 600 {
		t.Errorf("after a flood: %d events, the last is %+v", len(s.Events),
			s.Events[len(s.Events)-1])
	}
}

// TestConnectionMakesTwoEvents: a connection of a peer leaves one event when it is established and one when it ends.
func TestConnectionMakesTwoEvents(t *testing.T) {
	at := freePort(t)
	cfg, _ := load(t, fmt.Sprintf("[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n"+
		"[[export]]\nname = \"x\"\nlisten = %q\nsize = 4096\n", at))
	d, err := daemon.New(cfg, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	peer, err := dialExport(t, at)
	if err != nil {
		t.Fatal(err)
	}
	peer.QP.Close()
	if _, ok := eventually(func() bool {
		return event(d.Snapshot(), "RDMA_CM_EVENT_DISCONNECTED") != nil
	}); !ok {
		t.Error("no RDMA_CM_EVENT_DISCONNECTED")
	}
	var names []string
	for _, e := range d.Snapshot().Events {
		if e.Remote != "" {
			names = append(names, e.Event)
		}
	}
	if want := []string{"RDMA_CM_EVENT_ESTABLISHED",
		"RDMA_CM_EVENT_DISCONNECTED"}; !slices.Equal(names, want) {
		t.Errorf("events of a connection: %q, want %q", names, want)
	}
}
