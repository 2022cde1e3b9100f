package web

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
	"xwarp/engine/stack"
	"xwarp/engine/verbs"
)

// example returns the snapshot at a given second. The rates between any two of them are the same.
func example(second int) control.Snapshot {
	n := uint64(second)
	d := control.DeviceState{Name: "eth0", DeviceMode: verbs.DeviceMode{Name: "xdp",
		Interface: "eth0", XDPMode: "native", Copy: "zero-copy", MTU: 9000, Queues: 1},
		In: 6000 * n, Out: 1500 * n, Dropped: []control.Drop{{Cause: "checksum", Frames: 3 * n}}}
	port := control.Port{DeviceRef: control.DeviceRef{Device: "eth0"}}
	s := control.Snapshot{Status: control.Status{
		Schema: 1, Pid: 4711, Version: "v1.2.3", Uptime: 93_784, Devices: []control.DeviceState{d},
		Exports: []control.ExportState{{Name: "scratch", Device: "eth0",
			Listen: "0.0.0.0:7174", Serve: "memory", Memory: "hugepages",
			Size: 1 << 30, Access: "read-write", Connections: 1}}},
		Time: time.Unix(1_800_000_000+int64(second), 0),
		Statistics: control.Statistics{{Port: port, Part: "stack", Queue: new(0),
			Counters: control.Counters(stack.Stats{RxFrames: 100 * n, TxFrames: 50 * n})}},
	}
	for i := range 3 {
		s.QPs = append(s.QPs, control.QPState{
			Port: port, Owner: control.Owner{Session: uint64(i + 1)}, Handle: 4, State: "RTS",
			Local:  netip.MustParseAddrPort("192.0.2.1:40000"),
			Remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}), 7174),
			In:     n * 1000 * uint64(i+1), Out: n * 500,
		})
	}
	s.Events = []control.EventRecord{{Seq: 1, Time: s.Time, Level: "INFO",
		Event: "RDMA_CM_EVENT_ESTABLISHED", Remote: "192.0.2.10:7174", Device: "eth0"}}
	return s
}

func ask(t *testing.T, h http.Handler, method, host, path string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	r.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func newPages(t *testing.T, cfg Config) *Pages {
	t.Helper()
	second := 0
	if cfg.Snapshot == nil {
		cfg.Snapshot = func() control.Snapshot { second++; return example(second) }
	}
	p := New(cfg)
	t.Cleanup(p.Close)
	return p
}

// TestHosts: a site whose own name resolves to this host gets nothing (DNS rebinding). Addresses, localhost and
// configured names work.
func TestHosts(t *testing.T) {
	p := newPages(t, Config{Hosts: []string{"Storage7.example"}, StatusPage: true})
	for host, ok := range map[string]bool{
		"localhost": true, "localhost:9479": true, "LOCALHOST": true, "127.0.0.1:9479": true,
		"192.0.2.1": true, "[::1]:9479": true, "[::1]": true,
		"storage7.example": true, "storage7.example:9479": true, "STORAGE7.example.": true,
		"attacker.example": false, "attacker.example:9479": false,
		"127.0.0.1.attacker.example": false, "localhost.attacker.example": false, "": false,
		"[attacker.example]": false, "storage7.example.attacker": false, "127.0.0.1x": false,
		"::1": false,
	} {
		for _, path := range []string{"/", "/status.json", "/metrics"} {
			want := http.StatusMisdirectedRequest
			if ok {
				want = http.StatusOK
			}
			if got := ask(t, p, "GET", host, path).StatusCode; got != want {
				t.Errorf("Host %q, %s: %d, want %d", host, path, got, want)
			}
		}
	}
}

func TestReadOnly(t *testing.T) {
	p := newPages(t, Config{StatusPage: true})
	for _, m := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"} {
		if r := ask(t, p, m, "localhost",
			"/status.json"); r.StatusCode != http.StatusMethodNotAllowed ||
			r.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %s", m, r.Status)
		}
	}
}

// TestPageIsSelfContained: the page has no inline code, and loads nothing from other hosts.
func TestPageIsSelfContained(t *testing.T) {
	p := newPages(t, Config{StatusPage: true})
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/page.js": "text/javascript; charset=utf-8",
		"/plot.js":  "text/javascript; charset=utf-8",
		"/page.css": "text/css; charset=utf-8", "/icon.svg": "image/svg+xml",
	} {
		r := ask(t, p, "GET", "localhost", path)
		b, _ := io.ReadAll(r.Body)
		if r.StatusCode != 200 || r.Header.Get("Content-Type") != kind || len(b) == 0 {
			t.Errorf("%s: %s, %s, %d bytes", path, r.Status, r.Header.Get("Content-Type"), len(b))
		}
		csp := r.Header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") ||
			!strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
		text := strings.ReplaceAll(string(b), "http://www.w3.org/2000/svg", "")
		for _, bad := range []string{"http://", "https://", "//cdn", "innerHTML", "eval(",
			" onclick", " style="} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %q", path, bad)
			}
		}
	}
	for _, path := range []string{"/static/", "/index.html", "/../web.go", "/favicon.ico"} {
		if r := ask(t, p, "GET", "localhost", path); r.StatusCode == 200 {
			t.Errorf("%s is served", path)
		}
	}
}

func TestWithoutPage(t *testing.T) {
	p := newPages(t, Config{})
	if r := ask(t, p, "GET", "localhost", "/metrics"); r.StatusCode != 200 {
		t.Errorf("/metrics: %s", r.Status)
	}
	if b, _ := io.ReadAll(ask(t, p, "GET", "localhost", "/").Body); !strings.Contains(string(b),
		"http.status_page = true") {
		t.Errorf("/ says %q", b)
	}
	if r := ask(t, p, "GET", "localhost", "/status.json"); r.StatusCode != 404 {
		t.Errorf("/status.json: %s", r.Status)
	}
}

// keys returns the paths of all keys in a JSON object.
func keys(prefix string, v any) (list []string) {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			list = append(append(list, prefix+k), keys(prefix+k+".", inner)...)
		}
	case []any:
		for _, inner := range v {
			list = append(list, keys(prefix, inner)...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// /status.json and /top.json have the keys of the commands' JSON.
func TestSameKeysAsCommands(t *testing.T) {
	p := newPages(t, Config{StatusPage: true})
	s := example(1)
	for path, want := range map[string]any{"/status.json": s.Status,
		"/top.json": view.MakeTop(&s, &s)} {
		var got, command any
		b, _ := io.ReadAll(ask(t, p, "GET", "localhost", path).Body)
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		json.Unmarshal(b, &command)
		if g, w := keys("", got), keys("", command); !slices.Equal(g, w) || len(w) < 8 {
			t.Errorf("%s has %v, the command %v", path, g, w)
		}
	}
}

// TestHistory: samples become rates, and the oldest points are dropped.
func TestHistory(t *testing.T) {
	h := &history{snapshot: func() control.Snapshot { return example(0) }}
	h.sample(example(0))
	if len(h.samples.Times) != 0 || len(h.top.Conns) != 3 {
		t.Errorf("the first sample: %+v", h.samples)
	}
	for second := range points + 11 {
		if second == 0 {
			continue
		}
		h.sample(example(2 * second))
	}
	if n := len(h.samples.Times); n != points {
		t.Fatalf("%d points, want %d", n, points)
	}
	want := &series{Device: "eth0", In: fill(8 * 6000), Out: fill(8 * 1500), Drops: fill(3),
		Conns: fill(3)}
	if got := h.samples.Devices; len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("%+v\nwant %+v", got[0], want)
	}
	if got := h.samples.Times[points-1]; got != 1_800_000_000+2*(points+10) {
		t.Errorf("the last time is %v", got)
	}
}

func fill(v float64) []float64 { return slices.Repeat([]float64{v}, points) }

// TestConcurrentReaders: clients read the history while samples are taken. Each response must have as many rates as
// times.
func TestConcurrentReaders(t *testing.T) {
	p := newPages(t, Config{StatusPage: true})
	p.history.sample(example(50))
	done := make(chan error)
	for range 4 {
		go func() {
			var err error
			for range 50 {
				r := httptest.NewRecorder()
				q := httptest.NewRequest("GET", "/history.json", nil)
				q.Host = "localhost"
				p.ServeHTTP(r, q)
				var h History
				if e := json.Unmarshal(r.Body.Bytes(), &h); e != nil || len(h.Times) == 0 ||
					len(h.Devices) != 1 || len(h.Devices[0].In) != len(h.Times) {
					err = fmt.Errorf("%w, %s", e, r.Body)
				}
			}
			done <- err
		}()
	}
	for second := range 200 {
		p.history.sample(example(100 + second))
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
