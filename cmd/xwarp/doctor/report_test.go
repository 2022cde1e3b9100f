package doctor

import (
	"os"
	"testing"

	"xwarp/bench/topo"
	"xwarp/engine/host/ethtool"
)

// TestAnonymous: names and addresses of the host are removed from lines.
func TestAnonymous(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{
		Lines: []Line{{
			What: "on " + host + ", 127.0.0.1:7174 and ::1 are taken, not 127.0.0.11 or my" +
				host,
			Remedy: "ip neigh del 192.0.2.2 lladdr 02:00:5E:00:00:01",
			Error:  "[192.0.2.22]: refused by server.example.",
		}},
		Measured: []Measured{{Error: "192.0.2.2:7174: refused"}},
	}
	world(t, topo.Options{}, func(w *topo.Net) error {
		lo, err := w.A.Netlink().LinkByName("lo")
		if err != nil {
			return err
		}
		if err := w.A.Netlink().LinkSetUp(lo); err != nil { // which gives it its addresses
			return err
		}
		return r.Anonymous("192.0.2.2", "server.example")
	})
	l := r.Lines[0]
	for _, c := range []struct{ got, want string }{
		{l.What, "on HOST, ADDRESS:7174 and ADDRESS are taken, not 127.0.0.11 or my" + host},
		{l.Remedy, "ip neigh del PEER lladdr MAC"},
		{l.Error, "[192.0.2.22]: refused by PEER."},
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
