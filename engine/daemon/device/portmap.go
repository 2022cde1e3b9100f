package device

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/portmapper"
	"xwarp/engine/host/localaddr"
)

// portMap is the port mapper of an interface, which keeps what it counted and learned when that is opened again.
type portMap struct {
	*portmapper.Mapper
	socks []*net.UDPConn
	err   error // why nobody is answered
}

// openPortMap has the port mapper of a device answer, if it shall. Where it cannot the device goes on without: peers
// that ask wait, and connect then.
func (o *Opener) openPortMap(v *Device, before *Device) {
	p := &portMap{Mapper: &portmapper.Mapper{}}
	if before != nil {
		p.Mapper = before.ports.Mapper
	}
	v.ports = p
	if v.Config.PortMapper == config.PortMapperOff {
		return
	}
	ifname := v.Name
	if v.Config.Transport == config.TransportKernel {
		ifname = "" // the name is any, and the kernel's sockets are at all interfaces
	}
	p.err = v.Core.Do(func() (err error) {
		p.socks, err = portmapper.Listen(ifname)
		return err
	})
	switch {
	case errors.Is(p.err, unix.EADDRINUSE):
		v.log.Warn("UDP port 3935 is taken: the port mapper that has it answers for this host",
			"error", p.err, "next",
			"nothing, or port_mapper = \"off\" in its table to have this line no more")
	case p.err != nil:
		v.log.Warn("the port mapper does not answer: peers that ask it wait", "error", p.err)
	}
	for _, c := range p.socks {
		go p.Serve(c, &portmapper.Rules{Listens: v.Core.Listens,
			Admits: func(peer netip.Addr) bool {
				return o.Config().Allowed(peer) && v.allows(peer)
			}})
	}
}

// close ends the answers.
func (p *portMap) close() {
	for _, c := range p.socks {
		c.Close()
	}
}

// mapPort is engine.Options.MapPort.
func (v *Device) mapPort(ctx context.Context, local, remote netip.AddrPort) netip.AddrPort {
	return v.ports.Map(ctx, local, remote,
		func(local, remote netip.AddrPort) (c net.Conn, err error) {
			err = v.Core.Do(func() (err error) {
				c, err = net.DialUDP("udp", v.udp(local), v.udp(remote))
				return err
			})
			return c, err
		})
}

// udp is a as sockets of v's namespace know it.
func (v *Device) udp(a netip.AddrPort) *net.UDPAddr {
	return net.UDPAddrFromAddrPort(localaddr.InZone(a, v.Name))
}

// state is the port mapper for a snapshot.
func (p *portMap) state(mode string) *control.PortMapperState {
	c := p.Counters()
	return &control.PortMapperState{Mode: mode, Error: control.ErrorText(p.err),
		Counters: control.Counters(&c)}
}
