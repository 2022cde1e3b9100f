package bench

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"xwarp/bench/endpoint"
	"xwarp/engine/plain"
)

// Output is the JSON of a test with --json: keys of perftest, the version of the layout, and both ends. The doc tags
// document its keys.
type Output struct {
	Schema      int           `json:"schema" doc:"version of this layout, 1"`
	Command     string        `json:"command" doc:"\"bench write_bw\" and so on"`
	TestInfo    TestInfo      `json:"test_info" doc:"parameters of the test"`
	Results     []Line        `json:"results" doc:"results, one per message size"`
	Client      *endpoint.Env `json:"client" doc:"environment of the client"`
	Server      *endpoint.Env `json:"server" doc:"environment of the server"`
	Differences []string      `json:"differences" doc:"differences between the two ends"`
}

// TestInfo has the keys of perftest that apply to TCP.
type TestInfo struct {
	Test          string `json:"test" doc:"WRITE_BW and so on"`
	Device        string `json:"Device" doc:"network interface of this end"`
	Transport     string `json:"Transport_type" doc:"transport of this end: \"xdp\" or \"kernel\""`
	QPs           int    `json:"Number_of_qps" doc:"number of connections"`
	Depth         int    `json:"TX_depth" doc:"outstanding messages per connection"`
	Moderation    int    `json:"CQ_Moderation" doc:"messages per completion"`
	MTU           int    `json:"Mtu" doc:"MTU of the interface of this end"`
	Bidirectional bool   `json:"Bidirectional" doc:"both directions at once"`
	Markers       bool   `json:"Markers" doc:"MPA markers requested"`
	CRC           bool   `json:"CRC" doc:"CRC32C requested"`
}

// Line is the result of one message size: bandwidth or latency.
type Line struct {
	Size       int     `json:"MsgSize" doc:"message size in bytes"`
	Iterations uint64  `json:"n_iterations" doc:"number of messages"`
	Peak       float64 `json:"BW_peak,omitempty" doc:"bandwidth: MiB/s in the best 5 ms"`
	Average    float64 `json:"BW_average,omitempty" doc:"bandwidth: MiB/s"`
	Gbps       float64 `json:"BW_average_gbits,omitempty" doc:"bandwidth: Gbit/s"`
	Rate       float64 `json:"MsgRate,omitempty" doc:"bandwidth: millions of messages per second"`
	Min        float64 `json:"t_min,omitempty" doc:"latency: minimum in microseconds; one way, except for Reads"`
	Max        float64 `json:"t_max,omitempty" doc:"latency: maximum in microseconds"`
	Typical    float64 `json:"t_typical,omitempty" doc:"latency: median in microseconds"`
	Mean       float64 `json:"t_avg,omitempty" doc:"latency: mean in microseconds"`
	Stdev      float64 `json:"t_stdev,omitempty" doc:"latency: standard deviation in microseconds"`
	P99        float64 `json:"t_99p,omitempty" doc:"latency: 99th percentile in microseconds"`
	Mallocs    uint64  `json:"allocations" doc:"Go allocations in both processes during the measurement"`
	GCs        uint32  `json:"gc_cycles" doc:"garbage collections in both processes during the measurement"`
	P999       float64 `json:"t_999p,omitempty" doc:"latency: 99.9th percentile in microseconds"`
}

const mebi = 1 << 20

// line returns the figures of one message size. Both directions count, as in perftest.
func line(rep *endpoint.Report) Line {
	r := rep.Main()
	l := Line{Size: rep.Spec.Size, Iterations: r.Messages, Mallocs: r.Mallocs, GCs: r.GCs}
	if s := rep.Server; s != nil {
		l.Mallocs, l.GCs = rep.Client.Mallocs+s.Mallocs, rep.Client.GCs+s.GCs
	}
	if t := r.Latency; t != nil {
		l.Min, l.Max, l.Typical, l.Mean, l.Stdev, l.P99, l.P999 = t.Min, t.Max, t.P50, t.Mean,
			t.Stdev, t.P99, t.P999
		return l
	}
	rate, peak, msgs := r.Rate(), r.Peak, r.MessageRate()
	if s := rep.Server; rep.Spec.Bidirectional && s != nil {
		rate, peak, msgs = rate+s.Rate(), peak+s.Peak, msgs+s.MessageRate()
	}
	l.Peak, l.Average, l.Gbps, l.Rate = peak/mebi, rate/mebi, rate*8e-9, msgs*1e-6
	return l
}

const rule = "---------------------------------------------------------------------------------------"

// printer prints results as they arrive, or collects them for one JSON object.
type printer struct {
	cmd    *cobra.Command
	t      *testFlags
	out    Output
	some   bool
	server bool // this end is the server
}

func (t *testFlags) output(cmd *cobra.Command) *printer {
	return &printer{cmd: cmd, t: t, out: Output{Schema: endpoint.Schema, Command: "bench " +
		string(t.spec.Verb) + "_" + string(t.spec.Mode), Results: []Line{},
		Differences: []string{}}}
}

func (p *printer) add(rep *endpoint.Report) {
	if !p.some {
		p.some = true
		p.printHeader(rep)
	}
	l := line(rep)
	p.out.Results = append(p.out.Results, l)
	if p.t.json {
		return
	}
	w := p.cmd.OutOrStdout()
	if rep.Spec.Mode == endpoint.Latency {
		fmt.Fprintf(w, " %-7d %-10d     %-7.2f        %-7.2f      %-7.2f            %-7.2f       "+
			"  %-7.2f         %-7.2f                %-7.2f\n",
			l.Size, l.Iterations, l.Min, l.Max, l.Typical, l.Mean, l.Stdev, l.P99, l.P999)
		return
	}
	fmt.Fprintf(w, " %-7d    %-10d     %-7.2f             %-7.2f              %-7.3f             "+
		"%-7.6f\n",
		l.Size, l.Iterations, l.Peak, l.Average, l.Gbps, l.Rate)
}

// printHeader prints the header of perftest, and the differences between the two ends.
func (p *printer) printHeader(rep *endpoint.Report) {
	s := &rep.Spec
	p.out.Client, p.out.Server, p.out.Differences = &rep.ClientEnv, &rep.ServerEnv,
		append([]string{}, rep.Differences...)
	here := &rep.ClientEnv // this end
	if p.server {
		here = &rep.ServerEnv
	}
	p.out.TestInfo = TestInfo{
		Test:   strings.ToUpper(string(s.Verb)) + "_" + strings.ToUpper(string(s.Mode)),
		Device: here.Interface, Transport: here.Transport, QPs: s.Conns,
		Depth: s.Depth, Moderation: s.Moderation, MTU: here.MTU, Bidirectional: s.Bidirectional,
		Markers: !s.NoMarkers, CRC: !s.NoCRC,
	}
	for _, d := range rep.Differences {
		plain.Fprintf(p.cmd.ErrOrStderr(),
			"%s: the two ends differ: %s; using the client's value\n", p.cmd.CommandPath(), d)
	}
	if p.t.json {
		return
	}
	i, w := &p.out.TestInfo, p.cmd.OutOrStdout()
	fmt.Fprintf(w, "%s\n                    %s Test\n", rule, title(s.Verb, s.Mode))
	plain.Fprintf(w, " Transport       : client %-8s server %s\n", rep.ClientEnv.Transport,
		rep.ServerEnv.Transport)
	plain.Fprintf(w, " Interface       : client %-8s server %s\n", rep.ClientEnv.Interface,
		rep.ServerEnv.Interface)
	fmt.Fprintf(w, " Number of qps   : %-8d        TX depth      : %d\n", i.QPs, i.Depth)
	fmt.Fprintf(w, " CQ Moderation   : %-8d        Mtu           : %d\n", i.Moderation, i.MTU)
	fmt.Fprintf(w, " Markers         : %-8s        CRC           : %s\n%s\n",
		plain.OnOff(i.Markers), plain.OnOff(i.CRC), rule)
	if s.Mode == endpoint.Latency {
		fmt.Fprintln(w, " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    "+
			"t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]")
		return
	}
	fmt.Fprintln(w, " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]  BW "+
		"average[Gb/sec]  MsgRate[Mpps]")
}

func (p *printer) printSummary() error {
	if p.t.json {
		return plain.WriteJSON(p.cmd.OutOrStdout(), &p.out)
	}
	var mallocs, gcs, messages uint64
	for i := range p.out.Results {
		l := &p.out.Results[i]
		mallocs, gcs, messages = mallocs+l.Mallocs, gcs+uint64(l.GCs), messages+l.Iterations
	}
	_, err := fmt.Fprintf(p.cmd.OutOrStdout(), "%s\n Both ends: %s and %s, %s\n", rule,
		plain.Count(mallocs, "allocation"), plain.Count(gcs, "garbage collection"),
		plain.Count(messages, "message"))
	return err
}
