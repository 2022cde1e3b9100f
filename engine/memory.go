package engine

import (
	"fmt"
	"sync"

	"xwarp/ddp"
)

// Access rights of a memory region.
const (
	LocalWrite   = ddp.LocalWrite
	RemoteRead   = ddp.RemoteRead
	RemoteWrite  = ddp.RemoteWrite
	RemoteAtomic = ddp.RemoteAtomic
)

// PD is a protection domain: the queue pairs in it reach the memory regions in it and no others.
type PD struct {
	dev *Device
	pds []*ddp.PD // one per worker; nil once freed there
}

// MR is a registered memory region. Its STag and base are what a peer needs to reach it.
type MR struct {
	pd   *PD
	mrs  []*ddp.MR // one per worker, all with the same STag; nil once deregistered there
	mem  []byte
	stag ddp.STag
	base ddp.TO

	failing sync.Once
	failed  chan struct{}
	err     error
}

// AllocPD makes a protection domain.
func (d *Device) AllocPD() (*PD, error) {
	pd := &PD{dev: d, pds: make([]*ddp.PD, len(d.loops))}
	err := d.onEach(func(i int, l *loop) (err error) {
		pd.pds[i], err = l.table.AllocPD()
		return err
	})
	if err != nil {
		pd.Close()
		return nil, fmt.Errorf("ibv_alloc_pd: %w", err)
	}
	return pd, nil
}

// Close gives the domain back; it fails with ddp.ErrBusy while regions or queue pairs are in it. It may be
// called again then.
func (p *PD) Close() error {
	return p.dev.onEach(func(i int, l *loop) error {
		if p.pds[i] == nil {
			return nil
		}
		err := l.table.FreePD(p.pds[i])
		if err == nil {
			p.pds[i] = nil
		}
		return err
	})
}

// RegMR registers mem. The caller keeps mem and must not unmap it before Close returned; while a peer may
// write to it, its octets change at any time. Offsets count from 0: an address in the region is its TO.
func (p *PD) RegMR(mem []byte, access ddp.Access) (*MR, error) {
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
		return nil, fmt.Errorf("ibv_reg_mr of %d octets: %w", len(mem), err)
	}
	m.stag, m.base = m.mrs[0].STag(), m.mrs[0].Base()
	return m, nil
}

// STag returns the tag that names the region.
func (m *MR) STag() ddp.STag { return m.stag }

// Bytes returns the memory.
func (m *MR) Bytes() []byte { return m.mem }

// SGE returns the piece of n octets at off.
func (m *MR) SGE(off, n int) SGE {
	return SGE{STag: m.stag, TO: m.base + ddp.TO(off), Len: uint32(n)}
}

// Close makes the STag name nothing; it fails with ddp.ErrBusy while work requests point into the region.
func (m *MR) Close() error {
	if err := m.deregister(); err != nil {
		return fmt.Errorf("ibv_dereg_mr: %w", err)
	}
	return nil
}

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
