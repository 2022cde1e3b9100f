// Package metrics shows the snapshots of a daemon as Prometheus metrics. No metric has a label that names a connection:
// the counters of all connections of a device are added up.
package metrics

import (
	"bytes"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
)

// Handler serves the metrics of a daemon. It calls snapshot once per scrape.
func Handler(snapshot func() control.Snapshot) http.Handler {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(&Collector{snapshot})
	h := promhttp.HandlerFor(r, promhttp.HandlerOpts{})
	turns := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turns <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		answer := page{ResponseWriter: w, status: http.StatusOK}
		func() {
			defer func() { <-turns }()
			h.ServeHTTP(&answer, r)
		}()
		w.WriteHeader(answer.status)
		w.Write(answer.body.Bytes())
	})
}

// maxScrapes is the maximum number of scrapes that take a snapshot at the same time, because each costs time of every
// worker. Others wait. A scrape whose client reads the answer slowly does not count any more.
const maxScrapes = 4

// page keeps an answer until it is complete. The client then gets it from memory.
type page struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (p *page) WriteHeader(status int)            { p.status = status }
func (p *page) Write(b []byte) (n int, err error) { return p.body.Write(b) }

// Collector is a prometheus.Collector that makes metrics from snapshots of a daemon.
type Collector struct{ snapshot func() control.Snapshot }

// Describe implements prometheus.Collector. It sends the descriptions of all metrics, also of those without a value in
// the current snapshot.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It takes one snapshot and sends its metrics.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.snapshot()
	o := output{ch}
	o.gauge("xwarp_build_info", 1, s.Version)
	o.gauge("xwarp_uptime_seconds", s.Uptime)
	for i := range s.Devices {
		o.device(&s.Devices[i], &s)
	}
	for i := range s.Exports {
		e := &s.Exports[i]
		o.gauge("xwarp_export_connections", float64(e.Connections), e.Name)
		o.count("xwarp_export_rejected_connections_total", e.Rejected, e.Name)
		o.count("xwarp_export_flushes_total", e.Flushes, e.Name)
		o.flag("xwarp_export_failed", e.Error != "", e.Name)
	}
	for i := range s.Statistics {
		o.group(&s.Statistics[i])
	}
	for _, u := range s.Users {
		uid := strconv.FormatUint(uint64(u.UID), 10)
		if u.Tenant != "" {
			uid = ""
		}
		o.gauge("xwarp_user_resources", float64(u.Used), uid, u.Tenant, u.Resource)
		o.gauge("xwarp_user_resource_limit", float64(u.Limit), uid, u.Tenant, u.Resource)
		o.count("xwarp_user_refusals_total", uint64(u.Refused), uid, u.Tenant, u.Resource)
	}
	o.gauge("xwarp_sessions", float64(len(s.Sessions)))
	o.counters(counters.Daemon, s.Counters)
}

// group sends the metrics of a group of counters.
func (o output) group(g *control.Statistic) {
	labels := []string{g.Device}
	switch {
	case g.Export != "":
		labels[0] = g.Export
	case g.Queue != nil:
		labels = append(labels, strconv.Itoa(*g.Queue))
	case g.What != "":
		labels = append(labels, g.What)
	}
	if g.Part == "steering" {
		for outcome, n := range g.Counters {
			o.count("xwarp_steering_frames_total", n, g.Device, outcome)
		}
		return
	}
	o.counters(counters.ByPart(g.Part), g.Counters, labels...)
}

func (o output) device(d *control.DeviceState, s *control.Snapshot) {
	o.gauge("xwarp_device_info", 1, d.Name, d.DeviceMode.Name, d.Interface, d.XDPMode, d.Copy)
	o.gauge("xwarp_device_mtu_bytes", float64(d.MTU), d.Name)
	o.flag("xwarp_device_open", d.Error == "", d.Name)
	o.count("xwarp_device_reopens_total", d.Reopened, d.Name)
	if d.Link != "" {
		o.flag("xwarp_device_link_up", d.Link == control.LinkUp, d.Name)
		o.gauge("xwarp_device_missing_addresses", float64(len(d.Missing)), d.Name)
	}
	if p := d.IPsec; p != nil {
		o.gauge("xwarp_ipsec_sas", float64(p.In), d.Name, "in")
		o.gauge("xwarp_ipsec_sas", float64(p.Out), d.Name, "out")
		o.gauge("xwarp_ipsec_waiting_peers", float64(len(p.Waiting)), d.Name)
	}
	if d.DeviceMode.Name == "xdp" {
		o.flag("xwarp_device_follows_kernel", d.Health == "", d.Name)
	}
	o.infiniband(d, s.Statistics.Values(d.Name, "rdma"))
	o.objects(d, s)
}

// infiniband sends the metrics of a device under the names that node_exporter gives to InfiniBand devices. The values
// are those that node_exporter would read from the files of xwarpd.
func (o output) infiniband(d *control.DeviceState, rdma counters.Values) {
	const (
		active, down     = 4, 1
		linkUp, disabled = 5, 3
		rate             = 10e9 / 8
		prefix           = "node_infiniband_"
	)
	name := "xwarp_" + d.Name
	port := []string{name, "1"}
	state, physical := active, linkUp
	if d.Error != "" {
		state, physical = down, disabled
	}
	o.gauge(prefix+"info", 1, name, "xwarp", strconv.Itoa(control.Version), "xwarp")
	o.gauge(prefix+"state_id", float64(state), port...)
	o.gauge(prefix+"physical_state_id", float64(physical), port...)
	o.gauge(prefix+"rate_bytes_per_second", rate, port...)
	if rdma != nil {
		for metric, c := range map[string]*counters.Counter{
			"data_received_bytes_total":    counters.PayloadIn,
			"data_transmitted_bytes_total": counters.PayloadOut,
			"packets_received_total":       counters.SegmentsIn,
			"packets_transmitted_total":    counters.SegmentsOut,
		} {
			o.count(prefix+"port_"+metric, c.Of(rdma), port...)
		}
	}
}

// objects sends the numbers and the memory of the objects on a device. Of exports it counts the queue pairs only.
func (o output) objects(d *control.DeviceState, s *control.Snapshot) {
	var memory, held, overruns uint64
	states := map[string]int{}
	mrs, cqs := control.On(d.Name, s.MRs), control.On(d.Name, s.CQs)
	qps := control.On(d.Name, s.QPs)
	for _, m := range mrs {
		memory += m.Length
	}
	for _, q := range cqs {
		if q.Overrun {
			overruns++
		}
	}
	for _, q := range qps {
		states[q.State]++
		held += q.Held
	}
	for kind, n := range map[string]int{"pd": len(control.On(d.Name, s.PDs)), "mr": len(mrs),
		"mw": len(control.On(d.Name, s.MWs)), "cq": len(cqs), "qp": len(qps),
		"srq": len(control.On(d.Name, s.SRQs)), "listener": len(control.On(d.Name, s.Listeners))} {
		o.gauge("xwarp_objects", float64(n), d.Name, kind)
	}
	for state, v := range states {
		o.gauge("xwarp_queue_pairs", float64(v), d.Name, state)
	}
	o.gauge("xwarp_registered_memory_bytes", float64(memory), d.Name)
	o.gauge("xwarp_overrun_completion_queues", float64(overruns), d.Name)
	o.gauge(counters.HeldBytes.Metric, float64(held), d.Name)
}
