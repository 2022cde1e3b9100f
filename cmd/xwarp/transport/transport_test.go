package transport

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestFlags(t *testing.T) {
	for _, tc := range []struct {
		args      string
		transport string
		queues    []int
		wrong     string
	}{
		{"", "", nil, ""},
		{"--transport=daemon", Daemon, nil, ""},
		{"--queues=0-2,5", XDP, []int{0, 1, 2, 5}, ""},
		{"--queues=7 --transport=xdp", XDP, []int{7}, ""},
		{"--ring-mode=copy", XDP, nil, ""},
		{"--transport=carrier-pigeon", "", nil, "xdp, kernel or daemon"},
		{"--transport=kernel --interface=eth0", "", nil, "does not apply to --transport=kernel"},
		{"--transport=daemon --queues=1", "", nil, "--queues needs --transport=xdp"},
		{"--transport=kernel --ring-mode=copy", "", nil, "--ring-mode needs --transport=xdp"},
		{"--dscp=63", "", nil, ""},
		{"--dscp=64", "", nil, "need 0 to 63: the TOS byte or traffic class divided by 4"},
		{"--dscp=256", "", nil, "--dscp 256: need 0 to 63"},
		{"--dscp=-1", "", nil, "--dscp -1: need 0 to 63"},
		{"--queues=3-1", "", nil, "a range such as 0-3,6"},
		{"--queues=1,x", "", nil, `"x" is not a queue`},
		{"--queues=0-3,2", "", nil, "duplicate queue 2"},
	} {
		var f Flags
		set := pflag.NewFlagSet("test", pflag.ContinueOnError)
		f.Register(set)
		if err := set.Parse(strings.Fields(tc.args)); err != nil {
			t.Fatal(err)
		}
		switch err := f.Check(); {
		case tc.wrong != "":
			if err == nil || !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("%s: %v, want %q", tc.args, err, tc.wrong)
			}
		case err != nil, f.Transport != tc.transport, !slices.Equal(f.Queues, tc.queues):
			t.Errorf("%s: transport %q, queues %v, %v", tc.args, f.Transport, f.Queues, err)
		}
	}
}
