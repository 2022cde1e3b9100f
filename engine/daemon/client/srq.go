package client

import (
	"context"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// SRQ is verbs.SRQ of a daemon.
type SRQ struct {
	object
	sge     int
	reached func() // verbs.SRQConfig.Limit; may be nil
	mem     []byte
	rq      postRing
}

// CreateSRQ implements verbs.Device. It calls SRQConfig.Limit on its own goroutine.
func (d *Device) CreateSRQ(cfg verbs.SRQConfig) (verbs.SRQ, error) {
	pd := own[*PD](d, cfg.PD)
	if pd == nil {
		return nil, verbs.Wrap("ibv_create_srq", verbs.ErrForeign)
	}
	var r control.CreateSRQResult
	files, err := d.open(context.Background(), control.OpCreateSRQ,
		control.CreateSRQArgs{PD: pd.handle, Depth: cfg.Depth, MaxSGE: cfg.MaxSGE}, &r, 1)
	if err != nil {
		return nil, err
	}
	s := &SRQ{object: object{dev: d, handle: r.Handle}, sge: r.MaxSGE, reached: cfg.Limit}
	if s.mem, err = mapShared(files[0], int(r.Recv.After())); err != nil {
		return nil, err
	}
	if err := s.rq.open(d, s.mem, r.Recv, r.Bell); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	d.srqs[s.handle] = s
	return s, nil
}

// onSRQLimit handles the daemon's event that fewer receives are posted than the limit of Arm.
func (d *Device) onSRQLimit(h control.Handle) {
	d.mu.Lock()
	s := d.srqs[h]
	d.mu.Unlock()
	if s != nil && s.reached != nil {
		go s.reached() // it may call the daemon
	}
}

// PostRecv implements verbs.SRQ.
func (s *SRQ) PostRecv(wr *verbs.RecvWR) error { return s.rq.postRecv(s.sge, wr) }

// Arm implements verbs.SRQ.
func (s *SRQ) Arm(limit int) error {
	return s.dev.ask(control.OpModifySRQ, control.ModifySRQArgs{Handle: s.handle, Limit: limit},
		nil)
}

// Len implements verbs.SRQ. It asks the daemon, and returns 0 if the daemon has exited.
func (s *SRQ) Len() int { return s.query().Posted }

// Limit implements verbs.SRQ. It asks the daemon, and returns 0 if the daemon has exited.
func (s *SRQ) Limit() int { return s.query().Limit }

// query returns zero if the daemon has exited: no receives are posted then.
func (s *SRQ) query() (r control.QuerySRQResult) {
	s.ask(control.OpQuerySRQ, &r)
	return r
}

// Close implements verbs.SRQ.
func (s *SRQ) Close() error { return s.closeOnce(s.destroy) }

func (s *SRQ) destroy() error {
	s.rq.setClosed(true)
	if err := s.ask(control.OpDestroySRQ, nil); err != nil {
		s.rq.setClosed(false)
		return err
	}
	s.dev.mu.Lock()
	delete(s.dev.srqs, s.handle)
	s.dev.mu.Unlock()
	return unix.Munmap(s.mem)
}
