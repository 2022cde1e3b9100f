package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"xwarp/engine/daemon/counters"
	"xwarp/engine/plain"
)

// descs are all metrics by name.
var descs = describe()

func describe() map[string]*prometheus.Desc {
	m := map[string]*prometheus.Desc{}
	add := func(name, help string, labels ...string) {
		if _, ok := m[name]; !ok {
			m[name] = prometheus.NewDesc(name, help, labels, nil)
		}
	}
	table := func(t counters.Table, labels ...string) {
		for _, c := range t {
			switch {
			case c.Metric == "":
			case c.Cause != "":
				all := append(labels[:len(labels):len(labels)], "cause")
				add(c.Metric, counters.Help[c.Metric], all...)
			default:
				add(c.Metric, c.Meaning, labels...)
			}
		}
	}
	for _, t := range []counters.Table{counters.Stack, counters.Listen, counters.Ring,
		counters.Live} {
		table(t, "device", "queue")
	}
	table(counters.Watch, "device", "what")
	for _, t := range []counters.Table{counters.Contained, counters.Link, counters.RDMA,
		counters.MPA,
		counters.TCP, {*counters.HeldOctets}} {
		table(t, "device")
	}
	add("xwarp_device_follows_kernel", "1 while the device knows the neighbours as the kernel "+
		"does; 0: what it knows may be old.", "device")
	add("xwarp_device_open", "1 while the device works; 0: it failed, or its interface is gone.",
		"device")
	add("xwarp_device_link_up", "1 while the interface is up and has a carrier.", "device")
	add("xwarp_device_reopens_total", "Times that the device was opened again, because its "+
		"interface had gone or it had failed.", "device")
	add("xwarp_device_missing_addresses", "Addresses of connections and listeners that the host "+
		"has no more.", "device")
	add("xwarp_steering_frames_total", "Frames that met the steering program, by what it did "+
		"with them.", "device", "outcome")
	add("xwarp_build_info", "1, with the version of the daemon.", "version")
	add("xwarp_uptime_seconds", "How long the daemon runs.")
	add("xwarp_device_info", "1, with how the device moves octets.", "device", "transport",
		"interface", "xdp_mode", "copy")
	add("xwarp_device_mtu_bytes", "Largest IP packet.", "device")
	add("xwarp_objects", "Objects of programs, by kind.", "device", "kind")
	add("xwarp_queue_pairs", "Queue pairs by state.", "device", "state")
	add("xwarp_registered_memory_bytes", "Octets of memory regions.", "device")
	add("xwarp_overrun_completion_queues", "Completion queues that lost completions.", "device")
	add("xwarp_export_connections", "Connections to an export.", "export")
	add("xwarp_export_rejected_connections_total", "Connections that an export rejected.", "export")
	add("xwarp_export_failed", "1 when the memory of an export cannot be accessed and it has to "+
		"be opened again; 0 else.", "export")
	add("xwarp_export_flushes_total", "Times that an export's file was flushed.", "export")
	table(counters.Transfer, "export")
	add("xwarp_user_resources", "What a local user has.", "uid", "resource")
	add("xwarp_user_resource_limit", "What a local user may have.", "uid", "resource")
	add("xwarp_user_refusals_total", "How often a limit was in a local user's way.", "uid",
		"resource")
	add("xwarp_sessions", "Programs connected to the daemon.")
	table(counters.Daemon)
	return m
}

// Names returns the names of all metrics.
func Names() []string {
	var names []string
	for n := range descs {
		names = append(names, n)
	}
	return names
}

// output sends metrics of descs.
type output struct{ ch chan<- prometheus.Metric }

func (o output) gauge(name string, v float64, labels ...string) {
	o.ch <- prometheus.MustNewConstMetric(descs[name], prometheus.GaugeValue, v, own(labels)...)
}

func (o output) count(name string, v uint64, labels ...string) {
	o.ch <- prometheus.MustNewConstMetric(descs[name], prometheus.CounterValue, float64(v),
		own(labels)...)
}

// own makes labels printable: one that is no UTF-8, which the name of an interface need not be, would end the daemon.
func own(labels []string) []string {
	list := make([]string, len(labels))
	for i, l := range labels {
		list[i] = plain.Line(l)
	}
	return list
}

// counters sends one table's.
func (o output) counters(table counters.Table, values counters.Values, labels ...string) {
	for i := range table {
		switch c := &table[i]; {
		case c.Metric == "":
		case c.Cause != "":
			o.count(c.Metric, c.Of(values), append(labels[:len(labels):len(labels)], c.Cause)...)
		default:
			o.count(c.Metric, c.Of(values), labels...)
		}
	}
}
