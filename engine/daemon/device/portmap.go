package device

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/portmapper"
	"xwarp/engine/host/localaddr"
)

// portMapperState is the port mapper of an interface. The Mapper and its counters outlive the device.
type portMapperState struct {
	*portmapper.Mapper
	socks []*net.UDPConn
	err   error // why it does not answer
}

// openPortMap starts the port mapper of a device if the configuration requires it. On an error the device works without
// it: peers that query it get no answer, and then connect.
func (o *Opener) openPortMap(v *Device, before *Device) {
	p := &portMapperState{Mapper: &portmapper.Mapper{}}
	if before != nil {
		p.Mapper = before.portMapper.Mapper
	}
	v.portMapper = p
	if v.Config.PortMapper == config.PortMapperOff {
		return
	}
	ifname := v.ifname()
	if v.Config.Transport == config.TransportKernel {
		ifname = "" // its name is not an interface: kernel sockets use all of them
	}
	p.err = v.Core.Do(func() (err error) {
		p.socks, err = portmapper.Listen(ifname)
		return err
	})
	switch {
	case errors.Is(p.err, unix.EADDRINUSE):
		v.log.Warn("UDP port 3935 is in use: the port mapper that holds it answers for this host",
			"error", p.err, "next",
			"nothing; port_mapper = \"off\" silences this message")
	case p.err != nil:
		v.log.Warn("cannot start the port mapper: peers that query it will wait", "error", p.err)
	}
	for _, c := range p.socks {
		go p.Serve(c, &portmapper.Rules{Listens: v.Core.Listens,
			Admits: func(peer netip.Addr) bool {
				return o.Config().Allowed(peer) && v.allows(peer)
			}})
	}
}

// close closes the sockets.
func (p *portMapperState) close() {
	for _, c := range p.socks {
		c.Close()
	}
}

// mapPort is core.Options.MapPort. It asks the peer's port mapper, see portmapper.Mapper.Query.
func (v *Device) mapPort(ctx context.Context, local, remote netip.AddrPort) netip.AddrPort {
	return v.portMapper.Query(ctx, local, remote,
		func(local, remote netip.AddrPort) (c net.Conn, err error) {
			err = v.Core.Do(func() (err error) {
				c, err = net.DialUDP("udp", v.udp(local), v.udp(remote))
				return err
			})
			return c, err
		})
}

// udp returns a with the zone that sockets need.
func (v *Device) udp(a netip.AddrPort) *net.UDPAddr {
	return net.UDPAddrFromAddrPort(localaddr.InZone(a, v.ifname()))
}
