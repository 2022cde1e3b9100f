package metrics

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"xwarp/engine/daemon/counters"
	"xwarp/engine/plain"
)

// others describes the metrics that are not in a table of package counters: name, labels and help text.
//
//go:embed metrics.txt
var others string

// descs has the descriptions of all metrics by name.
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
	for _, t := range []counters.Table{counters.Stack, counters.Listen, counters.Ring} {
		table(t, "device", "queue")
	}
	table(counters.Watch, "device", "what")
	for _, t := range []counters.Table{counters.Contained, counters.Link, counters.IPsec,
		counters.PortMap, counters.RDMA, counters.MPA, counters.TCP, {*counters.HeldBytes}} {
		table(t, "device")
	}
	table(counters.Transfer, "export")
	table(counters.Daemon)
	for line := range strings.Lines(others) {
		if f := strings.Split(line, "|"); len(f) == 3 && line[0] != '#' {
			add(strings.TrimSpace(f[0]), strings.TrimSpace(f[2]), strings.Fields(f[1])...)
		}
	}
	return m
}

// output sends metrics that descs describes.
type output struct{ ch chan<- prometheus.Metric }

func (o output) gauge(name string, v float64, labels ...string) {
	o.send(prometheus.GaugeValue, name, v, labels)
}

func (o output) flag(name string, set bool, labels ...string) {
	v := 0.0
	if set {
		v = 1
	}
	o.gauge(name, v, labels...)
}

func (o output) count(name string, v uint64, labels ...string) {
	o.send(prometheus.CounterValue, name, float64(v), labels)
}

// send sends one value. It replaces unprintable characters of labels: the name of an interface may be invalid UTF-8,
// and an invalid label would make MustNewConstMetric panic.
func (o output) send(kind prometheus.ValueType, name string, v float64, labels []string) {
	labels = slices.Clone(labels)
	for i, l := range labels {
		labels[i] = plain.Line(l)
	}
	o.ch <- prometheus.MustNewConstMetric(descs[name], kind, v, labels...)
}

// counters sends the metrics of a table of counters.
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
