package bench

import (
	_ "embed"
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

// without are perftest's flags that are taken and without effect.
//
//go:embed ignored.txt
var without string

// registerIgnored adds the flags of without, and returns their names.
func registerIgnored(f *pflag.FlagSet) (names []string) {
	for line := range strings.Lines(without) {
		field := strings.Split(line, "|")
		if line[0] == '#' {
			continue
		}
		for i := range field {
			field[i] = strings.TrimSpace(field[i])
		}
		name, short, value, text := field[0], field[1], field[2],
			"taken and without effect: "+field[3]
		if value == "" {
			f.BoolP(name, short, false, text)
		} else {
			f.StringP(name, short, "", "`"+value+"`, "+text)
		}
		names = append(names, name)
	}
	return names
}

// nameIgnored says, once, which flags have no effect. A device that is a network interface is one.
func (t *testFlags) nameIgnored(cmd *cobra.Command) {
	var names []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(t.ignored, f.Name) {
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

// figure is the only figure that --output prints.
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
			errs = append(errs, fmt.Errorf("%d bytes: bandwidth %.2f is below --limit_bw %g",
				l.Size, rate, p.t.limitBW))
		}
		if l.Rate < p.t.limitRate {
			errs = append(errs, fmt.Errorf("%d bytes: %.6f million messages/s are below "+
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
	return errors.Join(plain.WriteJSON(f, &p.out), f.Close())
}
