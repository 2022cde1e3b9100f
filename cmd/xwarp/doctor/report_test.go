package doctor

import (
	"os"
	"testing"

	"xwarp/bench/topo"
	"xwarp/engine/host/ethtool"
)

// TestAnonymous: names and addresses are removed from lines. What only looks like an address stays.
func TestAnonymous(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{
		Lines: []Line{{
			What: "on " + host + ", 127.0.0.1:7174 and ::1 are taken, not my" + host +
				" with 6.18.3 at 0000:01:00.0 since 12:30:05",
			Remedy: "ip neigh del 192.0.2.2 lladdr 02:00:5E:00:00:01",
			Error:  "[192.0.2.22]: no SA for 198.51.100.0/24 with [2001:db8::1]:7174: server.example.",
		}},
		Measured: []Measured{{Error: "192.0.2.2:7174: refused"}},
	}
	if err := r.Anonymous("192.0.2.2", "server.example"); err != nil {
		t.Fatal(err)
	}
	l := r.Lines[0]
	for _, c := range []struct{ got, want string }{
		{l.What, "on HOST, ADDRESS:7174 and ADDRESS are taken, not my" + host +
			" with 6.18.3 at 0000:01:00.0 since 12:30:05"},
		{l.Remedy, "ip neigh del PEER lladdr MAC"},
		{l.Error, "[ADDRESS]: no SA for ADDRESS/24 with [ADDRESS]:7174: PEER."},
		{r.Measured[0].Error, "PEER:7174: refused"},
	} {
		if c.got != c.want {
			t.Errorf("anonymous: %q, want %q", c.got, c.want)
		}
	}
}

// A report has the data of ethtool -i and -k for the interface.
func TestReport(t *testing.T) {
	world(t, topo.Options{OffloadsA: topo.NoOffloads}, func(*topo.Net) error {
		r, err := NewReport("eth0", []Line{{Check: "x"}})
		if err != nil {
			return err
		}
		n := r.NIC
		if n.Driver != "veth" || n.Kind != "veth" || n.MTU != 1500 || n.RxQueues != 1 ||
			r.Kernel == "" || len(r.Lines) != 1 || len(n.Offloads) == 0 {
			t.Errorf("%+v", r)
		}
		f, err := ethtool.Features("eth0")
		if err != nil {
			return err
		}
		for _, o := range n.Offloads {
			name, fixed := o, o[0] == '*'
			if fixed {
				name = o[1:]
			}
			if !f[name].On || f[name].Fixed != fixed {
				t.Errorf("%q is %+v", o, f[name])
			}
		}
		return nil
	})
}
