package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/engine/testkit/card"
)

// With a NIC that supports n-tuple rules, Fix installs them. undo removes them, even if Fix was killed after any of its
// commands. A rule that the NIC refuses is named in the error.
func TestSteering(t *testing.T) {
	state := filepath.Join(t.TempDir(), "dir", "doctor.json")
	world(t, topo.Options{Queues: 4}, func(*topo.Net) error {
		nic := card.New("eth0", 4)
		nic.Contexts[1] = []uint32{0, 1} // another program's
		o := Options{Interface: "eth0", Queues: []int{3, 2}, Ports: []uint16{7174, 3260},
			Steer: SteerBoth, Only: "flow-steering", card: nic}
		look := func(status Status, what string) Line {
			t.Helper()
			lines, err := Look(o)
			if err != nil {
				t.Fatal(err)
			}
			l := find(t, lines, "flow-steering")
			if l.Status != status || l.What != what {
				t.Errorf("%s %q, want %s %q", l.Status, l.What, status, what)
			}
			return l
		}
		const missing = "connections of ports [7174 3260] may arrive on any of 4 queues, but only [2 3] are served"
		look(Warn, missing)
		for killed := range 24 {
			nic.Killed = killed // 0: not at all
			lines, err := Fix(o, state)
			nic.Killed = 0
			if err != nil {
				return err
			}
			if l := find(t, lines, "flow-steering"); killed == 0 && (!l.Fixed || l.Status != OK) {
				t.Errorf("Fix: %+v", l)
			}
			if killed == 0 {
				look(OK, "connections of ports [7174 3260] arrive on queues [2 3], other traffic on the other queues")
				all := o
				all.Only = ""
				if lines, err = Look(all); err != nil {
					return err
				}
				for _, c := range []string{"channels", "rss"} {
					if l := find(t, lines, c); l.Status != OK {
						t.Errorf("%+v", l)
					}
				}
				plain := Options{Interface: "eth0", Only: "flow-steering", card: nic}
				if lines, err = Look(plain); err != nil || lines[0].What !=
					"not requested; eth0 has 8 n-tuple rules" {
					t.Errorf("%+v, %v", lines, err)
				}
			}
			done, err := undo(state, Options{card: nic})
			for _, u := range done {
				if u.Error != "" {
					t.Errorf("killed after %d commands: %+v", killed, u)
				}
			}
			if err != nil || nic.On || len(nic.Contexts) != 1 || !slices.Equal(nic.Table[:4],
				[]uint32{0, 1, 2, 3}) {
				t.Fatalf("killed after %d commands: %v, %+v", killed, err, nic)
			}
			look(Warn, missing)
		}
		if _, err := os.Stat(state); !os.IsNotExist(err) {
			t.Errorf("the file is still there: %v", err)
		}
		nic.Refuse = func([]byte) unix.Errno { return unix.EINVAL }
		lines, err := Fix(o, state)
		if err != nil {
			return err
		}
		l := find(t, lines, "flow-steering")
		if want := "ethtool -N eth0 flow-type tcp4 dst-port 7174 context 2: invalid argument"; l.Error != want {
			t.Errorf("refused: %+v, want %s", l, want)
		}
		look(Warn, missing)
		return nil
	})
}

// A veth does not support rules, and the check reports that.
func TestSteeringOfVeth(t *testing.T) {
	state := filepath.Join(t.TempDir(), "doctor.json")
	world(t, topo.Options{Queues: 2}, func(*topo.Net) error {
		o := Options{Interface: "eth0", Queues: []int{1}, Ports: []uint16{7174}, Steer: SteerListen,
			Only: "flow-steering"}
		const why = "ethtool -n eth0: operation not supported"
		lines, err := Fix(o, state)
		if err != nil || lines[0].Status != Warn || lines[0].What !=
			"eth0 rejects n-tuple rules: "+why || !strings.HasSuffix(lines[0].Error, why) {
			t.Errorf("%+v, %v", lines, err)
		}
		o.Queues = []int{0, 1}
		if lines, err = Look(o); err != nil || lines[0].Status != OK {
			t.Errorf("all queues served: %+v, %v", lines, err)
		}
		o.Only = "flow"
		if _, err = Look(o); err == nil {
			t.Error("an unknown check ran")
		}
		return nil
	})
}
