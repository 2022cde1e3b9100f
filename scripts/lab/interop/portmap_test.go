package interop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/portmapper"
	"xwarp/engine/verbs"
	"xwarp/scripts/lab/vm"
)

// xwarpd starts a daemon on the machine's network, with keys as further configuration of its interface. It returns the
// daemon, and a device that a program has opened on it.
func (b *bench) xwarpd(t *testing.T, keys string) (d *daemon.Daemon, dev verbs.Device) {
	t.Helper()
	d, socket := b.daemon(t, keys)
	c, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return d, c
}

// daemon is like xwarpd, but returns the path of the daemon's socket instead of a device.
func (b *bench) daemon(t *testing.T, keys string) (d *daemon.Daemon, socket string) {
	t.Helper()
	dir := t.TempDir()
	path, socket := filepath.Join(dir, "xwarp.toml"), filepath.Join(dir, "s")
	text := fmt.Sprintf("[daemon]\nsocket = %q\n[[interface]]\nname = %q\n%s", socket,
		vm.PeerLink, keys)
	err := os.WriteFile(path, []byte(text), 0o600)
	var cfg *config.Loaded
	if err == nil {
		cfg, err = config.Load(config.Source{Path: path})
	}
	if err == nil {
		err = b.net.Peer.Do(func() (err error) {
			log := slog.New(slog.NewTextHandler(t.Output(), nil))
			d, err = daemon.New(cfg, daemon.Options{Log: log})
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, socket
}

// run runs a command in the machine. The test fails if the command does.
func (b *bench) run(t *testing.T, command string) {
	t.Helper()
	if out, code, err := b.vm.Run(command, time.Minute); err != nil || code != 0 {
		t.Fatalf("%s: %d, %v\n%s", command, code, err, out)
	}
}

// mapping is a port mapper message as captured on the link.
type mapping struct {
	from netip.Addr
	portmapper.Message
}

// mappings runs f and returns the port mapper messages on the link during f and for three seconds afterwards, in which
// iwpmd may repeat unacknowledged answers.
func (b *bench) mappings(t *testing.T, f func() error) (list []mapping) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "link.pcap")
	c, err := b.net.Capture(file, fmt.Sprintf("udp port %d", portmapper.Port))
	if err != nil {
		t.Fatal(err)
	}
	err = f()
	b.run(t, "sleep 3")
	if err := errors.Join(err, c.Stop()); err != nil {
		t.Fatal(err)
	}
	for _, p := range packetsIn(t, file) {
		from, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Src().Raw())
		m, err := portmapper.Parse(p.TransportLayer().LayerPayload())
		if err != nil {
			t.Error(err)
		}
		list = append(list, mapping{from, m})
	}
	return list
}

// exchanged checks that the messages in list have the given types, in order: a Request of active, the answer of
// passive, and an Ack if types has one. On a slow machine any of them may be repeated.
func exchanged(list []mapping, active, passive netip.Addr, port uint16,
	types ...portmapper.Type) error {
	var seen strings.Builder
	for _, m := range list {
		from := active
		if m.Type == portmapper.Accept || m.Type == portmapper.Reject {
			from = passive
		}
		if m.from != from || m.Accepting != netip.AddrPortFrom(passive, port) ||
			m.Connecting.Addr() != active || m.Connecting.Port() == 0 {
			return fmt.Errorf("%+v", m)
		}
		fmt.Fprint(&seen, m.Type)
	}
	first, last := types[0].String(), types[len(types)-1].String()
	for _, want := range types {
		if s := seen.String(); !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) ||
			!strings.Contains(s, want.String()) {
			return fmt.Errorf("on the link: %s, want %v", s, types)
		}
	}
	return nil
}

// TestPortMapper tests xwarpd's port mapper against Debian's iwpmd, which runs beside siw: each asks the other for
// listeners and answers.
func TestPortMapper(t *testing.T) {
	b := need(t, vm.Siw{})
	b.run(t, "iwpmd")
	// Wait until iwpmd has its UDP port and a netlink socket of NETLINK_RDMA (20), by which the kernel asks it.
	b.run(t, `until ss -Huln | grep -q :3935 && awk '$2 == 20 && $3 > 0 {n++} END {exit !n}' `+
		`/proc/net/netlink; do sleep .2; done`)
	d, dev := b.xwarpd(t, "port_mapper = \"ask\"\n")
	counted := map[string]uint64{}
	count := func(t *testing.T, keys ...string) {
		t.Helper()
		v := d.Snapshot()
		now := v.Statistics.Values(v.Devices[0].Name, "port_mapper")
		for _, key := range keys {
			if counted[key]++; now[key] < counted[key] {
				t.Errorf("%s is %d, want %d at least", key, now[key], counted[key])
			}
			counted[key] = now[key]
		}
		if now["unanswered"]+now["unasked"]+now["malformed"] > 0 {
			t.Errorf("%v", now)
		}
	}
	const req, acc, ack, rej = portmapper.Request, portmapper.Accept, portmapper.Ack,
		portmapper.Reject
	for _, v6 := range []bool{false, true} {
		ours, theirs := vm.PeerAddr4, b.vm.Addr4
		if v6 {
			ours, theirs = vm.PeerAddr6, b.vm.Addr6
		}
		for _, p := range []ping{
			{"daemon", "server", v6, false, 4096, 20},
			{"daemon", "client", v6, false, 4096, 20},
		} {
			t.Run(p.String(), func(t *testing.T) {
				at := port()
				list := b.mappings(t, func() error {
					res, err := p.run(b, dev, at)
					if res.Iterations != p.count {
						t.Errorf("%+v", res)
					}
					return err
				})
				if p.ours == "server" {
					count(t, "requests_in", "accepts_out", "acks_in")
					if err := exchanged(list, theirs, ours, at, req, acc, ack); err != nil {
						t.Error(err)
					}
					return
				}
				count(t, "requests_out", "accepts_in")
				if err := exchanged(list, ours, theirs, at, req, acc, ack); err != nil {
					t.Error(err)
				}
			})
		}
		// Without a listener the port mapper rejects, and both sides then try the port itself, which is refused.
		t.Run(fmt.Sprintf("nobody listens, %v", ours), func(t *testing.T) {
			at := port()
			list := b.mappings(t, func() error {
				// rping prints that it was refused, but does not exit.
				out, _, err := b.vm.Run(fmt.Sprintf("timeout 20 rping -c -C 1 -p %d -a %v", at,
					ours), time.Minute)
				if !strings.Contains(out, "refused") {
					t.Errorf("siw got: %s", out)
				}
				return err
			})
			count(t, "requests_in", "rejects_out")
			if err := exchanged(list, theirs, ours, at, req, rej); err != nil {
				t.Error(err)
			}
			list = b.mappings(t, func() error {
				e := newPeer(t, dev, 16)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := dev.Dial(ctx, netip.AddrPortFrom(theirs, at), e.qp, verbs.DialConfig{})
				if err == nil {
					t.Error("somebody listens")
				}
				return nil
			})
			count(t, "requests_out", "rejects_in")
			if err := exchanged(list, ours, theirs, at, req, rej); err != nil {
				t.Error(err)
			}
		})
	}
}
