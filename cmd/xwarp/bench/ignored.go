package bench

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"xwarp/cmd/xwarp/transport"
	"xwarp/engine/plain"
)

// without are perftest's flags that are about what TCP and this engine do not have. They are taken, so that
// scripts run, and named once.
var without = []struct {
	name, short, value, what string
}{
	{"ib-dev", "d", "DEV",
		"the RDMA device; the name of a network interface counts as --interface"},
	{"ib-port", "i", "PORT", "port of the device"},
	{"gid-index", "x", "N", "there are no GIDs"},
	{"mtu", "m", "OCTETS", "the interface's counts"},
	{"inline_size", "I", "OCTETS", "the engine chooses"},
	{"inline_recv", "", "OCTETS", "the engine chooses"},
	{"rx-depth", "r", "N", "receives are posted ahead by themselves"},
	{"post_list", "l", "N", "work requests are posted one by one"},
	{"recv_post_list", "", "N", "work requests are posted one by one"},
	{"tos", "T", "TOS", "packets have none"},
	{"tclass", "", "CLASS", "packets have none"},
	{"sl", "S", "SL", "there are no service levels"},
	{"hop_limit", "L", "N", "the engine's counts"},
	{"qp-timeout", "u", "N", "TCP has timers of its own"},
	{"retry_count", "", "N", "TCP has timers of its own"},
	{"pkey_index", "", "N", "there are no partitions"},
	{"outs", "o", "N", "--tx-depth says it, up to 16"},
	{"vector", "X", "N", "workers poll"},
	{"events", "e", "", "see --sleep"},
	{"com_rdma_cm", "z", "", "connections are always made so"},
	{"force-link", "", "TYPE", "it is Ethernet"},
	{"ipv6", "", "", "the server's address says it"},
	{"dont_xchg_versions", "", "", "they are always compared"},
	{"mr_per_qp", "", "", "each connection has its region"},
	{"odp", "", "", "memory is registered"},
	{"use_hugepages", "", "", "memory of the tests has small pages"},
	{"use_old_post_send", "", "", "there is one way to post"},
	{"perform_warm_up", "", "", "see --margin"},
	{"wait_destroy", "", "SECONDS", "everything is given back at once"},
	{"disable_pcie_relaxed", "", "", "there is no such device"},
	{"cpu_util", "", "", "processors that spin are always busy"},
	{"report-counters", "W", "LIST", "see xwarp statistic"},
	{"noPeak", "N", "", "the peak costs nothing"},
	{"report-histogram", "H", "", "the summary is what is kept"},
	{"report-unsorted", "U", "", "the summary is what is kept"},
	{"report-cycles", "C", "", "times are in microseconds"},
}

// registerIgnored adds the flags of without.
func registerIgnored(f *pflag.FlagSet) {
	for _, w := range without {
		text := "taken and without effect: " + w.what
		if w.value == "" {
			f.BoolP(w.name, w.short, false, text)
			continue
		}
		f.StringP(w.name, w.short, "", "`"+w.value+"`, "+text)
	}
}

// nameIgnored says, once, which flags have no effect. A device that is a network interface is one.
func (t *testFlags) nameIgnored(cmd *cobra.Command) {
	var names []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.ContainsFunc(without, func(w struct{ name, short, value, what string }) bool {
			return w.name == f.Name
		}) {
			return
		}
		if f.Name == "ib-dev" && t.device.Transport != transport.Kernel {
			if _, err := net.InterfaceByName(f.Value.String()); err == nil {
				if t.device.Interface == "" {
					t.device.Interface = f.Value.String()
				}
				return
			}
		}
		names = append(names, "--"+f.Name)
	})
	slices.Sort(names)
	if len(names) > 0 {
		plain.Fprintf(cmd.ErrOrStderr(), "%s: without effect here: %s (see --help)\n",
			cmd.CommandPath(), strings.Join(names, ", "))
	}
}

// checkMeaning refuses values of perftest's flags that would measure something else.
func (t *testFlags) checkMeaning() error {
	switch {
	case t.kind != "RC":
		return fmt.Errorf("--connection is %q, but iWARP has RC alone", t.kind)
	case t.margin < 0:
		return fmt.Errorf("--margin %d is below 0", t.margin)
	case t.only != "" && t.only != "bandwidth" && t.only != "message_rate" && t.only != "latency":
		return fmt.Errorf("--output is %q, but it is bandwidth, message_rate or latency", t.only)
	case t.only != "" && (t.only == "latency") != (t.spec.Mode == "lat"):
		return fmt.Errorf("--output=%s is not of this test", t.only)
	case t.fileSet && !t.outJSON:
		return errors.New("--out_json_file is for --out_json")
	}
	return nil
}

// figure is what --output prints alone.
func (t *testFlags) figure(l *Line) float64 {
	switch {
	case t.only == "latency":
		return l.Mean
	case t.only == "message_rate":
		return l.Rate
	case t.gbits:
		return l.Gbps
	}
	return l.Average
}

// limits compares with --limit_bw, in the unit of the report, and --limit_msgrate.
func (p *printer) limits() error {
	var errs []error
	for i := range p.out.Results {
		l := &p.out.Results[i]
		rate := l.Average
		if p.t.gbits {
			rate = l.Gbps
		}
		if rate < p.t.limitBW {
			errs = append(errs, fmt.Errorf("%d octets: bandwidth %.2f is below --limit_bw %g",
				l.Size, rate, p.t.limitBW))
		}
		if l.Rate < p.t.limitRate {
			errs = append(errs, fmt.Errorf("%d octets: %.6f million messages/s are below "+
				"--limit_msgrate %g", l.Size, l.Rate, p.t.limitRate))
		}
	}
	return errors.Join(errs...)
}

// writeFile writes the object of --out_json.
func (p *printer) writeFile() error {
	f, err := os.Create(p.t.outFile)
	if err != nil {
		return err
	}
	return errors.Join(p.encode(f), f.Close())
}
