package bench

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"xwarp/bench/endpoint"
)

func testCommand(t *testing.T, name string, args ...string) (*testFlags, *cobra.Command) {
	t.Helper()
	verb, mode, _ := strings.Cut(name, "_")
	f := &testFlags{spec: endpoint.Spec{Verb: endpoint.Verb(verb), Mode: endpoint.Mode(mode)}}
	c := &cobra.Command{Use: name}
	f.addFlags(c)
	if err := c.ParseFlags(args); err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return f, c
}

// The flags of perftest 4.5 that a script for Ethernet uses are taken by every test that has them there.
func TestFlagsOfPerftest(t *testing.T) {
	all := "-a -c=RC -d=mlx5_0 -D=1 -f=1 -F -i=1 -I=64 -l=1 -L=3 -m=1024 -n=5 -p=1 -R -s=2 -S=1 " +
		"-t=1 -T=0 -u=14 -V -W=x -x=3 -z " +
		"--recv_post_list=1 --out_json --out_json_file=x --cpu_util --dont_xchg_versions " +
		"--force-link=Ethernet --ipv6 --mr_per_qp --odp " +
		"--output=latency --use_old_post_send --perform_warm_up --pkey_index=1 --report_gbits " +
		"--retry_count=1 --tclass=1 --use_hugepages " +
		"--wait_destroy=1 --disable_pcie_relaxed --inline_recv=1 -X=1 -e -o=1 -r=512 -H -U -C"
	for _, name := range tests {
		args := strings.Fields(all)
		if strings.HasSuffix(name, "_bw") {
			args = append(args, strings.Fields("-b -N -q=1 -Q=1 -w=1 -y=1")...)
		}
		testCommand(t, name, args...)
	}
}

// A device that is a network interface is one, and has effect.
func TestInterfaceAsDevice(t *testing.T) {
	for _, tc := range []struct{ device, iface, said string }{
		{"lo", "lo", ""},
		{"mlx5_0", "", "without effect here: --ib-dev, --mtu"},
	} {
		args := []string{"-d", tc.device}
		if tc.said != "" {
			args = append(args, "-m", "1024")
		}
		f, c := testCommand(t, "write_bw", args...)
		var said bytes.Buffer
		c.SetErr(&said)
		f.nameIgnored(c)
		if f.device.Interface != tc.iface || !strings.Contains(said.String(), tc.said) ||
			(tc.said == "") != (said.Len() == 0) {
			t.Errorf("%s: interface %q, says %q", tc.device, f.device.Interface, said.String())
		}
	}
}

// A server's report is about the server's end.
func TestReportOfThisEnd(t *testing.T) {
	for _, server := range []bool{false, true} {
		f, c := testCommand(t, "write_bw", "-j")
		var out bytes.Buffer
		c.SetOut(&out)
		p := f.output(c)
		p.server = server
		p.printHeader(&endpoint.Report{ClientEnv: endpoint.Env{Interface: "client0"},
			ServerEnv: endpoint.Env{Interface: "server0"}})
		want := "client0"
		if server {
			want = "server0"
		}
		if got := p.out.TestInfo.Device; got != want {
			t.Errorf("server %v: the device is %s, want %s", server, got, want)
		}
	}
}
