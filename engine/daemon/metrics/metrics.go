// Package metrics shows a daemon's snapshots as Prometheus metrics. Nothing has a label for each connection:
// their counters are summed up for each device.
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

// Handler serves the metrics of what snapshot returns, which is called once per scrape.
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

// maxScrapes bounds the scrapes at a time, because each asks every worker. A client that reads the answer slowly keeps
// none of them.
const maxScrapes = 4

// page is an answer that is sent once it is complete.
type page struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (p *page) WriteHeader(status int)            { p.status = status }
func (p *page) Write(b []byte) (n int, err error) { return p.body.Write(b) }

// Collector is a prometheus.Collector.
type Collector struct{ snapshot func() control.Snapshot }

// Describe implements prometheus.Collector. It describes what an empty snapshot cannot show.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
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
		if e.Transfers != nil {
			o.counters(counters.Transfer, e.Transfers, e.Name)
		}
	}
	for _, u := range s.Users {
		uid := strconv.FormatUint(uint64(u.UID), 10)
		if u.Tenant != "" {
			uid = ""
		}
		for kind, n := range u.Used {
			o.gauge("xwarp_user_resources", float64(n), uid, u.Tenant, kind)
		}
		for kind, n := range u.Limit {
			o.gauge("xwarp_user_resource_limit", float64(n), uid, u.Tenant, kind)
		}
		for kind, n := range u.Refused {
			o.count("xwarp_user_refusals_total", uint64(n), uid, u.Tenant, kind)
		}
	}
	o.gauge("xwarp_sessions", float64(len(s.Sessions)))
	o.counters(counters.Daemon, s.Counters)
}

func (o output) device(d *control.DeviceState, s *control.Snapshot) {
	o.gauge("xwarp_device_info", 1, d.Name, d.Transport, d.Interface, d.XDPMode, d.Copy)
	o.gauge("xwarp_device_mtu_bytes", float64(d.MTU), d.Name)
	for i := range d.Workers {
		w := &d.Workers[i]
		queue := strconv.Itoa(w.Queue)
		o.counters(counters.Stack, w.Stack, d.Name, queue)
		o.counters(counters.Listen, w.Listen, d.Name, queue)
		o.counters(counters.Ring, w.Ring, d.Name, queue)
	}
	o.counters(counters.Contained, d.Contained, d.Name)
	for i := range d.Watches {
		o.counters(counters.Watch, d.Watches[i].Counters, d.Name, d.Watches[i].Name)
	}
	o.flag("xwarp_device_open", d.Error == "", d.Name)
	o.count("xwarp_device_reopens_total", d.Reopened, d.Name)
	if l := d.Link; l != nil {
		o.flag("xwarp_device_link_up", l.State == control.LinkUp, d.Name)
		o.gauge("xwarp_device_missing_addresses", float64(len(l.Missing)), d.Name)
		o.counters(counters.Link, l.Counters, d.Name)
	}
	if p := d.IPsec; p != nil {
		o.counters(counters.IPsec, p.Counters, d.Name)
		in, out := p.Count()
		o.gauge("xwarp_ipsec_sas", float64(in), d.Name, "in")
		o.gauge("xwarp_ipsec_sas", float64(out), d.Name, "out")
		o.gauge("xwarp_ipsec_waiting_peers", float64(len(p.Waiting)), d.Name)
	}
	if p := d.PortMapper; p != nil {
		o.counters(counters.PortMap, p.Counters, d.Name)
	}
	if d.Transport == "xdp" {
		o.flag("xwarp_device_follows_kernel", d.Health == "", d.Name)
	}
	for outcome, n := range d.Steering {
		o.count("xwarp_steering_frames_total", n, d.Name, outcome)
	}
	if t := d.Totals; t != nil {
		o.counters(counters.RDMA, t.RDMA, d.Name)
		o.counters(counters.MPA, t.MPA, d.Name)
		o.counters(counters.TCP, t.TCP, d.Name)
	}
	o.infiniband(d)
	o.objects(d, s)
}

// infiniband shows the device by the names of node_exporter's collector of InfiniBand, with the values that this
// collector reads from the files of xwarpd.
func (o output) infiniband(d *control.DeviceState) {
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
	if t := d.Totals; t != nil {
		for metric, c := range map[string]*counters.Counter{
			"data_received_bytes_total":    counters.PayloadIn,
			"data_transmitted_bytes_total": counters.PayloadOut,
			"packets_received_total":       counters.SegmentsIn,
			"packets_transmitted_total":    counters.SegmentsOut,
		} {
			o.count(prefix+"port_"+metric, c.Of(t.RDMA), port...)
		}
	}
}

// objects counts what programs have on a device.
func (o output) objects(d *control.DeviceState, s *control.Snapshot) {
	var memory, held, overruns uint64
	states := map[string]int{}
	mrs, cqs, qps := on(d, s.MRs), on(d, s.CQs), on(d, s.QPs)
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
		held += counters.HeldBytes.Of(q.MPA)
	}
	for kind, n := range map[string]int{"pd": len(on(d, s.PDs)), "mr": len(mrs),
		"mw": len(on(d, s.MWs)), "cq": len(cqs), "srq": len(on(d, s.SRQs)), "qp": len(qps),
		"listener": len(on(d, s.Listeners))} {
		o.gauge("xwarp_objects", float64(n), d.Name, kind)
	}
	for state, v := range states {
		o.gauge("xwarp_queue_pairs", float64(v), d.Name, state)
	}
	o.gauge("xwarp_registered_memory_bytes", float64(memory), d.Name)
	o.gauge("xwarp_overrun_completion_queues", float64(overruns), d.Name)
	o.gauge(counters.HeldBytes.Metric, float64(held), d.Name)
}

// on returns the objects that are on a device.
func on[T interface{ Place() string }](d *control.DeviceState, all []T) (list []T) {
	for _, v := range all {
		if v.Place() == d.Name {
			list = append(list, v)
		}
	}
	return list
}
