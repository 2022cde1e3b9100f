package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/portmapper"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// askPortMapper asks the port mapper at the address of listener for that listener, from address local of host h. It
// returns the reply, or the request itself if no reply arrives in time.
func askPortMapper(t *testing.T, h *topo.Host, local netip.Addr, listener netip.AddrPort,
	wait time.Duration) (a portmapper.Message) {
	t.Helper()
	var c *net.UDPConn
	if err := h.Do(func() (err error) {
		c, err = net.DialUDP("udp", &net.UDPAddr{IP: local.AsSlice()},
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(listener.Addr(), portmapper.Port)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q := portmapper.Message{Handle: 1, Accepting: listener,
		Connecting: netip.AddrPortFrom(local, 1)}
	q.Mapped = q.Connecting
	if _, err := c.Write(q.Append(nil)); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(wait))
	b := make([]byte, 128)
	n, err := c.Read(b) // the reply is from the requested address: the socket is connected to it
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return q
	}
	if err == nil {
		a, err = portmapper.Parse(b[:n])
	}
	if err != nil {
		t.Errorf("%v: %v", listener, err)
	}
	return a
}

// shout sends a request for a listener to a multicast or broadcast address.
func shout(t *testing.T, h *topo.Host, to netip.Addr, listener netip.AddrPort) {
	t.Helper()
	q := portmapper.Message{Handle: 1, Accepting: listener,
		Connecting: netip.AddrPortFrom(h.Addr4.Addr(), 1)}
	q.Mapped = q.Connecting
	err := h.Do(func() error {
		c, err := net.DialUDP("udp", nil,
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, portmapper.Port)))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(q.Append(nil))
		return err
	})
	if err != nil {
		t.Fatalf("%v: %v", to, err)
	}
}

// portMapper has the counters of the port mapper of a device, and the reason if it does not run.
type portMapper struct {
	Counters map[string]uint64
	Error    string
}

func portMapperOf(d *daemon.Daemon) portMapper {
	return portMapper{values(d, "port_mapper"), d.Snapshot().Devices[0].Mapper}
}

// TestPortMapper queries a daemon's port mapper for listeners of exports and of programs, at several addresses of the
// host. Requests sent to a broadcast or multicast address, and those of peers that may not connect, get no reply.
func TestPortMapper(t *testing.T) {
	tn := hosts(t)
	const export = "[[export]]\nname = \"m\"\nlisten = \"0.0.0.0:7174\"\nsize = \"4096\"\n"
	d, socket := run(t, tn.A, ethTable+export)
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	four, six := tn.A.Addr4.Addr(), tn.A.Addr6.Addr()
	l, err := dev.Listen(netip.AddrPortFrom(six, 7200), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	another, err := netlink.ParseAddr("192.0.2.77/32")
	if err != nil {
		t.Fatal(err)
	}
	nic, err := tn.A.Netlink().LinkByName("eth0")
	if err == nil {
		err = tn.A.Netlink().AddrAdd(nic, another)
	}
	if err == nil {
		_, to, _ := net.ParseCIDR("192.0.2.77/32")
		err = tn.B.Netlink().RouteAdd(&netlink.Route{LinkIndex: tn.B.Link.Index, Dst: to,
			Gw: four.AsSlice()})
	}
	if err != nil {
		t.Fatal(err)
	}
	ask := func(listener netip.AddrPort, want portmapper.Type) {
		t.Helper()
		local := tn.B.Addr4.Addr()
		if listener.Addr().Is6() {
			local = tn.B.Addr6.Addr()
		}
		a := askPortMapper(t, tn.B, local, listener, 10*time.Second)
		if a.Type != want || a.Accepting != listener {
			t.Errorf("%v: %+v, want %v", listener, a, want)
		}
	}
	at := netip.AddrPortFrom
	ask(at(four, 7174), portmapper.Accept)
	ask(at(netip.MustParseAddr("192.0.2.77"), 7174), portmapper.Accept) // routes use another source address
	ask(at(six, 7200), portmapper.Accept)
	ask(at(six, 7174), portmapper.Reject)
	ask(at(four, 7200), portmapper.Reject)
	ask(at(four, 22), portmapper.Reject)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ask(at(six, 7200), portmapper.Reject)
	p := portMapperOf(d)
	if p.Error != "" || p.Counters["requests_in"] != 7 ||
		p.Counters["accepts_out"] != 3 || p.Counters["rejects_out"] != 4 {
		t.Errorf("%+v", p)
	}

	// A request to a broadcast or multicast address gets no reply either.
	for _, to := range []string{"192.0.2.255", "ff02::1%eth0"} {
		before := portMapperOf(d).Counters
		shout(t, tn.B, netip.MustParseAddr(to), at(four, 7174))
		for stop := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			now := portMapperOf(d).Counters
			if now["misaddressed"] == before["misaddressed"]+1 && now["accepts_out"] == 3 {
				break
			}
			if time.Now().After(stop) || now["accepts_out"] != 3 {
				t.Fatalf("a request to %s: %+v", to, now)
			}
		}
	}

	// A peer that may not connect gets no reply.
	cfg, _ := load(t, ethTable+"allow = [\"203.0.113.0/24\"]\n"+export)
	cfg.Daemon.Socket, cfg.Daemon.Grace = socket, 0
	if err := d.ApplyConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if a := askPortMapper(t, tn.B, tn.B.Addr4.Addr(), at(four, 7174),
		100*time.Millisecond); a.Type != portmapper.Request {
		t.Errorf("a peer that is not allowed is answered %+v", a)
	}
	if p := portMapperOf(d); p.Counters["denied"] != 1 {
		t.Errorf("%+v", p)
	}
}

// TestPortMapperTaken starts a daemon on a host whose UDP port 3935 is in use, as by iwpmd. The snapshot must have an
// error. With port_mapper = "off", a daemon must not use the port.
func TestPortMapperTaken(t *testing.T) {
	tn := hosts(t)
	var c *net.UDPConn
	if err := tn.A.Do(func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{Port: portmapper.Port})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	d, _ := run(t, tn.A, ethTable+
		"[[export]]\nname = \"m\"\nlisten = \"0.0.0.0:7174\"\nsize = \"4096\"\n")
	if p := portMapperOf(d); p.Error == "" {
		t.Error("the error is not reported")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	d, _ = run(t, tn.A, ethTable+"port_mapper = \"off\"\n")
	if err := tn.A.Do(func() error {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: portmapper.Port})
		if err == nil {
			c.Close()
		}
		return err
	}); err != nil {
		t.Errorf("with port_mapper off, after the previous daemon: %v", err)
	}
	if p := portMapperOf(d); p.Error != "" {
		t.Errorf("%+v", p)
	}
}

// TestPortMapperAsks: a program connects to a port of a peer whose port mapper first maps it to another port, then
// rejects the request, and then does not run. The program must connect each time, after a rejection or without a reply
// to the port that it named.
func TestPortMapperAsks(t *testing.T) {
	tn := hosts(t)
	d, socket := run(t, tn.A, ethTable+"port_mapper = \"ask\"\n")
	_, listening := run(t, tn.B, ethTable+"port_mapper = \"off\"\n")
	server, err := client.Open(listening)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	var mapper *net.UDPConn
	if err := tn.B.Do(func() (err error) {
		mapper, err = net.ListenUDP("udp", &net.UDPAddr{Port: portmapper.Port})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer mapper.Close()
	// reply is the type and the port of an answer of mapper
	type reply struct {
		portmapper.Type
		port uint16
	}
	replies, asked := make(chan reply, 1), make(chan portmapper.Message, 2)
	go func() {
		var b [128]byte
		for {
			n, from, err := mapper.ReadFromUDPAddrPort(b[:])
			if err != nil {
				return
			}
			q, err := portmapper.Parse(b[:n])
			if err != nil {
				t.Error(err)
			}
			asked <- q
			if q.Type != portmapper.Request {
				continue
			}
			r := <-replies
			q.Type, q.Accepting = r.Type, netip.AddrPortFrom(q.Accepting.Addr(), r.port)
			mapper.WriteToUDPAddrPort(q.Append(nil), from)
		}
	}()
	for i, a := range []netip.Addr{tn.B.Addr4.Addr(), tn.B.Addr6.Addr()} {
		port := uint16(7200 + i)
		l, err := server.Listen(netip.AddrPortFrom(a, port), verbs.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		connect := func(to uint16) *verbstest.End {
			t.Helper()
			end, other := verbstest.New(t, dev, 4096), verbstest.New(t, server, 4096)
			done := make(chan error, 1)
			go func() {
				r, err := l.Accept(t.Context())
				if err == nil {
					err = r.Accept(t.Context(), other.QP, nil)
				}
				done <- err
			}()
			err := dev.Dial(t.Context(), netip.AddrPortFrom(a, to), end.QP, verbs.DialConfig{})
			if err := errors.Join(err, <-done); err != nil {
				t.Fatal(err)
			}
			return end
		}
		replies <- reply{portmapper.Accept, port}
		end := connect(22)
		q, ack := <-asked, <-asked
		if q.Accepting != netip.AddrPortFrom(a, 22) || q.Connecting != end.QP.LocalAddr() ||
			q.Mapped != q.Connecting {
			t.Errorf("asked %+v from %v", q, end.QP.LocalAddr())
		}
		if ack.Type != portmapper.Ack || ack.Accepting != netip.AddrPortFrom(a, port) {
			t.Errorf("acknowledged %+v", ack)
		}
		replies <- reply{portmapper.Reject, port}
		connect(port)
		<-asked
	}
	mapper.Close() // now the peer's kernel refuses requests
	l, err := server.Listen(netip.AddrPortFrom(tn.B.Addr4.Addr(), 7300), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		end, other := verbstest.New(t, dev, 4096), verbstest.New(t, server, 4096)
		go func() {
			if r, err := l.Accept(t.Context()); err == nil {
				r.Accept(t.Context(), other.QP, nil)
			}
		}()
		if err := dev.Dial(t.Context(), l.Addr(), end.QP, verbs.DialConfig{}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]uint64{"accepts_in": 2, "rejects_in": 2, "unanswered": 1, "unasked": 1}
	p := portMapperOf(d)
	for key, n := range want {
		if p.Counters[key] != n {
			t.Errorf("%s is %d, want %d", key, p.Counters[key], n)
		}
	}
}

// TestPortMapperComesBack removes the interface of a device after a reload changed who may connect. The port mapper of
// the reopened device must answer only those peers, and others once a further reload permits them.
func TestPortMapperComesBack(t *testing.T) {
	tn := hosts(t, topo.Options{OffloadsA: topo.NoOffloads})
	const export = "[[export]]\nname = \"m\"\nlisten = \"0.0.0.0:7174\"\nsize = \"4096\"\n"
	d, _ := run(t, tn.B, ethTable+export)
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- d.Run(ctx) }()
	defer func() {
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}()
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	ask := func(wait time.Duration) portmapper.Type {
		t.Helper()
		return askPortMapper(t, tn.A, tn.A.Addr4.Addr(), at, wait).Type
	}
	allow := func(table string) {
		t.Helper()
		now, _ := load(t, ethTable+table+export)
		if err := d.ApplyConfig(now); err != nil {
			t.Fatal(err)
		}
	}
	if got := ask(10 * time.Second); got != portmapper.Accept {
		t.Errorf("at first: %v", got)
	}
	allow("allow = [\"203.0.113.0/24\"]\n")
	nic, err := tn.B.Netlink().LinkByName(tn.B.Link.Name)
	if err == nil {
		err = tn.B.Netlink().LinkDel(nic)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := tn.Reconnect(); err != nil {
		t.Fatal(err)
	}
	if _, ok := eventually(func() bool {
		v := d.Snapshot()
		return v.Devices[0].Reopened == 1 && v.Exports[0].Error == ""
	}); !ok {
		t.Fatalf("%+v", d.Snapshot())
	}
	if got := ask(100 * time.Millisecond); got != portmapper.Request {
		t.Errorf("a peer that may not connect got %v", got)
	}
	if _, ok := eventually(func() bool { // after the query, which may have waited for ARP
		return portMapperOf(d).Counters["denied"] == 1
	}); !ok {
		t.Errorf("%+v", portMapperOf(d))
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if c, err := tn.A.Dial(short, netip.AddrPort{}, at); err == nil {
		c.Close()
		t.Error("a peer that is not allowed has a connection")
	}
	allow("")
	if got := ask(10 * time.Second); got != portmapper.Accept {
		t.Errorf("allowed again: %v", got)
	}
	if p := portMapperOf(d); p.Counters["accepts_out"] != 2 || p.Counters["denied"] != 1 {
		t.Errorf("%+v", p)
	}
}

// TestPortMapperKernel: a device on kernel sockets runs a port mapper if configured.
func TestPortMapperKernel(t *testing.T) {
	tn := hosts(t)
	text := "[[interface]]\nname = \"any\"\ntransport = \"kernel\"\nport_mapper = \"answer\"\n"
	at := netip.AddrPortFrom(tn.A.Addr4.Addr(), 7174)
	run(t, tn.A, text+fmt.Sprintf("[[export]]\nname = \"m\"\nlisten = \"%v\"\nsize = \"4096\"\n",
		at))
	if a := askPortMapper(t, tn.B, tn.B.Addr4.Addr(), at,
		10*time.Second); a.Type != portmapper.Accept || a.Accepting != at {
		t.Errorf("%+v", a)
	}
}
