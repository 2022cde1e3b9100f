package libxwarpverbs_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/metrics"
)

// portsScript lists devices and their interfaces, from the files that ibdev2netdev reads.
const portsScript = `cd /sys/class/infiniband
for device in $(ls); do
	for port in /sys/class/infiniband/$device/ports/*; do
		echo "$device port ${port##*/} ==> $(cat $port/gid_attrs/ndevs/0) ($(cat $port/state))"
	done
done
`

// TestSysfs runs programs that look for devices in /sys/class/infiniband, with each kind of call that is redirected.
// When the daemon ends, it must remove its files.
func TestSysfs(t *testing.T) {
	a, _ := pair(t)
	v4 := netip.MustParseAddr(a.addr).As4()
	gid := fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%x:%x", v4[:2], v4[2:])
	const tree = "/sys/class/infiniband"
	ports := filepath.Join(scratch(t), "ports")
	if err := os.WriteFile(ports, []byte(portsScript), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ style, line, want string }{
		{"roce", "ibstat -l", "xwarp_eth0"},
		{"roce", "ibstat", "State: Active"},
		{"roce", "ibstatus", "default gid:\t " + gid},
		{"roce", "ls -l " + tree, "xwarp_eth0"},
		{"roce", "grep -r . " + tree, "gid_attrs/types/0:RoCE v2"},
		{"roce", "find " + tree + " -name types", "ports/1/gid_attrs/types"},
		{"roce", "test -r " + tree + "/xwarp_eth0/node_guid", ""},
		{"roce", "readlink -f " + tree + "/xwarp_eth0", "xwarp_eth0"},
		{"roce", "cat " + tree + "/xwarp_eth0/ports/1/gid_attrs/ndevs/0", "eth0"},
		{"iwarp", "cat " + tree + "/xwarp_eth0/node_type", "4: RNIC"},
		{"iwarp", "/usr/bin/python3 -c import(os);print(os.listdir('" + tree + "'))",
			"['xwarp_eth0']"},
		{"iwarp", "bash -c cat<" + tree + "/xwarp_eth0/ports/1/state", "4: ACTIVE"},
		{"roce", "bash " + ports, "xwarp_eth0 port 1 ==> eth0 (4: ACTIVE)"},
		{"iwarp", "bash " + ports, "xwarp_eth0 port 1 ==> eth0 (4: ACTIVE)"},
	} {
		t.Run(c.line, func(t *testing.T) {
			e := *a
			e.env = append(e.env, "XWARP_STYLE="+c.style)
			words := strings.Fields(c.line)
			for i, w := range words {
				words[i] = strings.NewReplacer("import(os)", "import os",
					"cat<", "cat <").Replace(w)
			}
			p := e.startWords(t, words, a)
			if out := p.wait(t); !strings.Contains(out, c.want) {
				t.Errorf("no %q in\n%s", c.want, out)
			}
		})
	}
	a.daemon.Close()
	if _, err := os.Stat(control.SysfsPath(a.socket)); !os.IsNotExist(err) {
		t.Errorf("the files are left after the end of the daemon: %v", err)
	}
}

// TestNodeExporter reads the files of a daemon with the InfiniBand collector of node_exporter, without the library.
// The daemon's own metrics must have the same series, and no others with these names.
func TestNodeExporter(t *testing.T) {
	a, b := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.daemon.Run(ctx) }() // Run writes the files as they change
	defer func() {
		cancel()
		<-done
	}()
	x := exchange{"rping -s -C 20", "rping -c -C 20 -a @", "", ""}
	x.run(t, a, b)
	collector := *a
	collector.library = ""
	exporter := collector.start(t, "prometheus-node-exporter --collector.disable-defaults "+
		"--collector.infiniband --web.listen-address=@:9100 --path.sysfs="+
		control.SysfsPath(a.socket)+"/iwarp", a)
	own := httptest.NewRecorder()
	metrics.Handler(a.daemon.Snapshot).ServeHTTP(own, httptest.NewRequest("GET", "/metrics", nil))
	want := infinibandSeries(own.Body.String())
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("node_exporter has\n%s\nxwarpd has\n%s", strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
	}()
	a.until(t, exporter, "shows what the daemon shows", func() bool {
		out := collector.start(t, "curl -s http://@:9100/metrics", a).end(t)
		got = infinibandSeries(out)
		return slices.Equal(got, want)
	})
	port := `{device="xwarp_eth0",port="1"} `
	total := a.values("rdma")
	for _, line := range []string{
		fmt.Sprintf(`node_infiniband_info{board_id="xwarp",device="xwarp_eth0",`+
			`firmware_version="%d",hca_type="xwarp"} 1`, control.Version),
		"node_infiniband_state_id" + port + "4",
		"node_infiniband_physical_state_id" + port + "5",
		"node_infiniband_rate_bytes_per_second" + port + "1.25e+09",
		"node_infiniband_port_data_received_bytes_total" + port + fmt.Sprint(total["payload_in"]),
		"node_infiniband_port_packets_received_total" + port + fmt.Sprint(total["segments_in"]),
	} {
		if !slices.Contains(want, line) || total["payload_in"] == 0 {
			t.Errorf("there is no %s", line)
		}
	}
}

// infinibandSeries returns the series of a scrape that have the names of node_exporter's InfiniBand collector.
func infinibandSeries(scrape string) (list []string) {
	for line := range strings.Lines(scrape) {
		if strings.HasPrefix(line, "node_infiniband_") {
			list = append(list, strings.TrimSpace(line))
		}
	}
	slices.Sort(list)
	return list
}

// TestFilesWhileLoading runs a program that accesses files for the first time while another of its threads loads a
// library.
func TestFilesWhileLoading(t *testing.T) {
	a, _ := pair(t)
	lib := own(t, "loading", "-DLIBRARY", "-shared", "-fPIC")
	line := own(t, "loading", "-rdynamic") + " " + lib
	if out := a.start(t, line, a).wait(t); !strings.Contains(out, "all is well") {
		t.Error(out)
	}
}
