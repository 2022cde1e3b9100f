package engine

import (
	"fmt"
	"sync"

	"xwarp/ddp"
	"xwarp/engine/verbs"
)

// PD is verbs.PD of the engine.
type PD struct {
	dev *Device
	pds []*ddp.PD // one per worker; nil once freed there
}

// MR is verbs.MR of the engine.
type MR struct {
	pd  *PD
	mrs []*ddp.MR // one per worker, all with the same STag; nil once deregistered there
	mem []byte
	at  verbs.RemoteMR

	failing sync.Once
	failed  chan struct{}
	err     error
}

// AllocPD implements verbs.Device.
func (d *Device) AllocPD() (verbs.PD, error) {
	pd := &PD{dev: d, pds: make([]*ddp.PD, len(d.loops))}
	err := d.onEach(func(i int, l *loop) (err error) {
		pd.pds[i], err = l.table.AllocPD()
		return err
	})
	if err != nil {
		pd.Close()
		return nil, verbs.Wrap("ibv_alloc_pd", err)
	}
	return pd, nil
}

// Close implements verbs.PD.
func (p *PD) Close() error {
	return verbs.Wrap("ibv_dealloc_pd", p.dev.onEach(func(i int, l *loop) error {
		if p.pds[i] == nil {
			return nil
		}
		err := l.table.FreePD(p.pds[i])
		if err == nil {
			p.pds[i] = nil
		}
		return err
	}))
}

// RegMR implements verbs.PD. Offsets count from 0: an address in the region is its TO.
func (p *PD) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	m := &MR{pd: p, mrs: make([]*ddp.MR, len(p.pds)), mem: mem, failed: make(chan struct{})}
	attr := ddp.Attr{Access: access, Shared: len(p.pds) > 1, Owner: m}
	err := p.dev.onEach(func(i int, l *loop) (err error) {
		m.mrs[i], err = l.table.Register(p.pds[i], mem, attr)
		if err == nil {
			attr.STag = m.mrs[i].STag()
		}
		return err
	})
	if err != nil {
		m.deregister()
		return nil, verbs.Wrap(fmt.Sprintf("ibv_reg_mr of %d octets", len(mem)), err)
	}
	m.at = verbs.RemoteMR{
		Access: access &^ verbs.LocalWrite, STag: attr.STag, Base: m.mrs[0].Base(),
		Length: uint64(len(mem)),
	}
	return m, nil
}

// STag implements verbs.MR.
func (m *MR) STag() verbs.STag { return m.at.STag }

// Remote implements verbs.MR.
func (m *MR) Remote() verbs.RemoteMR { return m.at }

// Bytes implements verbs.MR.
func (m *MR) Bytes() []byte { return m.mem }

// SGE implements verbs.MR.
func (m *MR) SGE(off, n int) verbs.SGE {
	return verbs.SGE{STag: m.at.STag, TO: m.at.Base + verbs.TO(off), Len: uint32(n)}
}

// Close implements verbs.MR.
func (m *MR) Close() error { return verbs.Wrap("ibv_dereg_mr", m.deregister()) }

func (m *MR) deregister() error {
	return m.pd.dev.onEach(func(i int, l *loop) error {
		if m.mrs[i] == nil {
			return nil
		}
		err := l.table.Deregister(m.mrs[i])
		if err == nil {
			m.mrs[i] = nil
		}
		return err
	})
}

// onEach runs f for each worker on that worker, in order, until one fails.
func (d *Device) onEach(f func(i int, l *loop) error) error {
	for i, l := range d.loops {
		var err error
		if e := l.call(func() { err = f(i, l) }); e != nil {
			return e
		}
		if err != nil {
			return err
		}
	}
	return nil
}
