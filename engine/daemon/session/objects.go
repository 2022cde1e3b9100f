package session

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"xwarp/ddp"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
)

// pd is a protection domain of a session. Session.mu guards the counts of the objects in it.
type pd struct {
	object
	pd   *core.PD
	mrs  int
	mws  int
	qps  int
	srqs int
}

func (*pd) String() string { return "protection domain" }

func (p *pd) numbers() (kind, object string) { return "pd", fmt.Sprintf("pdn %d", p.handle) }

func (p *pd) busy() error {
	return busyIf(p.mrs+p.mws+p.qps+p.srqs > 0, "ibv_dealloc_pd: %v", ddp.ErrBusy)
}

type mr struct {
	object
	pd      *pd
	mr      *core.MR
	mapping *control.Memory
	length  uint64
	access  ddp.Access
}

func (*mr) String() string { return "memory region" }

func (m *mr) numbers() (kind, object string) {
	return "mr", fmt.Sprintf("mrn %d mrlen %d", m.handle, m.length)
}

// renewDevice switches a session without protection domains to the device that has its device's name now. It fails if
// the device of the session is lost.
func (s *Session) renewDevice() error {
	s.mu.Lock()
	if len(objectsLocked[*pd](s)) == 0 {
		s.dev = device.Find(s.d.Devices(), s.dev.Name)
	}
	v := s.dev
	s.mu.Unlock()
	if err := v.Core.Err(); err != nil {
		return control.Errorf(control.CodeClosed,
			"device %s is lost: %v; next: %s", v.Name, err, v.Remedy())
	}
	return nil
}

func (s *Session) allocPD(*control.Request, []int) (any, error) {
	if err := s.renewDevice(); err != nil {
		return nil, err
	}
	p, err := charge(s, pdCost, s.dev.Core.NewPD)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return control.Object{Handle: s.addObject(&pd{pd: p})}, nil
}

func (s *Session) closePD(p *pd) error {
	err := p.pd.Close()
	s.account.Release(pdCost)
	return err
}

func (s *Session) regMR(a *control.RegMRArgs, files []int) (any, error) {
	if len(files) != 1 {
		return nil, fmt.Errorf("%w: reg_mr needs one descriptor, the memfd, but got %d",
			control.ErrFrame, len(files))
	}
	if a.Length == 0 || a.Length > control.MaxRegion || a.Offset > control.MaxOffset {
		return nil, fmt.Errorf("%w: region of %d bytes at offset %d", verbs.ErrInvalid, a.Length,
			a.Offset)
	}
	p, err := find[*pd](s, a.PD)
	if err != nil {
		return nil, err
	}
	m, err := charge(s, mrCost(a.Length), func() (*mr, error) { return s.mapMR(p, files[0], a) })
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.mrs++
	return control.RegMRResult{Handle: s.addObject(m), STag: m.mr.STag(),
		Base: m.mr.SGE(0, 0).TO}, nil
}

func (s *Session) mapMR(p *pd, fd int, a *control.RegMRArgs) (*mr, error) {
	written := a.Access&^(ddp.RemoteRead|ddp.BindMW) != 0
	mapping, mem, err := s.mapper.Map(s, fd, a.Offset, a.Length, written)
	if err != nil {
		return nil, fmt.Errorf("ibv_reg_mr: %w", err)
	}
	m, err := p.pd.RegMRIOVA(mem, a.Base, a.Access)
	if err != nil {
		mapping.Close()
		return nil, err
	}
	return &mr{pd: p, mr: m, mapping: mapping, length: a.Length, access: a.Access}, nil
}

func (s *Session) deregMR(m *mr) (any, error) { return nil, s.closeMR(m) }

// closeMR deregisters and unmaps a region. If it cannot deregister the region, the region stays. While connections are
// closing, TCP may still send bytes of the region: closeMR waits for them, at most lingerWait.
func (s *Session) closeMR(m *mr) error {
	for late := time.Now().Add(lingerWait); ; time.Sleep(lingerPause) {
		closing := slices.ContainsFunc(objectsOf[*qp](s), (*qp).isClosing) // before Close: it may end meanwhile
		err := verbs.IgnoreClosed(m.mr.Close())
		if err == nil {
			break
		}
		if !closing || !errors.Is(err, verbs.ErrBusy) || time.Now().After(late) {
			return err
		}
	}
	err := m.mapping.Close()
	s.mu.Lock()
	s.removeObject(m)
	m.pd.mrs--
	s.mu.Unlock()
	s.account.Release(mrCost(m.length))
	return err
}

func (s *Session) createCQ(a *control.CreateCQArgs) (any, error) {
	if a.Depth < 1 || a.Depth > control.MaxCQDepth {
		return nil, fmt.Errorf("%w: completion queue depth %d, at most %d", verbs.ErrInvalid,
			a.Depth, control.MaxCQDepth)
	}
	g := control.NewGeometry(0, a.Depth, control.CompletionSlot)
	if err := s.reserve(cqCost(g)); err != nil {
		return nil, err
	}
	c, peer, err := newCQ(s, g)
	if err != nil {
		s.account.Release(cqCost(g))
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return withFiles{control.CreateCQResult{Handle: s.addObject(c), Ring: g},
		[]int{c.mem.TakeFd(), peer}}, nil
}

// closeCQ closes c, which no queue pair may use any more.
func (s *Session) closeCQ(c *cq) error {
	c.close()
	s.closeRing(s.setNextRing(c, nil))
	s.account.Release(cqCost(c.geometry))
	return nil
}
