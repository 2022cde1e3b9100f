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

// The report of each end names the interface of that end.
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
