package doctor

import (
	"errors"
	"strings"
	"testing"

	"xwarp/bench/topo"
	"xwarp/engine/xdp"
)

// received returns the number of frames that host B received from the link.
func received(t *testing.T, w *topo.Net) uint64 {
	t.Helper()
	nic, err := w.B.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	return nic.Attrs().Statistics.RxPackets
}

// TestMeasure sends with each transmit mode and checks the peer's counters.
func TestMeasure(t *testing.T) {
	world(t, topo.Options{OffloadsA: topo.NoOffloads}, func(w *topo.Net) error {
		e, done, err := newEnv(Options{Interface: "eth0", Measure: true})
		if err != nil {
			return err
		}
		defer done()
		before := received(t, w)
		ways := e.measureTransmit()
		sent := 0.0
		for _, x := range ways {
			if x.err != nil || x.rate <= 0 {
				t.Errorf("%s: %v, %v frames/s", x.name, x.err, x.rate)
			}
			sent += x.rate * transmitTurn.Seconds() // at least the frames of each mode's best turn
		}
		if got := float64(received(t, w) - before); got < sent/2 {
			t.Errorf("%.0f frames arrived, %.0f were sent in the best turns", got, sent)
		}
		f := compareModes(ways, xdp.TransmitXDP)
		if !strings.Contains(f.what, "Gbit/s in packets of 1500 bytes") || f.status == Fail {
			t.Errorf("%+v", f)
		}
		return nil
	})
}

// TestMeasureBesideDevice: while an xwarp device uses the queues, doctor does not measure and advises no change.
func TestMeasureBesideDevice(t *testing.T) {
	world(t, topo.Options{}, func(*topo.Net) error {
		d, err := xdp.Open(xdp.Config{Interface: "eth0"})
		if err != nil {
			return err
		}
		defer d.Close()
		lines, err := Look(Options{Interface: "eth0", Measure: true, Only: "transmit"})
		if err != nil {
			return err
		}
		if l := lines[0]; l.Status != Warn || !strings.Contains(l.What, "not measured") ||
			!strings.Contains(l.Remedy, "systemctl stop xwarpd") {
			t.Errorf("%+v", l)
		}
		return nil
	})
}

// TestCompareWays: modes are compared by bytes per second, not by packets per second.
func TestCompareWays(t *testing.T) {
	list := func() []*transmitMode {
		return []*transmitMode{{name: xdp.TransmitXDP, packet: 9000, rate: 100},
			{name: xdp.TransmitGSO, packet: 3346, rate: 500}}
	}
	if f := compareModes(list(), xdp.TransmitGSO); f.status != OK {
		t.Errorf("auto takes the fastest: %+v", f)
	}
	f := compareModes(list(), xdp.TransmitXDP)
	if f.status != Warn || !strings.Contains(f.remedy, `"packet-gso"`) {
		t.Errorf("auto takes the slowest: %+v", f)
	}
	short := list()
	short[1].rate = 250
	if f := compareModes(short, xdp.TransmitXDP); f.status != OK {
		t.Errorf("auto takes fewer and longer packets: %+v", f)
	}
	near := list()
	near[1].packet, near[1].rate = 9000, 110
	if f := compareModes(near, xdp.TransmitXDP); f.status != OK {
		t.Errorf("a tenth is no reason: %+v", f)
	}
	none := []*transmitMode{{name: xdp.TransmitXDP, err: errors.New("queue 0 is busy")}}
	if f := compareModes(none, xdp.TransmitXDP); f.status != Warn ||
		!strings.Contains(f.what, "queue 0 is busy") {
		t.Errorf("none: %+v", f)
	}
}
