package daemon

import (
	"cmp"
	"errors"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/ipsec"
	"xwarp/engine/xdp"
)

// ipsecConfig returns the IPsec configuration of the device, nil for none.
func (dev *device) ipsecConfig(follow func(xfrm.Options) (xfrm.Source, error)) *xdp.IPsecConfig {
	p := dev.protect
	if p == nil {
		return nil
	}
	return &xdp.IPsecConfig{Rules: ipsecRules(dev.cfg.IPsec), IfID: p.IfID, Mark: p.Mark,
		Window: p.Window, Follow: follow}
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

// reloadIPsec takes over the rules of a configuration for the devices that were opened with IPsec.
func (d *Daemon) reloadIPsec(now *config.Loaded) error {
	var errs []error
	for _, n := range now.Interface {
		v := d.device(n.Name)
		if v == nil || v.protect == nil {
			continue
		}
		v.tables.Store(&n.IPsec)
		if v.dev.Err() != nil { // they count when the device is opened
			continue
		}
		ended, err := v.xdp.SetIPsecRules(ipsecRules(n.IPsec))
		errs = append(errs, err)
		if ended > 0 {
			v.log.Warn("connections ended: the new configuration protects them in another way",
				"connections", ended)
		}
	}
	return errors.Join(errs...)
}

// noCore keeps the keys of IPsec out of core files: with a limit of one byte the kernel writes none, and gives none to
// a program either, which a limit of 0 does not prevent (core(5)).
func noCore(cfg *config.Loaded) error {
	for i := range cfg.Interface {
		if cfg.Interface[i].Protection() != nil {
			return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
		}
	}
	return nil
}

// ipsecState is the device's IPsec for a snapshot, nil without it.
func (dev *device) ipsecState() (*control.IPsecState, error) {
	if dev.xdp == nil {
		return nil, nil
	}
	s, err := dev.xdp.IPsec()
	if s == nil || err != nil {
		return nil, err
	}
	v := &control.IPsecState{Counters: control.Counters(&s.IPsecStats), Waiting: s.Waiting,
		Error: text(s.LastError), ErrorAt: s.LastAt, SAs: []control.SAState{}}
	for _, a := range s.SAs {
		direction := control.DirectionIn
		if a.Outbound {
			direction = control.DirectionOut
		}
		v.SAs = append(v.SAs, control.SAState{Device: dev.name, Local: a.Local, Remote: a.Remote,
			SPI: a.SPI, Direction: direction, Sending: a.Sending, Mode: a.Mode.String(),
			KeyBits: a.KeyBits, ESN: a.ESN, Packets: a.Packets, Bytes: a.Bytes,
			Replayed: a.Replayed, Forged: a.Forged})
	}
	return v, nil
}

// ipsecTables returns the tables with which the interface is opened again: those of the last reload.
func (dev *device) ipsecTables() []config.IPsec {
	return *cmp.Or(dev.tables.Load(), &dev.cfg.IPsec)
}
