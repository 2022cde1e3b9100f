package transport

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// TestUnservedQueueIsNamed: if a frame arrives on a queue that --queues omits, Watch names the queue and says that
// --queues needs it. A veth has several receive queues in native mode only.
func TestUnservedQueueIsNamed(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{Queues: 2, OffloadsA: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	defer tn.Close()
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	var d *xdp.Device
	if err := tn.B.Do(func() (err error) {
		d, err = xdp.Open(xdp.Config{Interface: "eth0", Queues: []int{0},
			Transmit: xdp.TransmitXDP})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Listen(at, verbs.ListenConfig{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	said := make(chan string, 100)
	go Watch(ctx, d, func(text string) { said <- text })
	for ctx.Err() == nil { // a connection arrives on a random queue
		tn.A.Do(func() error {
			c, err := net.DialTimeout("tcp", at.String(), 100*time.Millisecond)
			if err == nil {
				c.Close()
			}
			return err
		})
		select {
		case text := <-said:
			if !strings.Contains(text, "on receive queue 1 of eth0, which is not served") ||
				!strings.Contains(text, "Add the queue to --queues") {
				t.Errorf("said %q", text)
			}
			return
		default:
		}
	}
	t.Error("no report")
}
