package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

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
	table := func(t []counter, labels ...string) {
		for _, c := range t {
			switch {
			case c.name == "":
			case c.cause != "":
				add(c.name, c.help, append(labels[:len(labels):len(labels)], "cause")...)
			default:
				add(c.name, c.help, labels...)
			}
		}
	}
	table(stackCounters, "device", "queue")
	table(ringCounters, "device", "queue")
	table(watchCounters, "device", "what")
	table(containedCounters, "device")
	add("xwarp_device_follows_kernel", "1 while the device knows the neighbours as the kernel "+
		"does; 0: what it knows may be old.", "device")
	for _, p := range parts {
		table(p.table, "device")
	}
	table(connGauges, "device")
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
	table(transferCounters, "export")
	add("xwarp_user_resources", "What a local user has.", "uid", "resource")
	add("xwarp_user_resource_limit", "What a local user may have.", "uid", "resource")
	add("xwarp_user_refusals_total", "How often a limit was in a local user's way.", "uid",
		"resource")
	add("xwarp_sessions", "Programs connected to the daemon.")
	add("xwarp_sessions_ended_total", "Programs that were connected and are gone.")
	add("xwarp_sessions_refused_total", "Programs that were refused.")
	add("xwarp_daemon_panics_total", "Defects of xwarpd outside of its workers, each of which "+
		"ended what was being served.")
	add("xwarp_sessions_held_up_total", "Programs that were dropped because the close of a "+
		"descriptor that they passed blocked.")
	add("xwarp_doorbell_rests_total", "Rests that programs had to take which rang their doorbell "+
		"often with nothing posted.")
	add("xwarp_peers_refused_connections_total",
		"Connections that were more than their peer or its network may have.")
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
func (o output) counters(table []counter, values map[string]uint64, labels ...string) {
	for _, c := range table {
		switch {
		case c.name == "":
		case c.cause != "":
			o.count(c.name, values[c.key], append(labels[:len(labels):len(labels)], c.cause)...)
		default:
			o.count(c.name, values[c.key], labels...)
		}
	}
}
