package xdp_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/internal/core"
	"xwarp/engine/xdp"
	"xwarp/ring"
)

// TestBusy: the error for a busy interface or queue has the process ID of its user, and that for a queue the inode of
// the socket. A device for all queues serves the free queue, and logs the busy one with its user.
func TestBusy(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	t.Parallel()
	n, err := topo.New(topo.Options{Queues: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	var log lines
	open := func(queues ...int) (d *xdp.Device, err error) {
		err = n.A.Do(func() error {
			d, err = xdp.Open(xdp.Config{
				Interface: n.A.Link.Name, Queues: queues,
				Options: core.Options{Log: slog.New(slog.NewTextHandler(&log, nil))},
			})
			return err
		})
		return d, err
	}
	me := fmt.Sprintf("(pid %d", os.Getpid())
	var sock *ring.Socket
	err = n.A.Do(func() error {
		sock, err = ring.Open(ring.Config{Ifindex: n.A.Link.Index, Queue: 1, TxSlot: 1})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	if _, err = open(1); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), me) ||
		!strings.Contains(err.Error(), "socket inode") {
		t.Errorf("a queue in use: %v", err)
	}
	d, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if q := d.Transport().Queues; q != 1 {
		t.Errorf("%d queues are served, want the free one", q)
	}
	for _, want := range []string{"cannot open receive queue", "queue 1", me} {
		if !log.contains(want) {
			t.Errorf("the log does not have %q", want)
		}
	}
	if _, err = open(); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), me) {
		t.Errorf("an interface in use: %v", err)
	}
}
