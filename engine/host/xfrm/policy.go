package xfrm

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/engine/esp"
)

// Modes of SAs and templates (linux/xfrm.h).
const (
	modeTransport = 0
	modeTunnel    = 1
)

// Policy is an entry of the security policy database that requires ESP. It is immutable.
type Policy struct {
	Out           bool // otherwise for incoming packets
	Local, Remote netip.Prefix
	LocalPort     Ports
	RemotePort    Ports
	Protocol      uint8 // 0: any
	Priority      uint32
	IfID          uint32

	// The following fields are those of the policy's template, which describes the required SA. An unspecified address
	// and a ReqID of 0 match any.
	Mode     esp.Mode
	Src, Dst netip.Addr
	ReqID    uint32

	info     nl.XfrmUserpolicyInfo
	template nl.XfrmUserTmpl
	mark     []byte
}

// Ports are the ports that equal Port in the bits of Mask. The zero value matches all.
type Ports struct{ Port, Mask uint16 }

// Has reports whether port matches p.
func (p Ports) Has(port uint16) bool { return (port^p.Port)&p.Mask == 0 }

func (p Ports) String() string {
	switch p.Mask {
	case 0:
		return "any"
	case 1<<16 - 1:
		return fmt.Sprint(p.Port)
	}
	return fmt.Sprintf("%d/0x%04x", p.Port, p.Mask)
}

func (p *Policy) String() string {
	direction := "in"
	if p.Out {
		direction = "out"
	}
	return fmt.Sprintf("policy %s %s port %s, %s port %s", direction, p.Local, p.LocalPort,
		p.Remote, p.RemotePort)
}

// ForTCP reports whether p is for TCP connections.
func (p *Policy) ForTCP() bool { return p.Protocol == 0 || p.Protocol == unix.IPPROTO_TCP }

// Matches reports whether the selectors of p cover the TCP connection between local and remote.
func (p *Policy) Matches(local, remote netip.AddrPort) bool {
	return p.ForTCP() &&
		p.Local.Contains(local.Addr().Unmap()) && p.Remote.Contains(remote.Addr().Unmap()) &&
		p.LocalPort.Has(local.Port()) && p.RemotePort.Has(remote.Port())
}

// Uses reports whether p's template requires sa. A trap policy of strongSwan has no addresses and the same ReqID in
// both directions: then the addresses of sa must be among those of p's packets.
func (p *Policy) Uses(sa *SA) bool {
	from, to := p.Local, p.Remote
	if !p.Out {
		from, to = to, from
	}
	fits := func(want netip.Addr, packets netip.Prefix, is netip.Addr) bool {
		return want == is || want.IsUnspecified() && packets.Contains(is)
	}
	return p.Mode == sa.Mode && (p.ReqID == 0 || p.ReqID == sa.ReqID) && p.IfID == sa.IfID &&
		fits(p.Src, from, sa.Src) && fits(p.Dst, to, sa.Dst)
}

// parsePolicy reads a message with a policy. It returns nil for a policy that does not require exactly one SA, of ESP
// in transport or tunnel mode, and for a policy that blocks packets or is for forwarded ones.
func parsePolicy(b []byte) (*Policy, error) {
	if len(b) < nl.SizeofXfrmUserpolicyInfo {
		return nil, fmt.Errorf("policy of %d bytes: %w", len(b), errMessage)
	}
	p := &Policy{}
	copy(p.info.Serialize(), b)
	attrs, err := parseAttrs(b[nl.SizeofXfrmUserpolicyInfo:])
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	t := attrs[nl.XFRMA_TMPL]
	i := &p.info
	if i.Action != policyAllow || i.Dir > policyOut || len(t) != nl.SizeofXfrmUserTmpl {
		return nil, nil
	}
	copy(p.template.Serialize(), t)
	if p.template.XfrmId.Proto != unix.IPPROTO_ESP {
		return nil, nil
	}
	switch p.template.Mode {
	case modeTransport:
	case modeTunnel:
		p.Mode = esp.Tunnel
	default:
		return nil, nil
	}
	p.Out, p.Protocol, p.Priority = i.Dir == policyOut, i.Sel.Proto, i.Priority
	p.IfID = number(attrs[nl.XFRMA_IF_ID])
	if m := attrs[nl.XFRMA_MARK]; len(m) >= nl.SizeofXfrmMark {
		p.mark = append([]byte(nil), m[:nl.SizeofXfrmMark]...)
	}
	s := &i.Sel
	p.Local = netip.PrefixFrom(address(s.Saddr, s.Family), int(s.PrefixlenS))
	p.Remote = netip.PrefixFrom(address(s.Daddr, s.Family), int(s.PrefixlenD))
	p.LocalPort = Ports{nl.Swap16(s.Sport), nl.Swap16(s.SportMask)}
	p.RemotePort = Ports{nl.Swap16(s.Dport), nl.Swap16(s.DportMask)}
	if !p.Out {
		p.Local, p.Remote = p.Remote, p.Local
		p.LocalPort, p.RemotePort = p.RemotePort, p.LocalPort
	}
	p.ReqID = p.template.Reqid
	p.Src = address(p.template.Saddr, p.template.Family)
	p.Dst = address(p.template.XfrmId.Daddr, p.template.Family)
	return p, nil
}

// Directions and actions of policies (linux/xfrm.h); forwarding is 2.
const (
	policyOut   = 1
	policyAllow = 0
)
