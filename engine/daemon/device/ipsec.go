package device

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/ipsec"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// ipsecConfig returns the IPsec configuration of the device, nil for none.
func (dev *Device) ipsecConfig(follow func(xfrm.Options) (xfrm.Source, error)) *xdp.IPsecConfig {
	p := dev.protect
	if p == nil {
		return nil
	}
	return &xdp.IPsecConfig{Rules: ipsecRules(dev.Config.IPsec), IfID: uint32(p.IfID),
		Mark: uint32(p.Mark), Window: p.Window, Follow: follow}
}

func ipsecRules(tables []config.IPsec) (rules []ipsec.Rule) {
	for _, t := range tables {
		r := ipsec.Rule{Remote: t.Remote, Ports: t.Ports, Clear: t.Level == config.LevelOff}
		if t.Mode == config.ModeTunnel {
			r.Mode = esp.Tunnel
		}
		rules = append(rules, r)
	}
	return rules
}

// SetIPsec changes the rules of a device that was opened with IPsec. On a lost device they take effect when it is
// reopened.
func (dev *Device) SetIPsec(tables []config.IPsec) error {
	if dev.protect == nil {
		return nil
	}
	dev.tables.Store(&tables)
	if dev.Core.Err() != nil {
		return nil
	}
	ended, err := dev.xdp.SetIPsecRules(ipsecRules(tables))
	if ended > 0 {
		dev.log.Warn("connections closed: their IPsec configuration changed",
			"connections", ended)
	}
	return err
}

// DisableCore keeps IPsec keys out of core files: with a limit of one byte the kernel writes none, and does not pipe
// one to a program either, which a limit of 0 does not prevent (core(5)).
func DisableCore(cfg *config.Loaded) error {
	for i := range cfg.Interface {
		if cfg.Interface[i].Protection() != nil {
			return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
		}
	}
	return nil
}

// addIPsec adds the device's IPsec counters to l and its IPsec state to to, and returns its SAs. It adds nothing for a
// device without IPsec.
func (dev *Device) addIPsec(l *control.Statistics, to *control.DeviceState) (list []control.SAState,
	err error) {
	s, err := dev.xdp.IPsec(func(sa *xfrm.SA, in *esp.In, out *esp.Out, sending bool) {
		v := control.SAState{DeviceRef: dev.Ref(), Local: sa.Dst, Remote: sa.Src,
			SPI: control.Key(sa.SPI), Direction: control.DirectionIn, Sending: sending,
			Mode: sa.Mode.String(), Algorithm: fmt.Sprintf("aes%dgcm16", sa.Keymat.Bits()),
			ESN: sa.ESN}
		if out != nil {
			v.Local, v.Remote, v.Direction = sa.Src, sa.Dst, control.DirectionOut
			v.Packets, v.Bytes = out.Used()
		} else {
			v.Packets, v.Bytes = in.Used()
			v.Replayed, v.Forged = in.Drops.Replayed, in.Drops.Forged
		}
		list = append(list, v)
	})
	if s == nil || err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b control.SAState) int {
		return cmp.Or(a.Remote.Compare(b.Remote), cmp.Compare(a.Direction, b.Direction),
			cmp.Compare(a.SPI, b.SPI))
	})
	dev.put(l, "ipsec", &s.IPsecStats)
	to.IPsec = &control.IPsecState{Waiting: append([]netip.Addr{}, s.Waiting...),
		Error: verbs.ErrorText(s.LastError), ErrorAt: s.LastAt.Truncate(time.Second)}
	for _, v := range list {
		if v.Direction == control.DirectionOut {
			to.IPsec.Out++
		} else {
			to.IPsec.In++
		}
	}
	return list, nil
}

// ipsecTables returns the tables for reopening the interface: those of the last reload, or the present ones if there
// was none.
func (dev *Device) ipsecTables() []config.IPsec {
	return *cmp.Or(dev.tables.Load(), &dev.Config.IPsec)
}
