package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/daemon"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// buffer keeps a log that several goroutines write.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestUnownedQueue: a daemon serves one of two queues. Once frames of a peer have arrived on the other, the log says
// so, and how to fix it.
func TestUnownedQueue(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{Queues: 2, OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	defer tn.Close()
	cfg, _ := load(t, ethTable+"queues = [0]\ntransmit = \"xdp\"\n[[export]]\nname = \"x\"\nlisten = "+
		"\"0.0.0.0:7174\"\nsize = 4096\n")
	var log buffer
	var d *daemon.Daemon
	if err := tn.A.Do(func() (err error) {
		d, err = daemon.New(cfg, daemon.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	defer func() { stop(); <-ended }()
	_, ok := eventually(func() bool {
		tn.B.Do(func() error {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(tn.A.Addr4.Addr().String(), "7174"),
				100*time.Millisecond)
			if err == nil {
				c.Close()
			}
			return err
		})
		return strings.Contains(log.String(), "their receive queue is not served")
	})
	if !ok {
		t.Fatalf("no warning:\n%s", log.String())
	}
	says(t, log.String(), "queue=1", "frames=", "queues in [[interface]]",
		"ethtool -L eth0 rx 1 tx 1")
}

// TestReloadAllow: a reload changes which peers may connect, without a restart.
func TestReloadAllow(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	defer tn.Close()
	text := func(allow string) string {
		return ethTable + "allow = [" + allow +
			"]\n[[export]]\nname = \"x\"\nlisten = \"0.0.0.0:7174\"\nsize = 4096\n"
	}
	cfg, _ := load(t, text(`"198.51.100.0/24"`))
	var d *daemon.Daemon
	if err := tn.A.Do(func() (err error) {
		d, err = daemon.New(cfg, daemon.Options{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	defer func() { stop(); <-ended }()
	connects := func() error {
		return tn.B.Do(func() error {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(tn.A.Addr4.Addr().String(), "7174"),
				300*time.Millisecond)
			if err == nil {
				c.Close()
			}
			return err
		})
	}
	if connects() == nil {
		t.Error("a peer that is not on the list may connect")
	}
	now, _ := load(t, text(fmt.Sprintf("%q", tn.B.Addr4.Masked())))
	now.Daemon.Socket = cfg.Daemon.Socket
	if err := d.ApplyConfig(now); err != nil {
		t.Fatal(err)
	}
	if err := connects(); err != nil {
		t.Errorf("a peer on the new list may not connect: %v", err)
	}
}

// TestPartialSums: the kernel of a peer on this host leaves TCP checksums partial. On a veth its connections work, and
// the frames are counted. On a bridge, whose frames may come from a wire, they time out, and the log says why and what
// to do.
func TestPartialSums(t *testing.T) {
	for _, on := range []string{"eth0", "br0"} {
		t.Run(on, func(t *testing.T) {
			tn := hosts(t)
			if on == "br0" {
				bridged(t, tn.B)
			}
			d, _ := run(t, tn.B, strings.Replace(ethTable, "eth0", on, 1)+
				"[[export]]\nname = \"memory\"\nlisten = \"0.0.0.0:7174\"\nsize = \"64KiB\"\n")
			ctx, stop := context.WithCancel(t.Context())
			over := make(chan error, 1)
			go func() { over <- d.Run(ctx) }()
			far := kernelOn(t, tn.A)
			dialing, enough := context.WithTimeout(ctx, map[string]time.Duration{
				"eth0": 20 * time.Second, "br0": time.Second}[on])
			defer enough()
			err := far.Dial(dialing, netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174),
				verbstest.New(t, far, 4096).QP, verbs.DialConfig{})
			if (err == nil) != (on == "eth0") {
				t.Errorf("dial: %v", err)
			}
			const said = "dropping segments without a TCP checksum"
			if _, ok := eventually(func() bool {
				s := d.Snapshot()
				if on == "eth0" {
					return event(s, said) == nil &&
						values(d, "stack")["partial_sums"] > 0
				}
				e := event(s, said)
				return e != nil && strings.Contains(e.Detail["next"], "ethtool -K")
			}); !ok {
				t.Errorf("counters and log: %+v, %+v", values(d, "stack"),
					d.Snapshot().Events)
			}
			stop()
			<-over
		})
	}
}

// bridged moves the address of a host's interface to a new bridge above it.
func bridged(t *testing.T, h *topo.Host) {
	t.Helper()
	nl := h.Netlink()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	port, err := nl.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	at := func() *netlink.Addr {
		return &netlink.Addr{IPNet: &net.IPNet{IP: h.Addr4.Addr().AsSlice(),
			Mask: net.CIDRMask(h.Addr4.Bits(), 32)}}
	}
	if err := errors.Join(nl.LinkAdd(bridge), nl.LinkSetMaster(port, bridge),
		nl.AddrDel(port, at()), nl.AddrAdd(bridge, at()), nl.LinkSetUp(bridge)); err != nil {
		t.Fatal(err)
	}
}
