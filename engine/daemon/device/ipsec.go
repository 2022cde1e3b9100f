package device

import (
	"cmp"
	"fmt"
	"net/netip"
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

// addIPsec adds the device's IPsec, if it has it, and returns its SAs.
func (dev *Device) addIPsec(l *control.Statistics, to *control.DeviceState) (list []control.SAState,
	err error) {
	s, err := dev.xdp.IPsec()
	if s == nil || err != nil {
		return nil, err
	}
	dev.put(l, "ipsec", &s.IPsecStats)
	v := &control.IPsecState{Waiting: append([]netip.Addr{}, s.Waiting...),
		Error: verbs.ErrorText(s.LastError), ErrorAt: s.LastAt.Truncate(time.Second)}
	to.IPsec = v
	for _, a := range s.SAs {
		direction := control.DirectionIn
		if a.Outbound {
			direction = control.DirectionOut
			v.Out++
		} else {
			v.In++
		}
		local, remote := a.Ends()
		list = append(list, control.SAState{Place: dev.Place(), Local: local, Remote: remote,
			SPI: control.Key(a.SPI), Direction: direction, Sending: a.Sending,
			Mode: a.Mode.String(), Algorithm: fmt.Sprintf("aes%dgcm16", a.Keymat.Bits()),
			ESN: a.ESN, Packets: a.Packets, Bytes: a.Bytes, Replayed: a.Drops.Replayed,
			Forged: a.Drops.Forged})
	}
	return list, nil
}

// ipsecTables returns the tables for reopening the interface: those of the last reload.
func (dev *Device) ipsecTables() []config.IPsec {
	return *cmp.Or(dev.tables.Load(), &dev.Config.IPsec)
}
