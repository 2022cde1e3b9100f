package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"xwarp/bpf"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
	"xwarp/engine/stack"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
	"xwarp/ring"
	"xwarp/tcp"
)

func scrape(t *testing.T, s func() control.Snapshot) map[string]string {
	t.Helper()
	h := Handler(s)
	return get(t, h.ServeHTTP)
}

// get returns the series of one scrape.
func get(t *testing.T, serve func(http.ResponseWriter, *http.Request)) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	serve(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	series := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			series[name] = value
		}
	}
	return series
}

func example() control.Snapshot {
	local, remote := netip.MustParseAddrPort("192.0.2.1:7471"),
		netip.MustParseAddrPort("192.0.2.2:4000")
	d := control.DeviceState{Name: "eth0", DeviceMode: verbs.DeviceMode{Name: "xdp",
		Interface: "eth0", XDPMode: "native", Copy: "copy", MTU: 9000}}
	ref := control.DeviceRef{Device: "eth0"}
	port := control.Port{DeviceRef: ref}
	group := func(part string, v any, queue ...int) control.Statistic {
		g := control.Statistic{Port: port, Part: part, Counters: control.Counters(v)}
		if values, ok := v.(counters.Values); ok {
			g.Counters = values
		}
		if len(queue) > 0 {
			g.Queue = &queue[0]
		}
		return g
	}
	var stored transfer.Stats
	stored.Puts.Store(3)
	stored.PutBytes.Store(500)
	stored.GetBytes.Store(70)
	stored.Failed.Store(1)
	images := group("transfer", &stored)
	images.Export = "images"
	steering := counters.Values{}
	for o := range bpf.NumOutcomes {
		steering[bpf.Outcome(o).String()] = uint64(o)
	}
	owner := control.Owner{Session: 1, UID: 1000}
	return control.Snapshot{
		Status: control.Status{Version: "v1", Devices: []control.DeviceState{d},
			Exports: []control.ExportState{{Name: "scratch", Connections: 2}, {Name: "images"}}},
		Statistics: control.Statistics{
			group("steering", steering), group("rdma", counters.Values{"payload_in": 150}),
			group("mpa", counters.Values{"out_by_chain": 3}),
			group("tcp", counters.Values{"bytes_in": 170}),
			group("stack", stack.Stats{RxFrames: 7, DropChecksum: 3}, 0),
			group("ring", ring.Stats{KernelRxRingFull: 5}, 0),
			group("listen", tcp.ListenCounters{SYNs: 4}, 0),
			group("stack", stack.Stats{}, 1), group("ring", ring.Stats{}, 1), images,
		},
		Objects: control.Objects{
			Sessions: []control.SessionState{{DeviceRef: ref, Owner: owner}},
			MRs:      []control.MRState{{DeviceRef: ref, Owner: owner, Length: 4096}},
			QPs: []control.QPState{{Port: port, Owner: owner, Handle: 9, State: "RTS", Local: local,
				Remote: remote, In: 100, Held: 64}},
			Users: []control.UserState{{UID: 1000, Resource: "qps", Used: 1, Limit: 10}},
		},
	}
}

func TestSeries(t *testing.T) {
	series := scrape(t, example)
	for name, want := range map[string]string{
		`xwarp_rx_frames_total{device="eth0",queue="0"}`:                                  "7",
		`xwarp_dropped_frames_total{cause="checksum",device="eth0",queue="0"}`:            "3",
		`xwarp_dropped_frames_total{cause="kernel_rx_ring_full",device="eth0",queue="0"}`: "5",
		`xwarp_dropped_frames_total{cause="checksum",device="eth0",queue="1"}`:            "0",
		`xwarp_steering_frames_total{device="eth0",outcome="listener"}`:                   "1",
		`xwarp_rdma_rx_bytes_total{device="eth0"}`:                                        "150",
		`xwarp_tcp_rx_bytes_total{device="eth0"}`:                                         "170",
		`xwarp_mpa_rx_out_of_order_fpdus_total{cause="chain",device="eth0"}`:              "3",
		`xwarp_listener_syns_total{device="eth0",queue="0"}`:                              "4",
		`xwarp_mpa_held_bytes{device="eth0"}`:                                             "64",
		`xwarp_registered_memory_bytes{device="eth0"}`:                                    "4096",
		`xwarp_objects{device="eth0",kind="qp"}`:                                          "1",
		`xwarp_queue_pairs{device="eth0",state="RTS"}`:                                    "1",
		`xwarp_user_resource_limit{resource="qps",tenant="",uid="1000"}`:                  "10",
		`xwarp_export_connections{export="scratch"}`:                                      "2",
		`xwarp_export_puts_total{export="images"}`:                                        "3",
		`xwarp_export_put_bytes_total{export="images"}`:                                   "500",
		`xwarp_export_get_bytes_total{export="images"}`:                                   "70",
		`xwarp_export_failed_transfers_total{export="images"}`:                            "1",
		`xwarp_device_mtu_bytes{device="eth0"}`:                                           "9000",
		`xwarp_build_info{version="v1"}`:                                                  "1",
		`node_infiniband_state_id{device="xwarp_eth0",port="1"}`:                          "4",
		`node_infiniband_port_data_received_bytes_total{device="xwarp_eth0",port="1"}`:    "150",
	} {
		if series[name] != want {
			t.Errorf("%s is %q, want %s", name, series[name], want)
		}
	}
	if n, ok := series[`xwarp_export_puts_total{export="scratch"}`]; ok {
		t.Errorf("an export of memory has %s puts", n)
	}
	for name := range series {
		if strings.Contains(name, "192.0.2") || strings.Contains(name, "handle") {
			t.Errorf("%s has a label for each connection", name)
		}
	}
}

// A daemon without devices can be scraped too.
func TestEmptySnapshot(t *testing.T) {
	if s := scrape(t, func() control.Snapshot {
		return control.Snapshot{}
	}); s["xwarp_sessions"] != "0" {
		t.Errorf("%v", s)
	}
}

// outcomes finds the outcomes of xwarp_steering_frames_total that an expression selects.
var outcomes = regexp.MustCompile(`outcome="([a-z_]+)"`)

func allOutcomes(yield func(string) bool) {
	for o := range bpf.NumOutcomes {
		if !yield(bpf.Outcome(o).String()) {
			return
		}
	}
}

var named = regexp.MustCompile(`\bxwarp_[a-z_]+\b`)

// The dashboard and the alert rules use only existing metrics, and existing outcomes of the steering program.
func TestDashboardAndRules(t *testing.T) {
	names := slices.Collect(maps.Keys(descs))
	for _, file := range []string{"../../../scripts/package/grafana-dashboard.json",
		"../../../scripts/package/prometheus-alerts.yaml"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, ".json") && !json.Valid(b) {
			t.Errorf("%s is no JSON", file)
		}
		for _, m := range outcomes.FindAllStringSubmatch(string(b), -1) {
			if !slices.Contains(slices.Collect(allOutcomes), m[1]) {
				t.Errorf("%s: the steering program has no outcome %s", file, m[1])
			}
		}
		found := named.FindAllString(string(b), -1)
		if len(found) < 10 {
			t.Errorf("%s names %d metrics only", file, len(found))
		}
		for _, n := range found {
			if !slices.Contains(names, n) {
				t.Errorf("%s: unknown metric %s", file, n)
			}
		}
	}
}

// TestAlertRules: each alert fires for a host that has its fault, and for no other host.
func TestAlertRules(t *testing.T) {
	const rules, cases = "../../../scripts/package/prometheus-alerts.yaml",
		"../../../scripts/package/testdata/alerts_test.yaml"
	out, err := exec.Command("promtool", "test", "rules", cases).CombinedOutput()
	if err != nil {
		t.Errorf("%v (make setup installs promtool)\n%s", err, out)
	}
	text, err := os.ReadFile(rules)
	tests, err2 := os.ReadFile(cases)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`- alert: (\w+)`).FindAllSubmatch(text, -1)
	if len(found) < 10 {
		t.Errorf("%d alerts", len(found))
	}
	for _, m := range found {
		for _, want := range []string{"alertname: %s, exp_alerts: []}",
			"alertname: %s\n        exp_alerts:\n"} {
			if want = fmt.Sprintf(want, m[1]); !bytes.Contains(tests, []byte(want)) {
				t.Errorf("%s: no test with %q", m[1], want)
			}
		}
	}
}

// TestMetricNames checks names, units and help texts with the Prometheus linter.
func TestMetricNames(t *testing.T) {
	for n := range descs {
		if !strings.HasPrefix(n, "xwarp_") && !strings.HasPrefix(n, "node_infiniband_") {
			t.Errorf("%s: the name of a metric must start with xwarp_", n)
		}
	}
	w := httptest.NewRecorder()
	Handler(example).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	problems, err := promlint.New(w.Body).Lint()
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if err != nil {
		t.Error(err)
	}
}
