package core

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"xwarp/ddp"
	"xwarp/engine/verbs"
)

// MR is verbs.MR of the engine.
type MR struct {
	pd  *PD
	mrs []*ddp.MR // one per worker, all with the same STag; nil once deregistered there
	mem []byte
	at  verbs.RemoteMR

	turn atomic.Uint64 // see ddp.Attr.Invalidations

	failing  sync.Once
	failed   chan struct{}
	followed atomic.Bool // Failed was called: its caller reports the loss
	err      error
}

// RegMR implements verbs.PD. The TO of the first byte is 0.
func (p *PD) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	m, err := p.RegMRIOVA(mem, 0, access)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// RegMRIOVA is RegMR with iova as the TO of the first byte, for C programs, which tell their peers memory addresses. It
// fails as RegMR does.
func (p *PD) RegMRIOVA(mem []byte, iova verbs.TO, access verbs.Access) (*MR, error) {
	m := &MR{pd: p, mrs: make([]*ddp.MR, len(p.pds)), mem: mem, failed: make(chan struct{})}
	attr := ddp.Attr{Access: access, Base: iova, Owner: m}
	if len(p.pds) > 1 {
		attr.Invalidations = &m.turn
	}
	err := p.dev.onEach(func(s *Shard) (err error) {
		one := &m.mrs[s.index]
		if *one, err = s.table.Register(p.pds[s.index], mem, attr); err == nil {
			attr.STag = (*one).STag()
		}
		return err
	})
	if err != nil {
		m.deregister()
		return nil, verbs.Wrap(fmt.Sprintf("ibv_reg_mr of %d bytes", len(mem)), err)
	}
	m.at = verbs.RemoteMR{
		Access: access & verbs.RemoteRights, STag: attr.STag, Base: m.mrs[0].Base(),
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

// deregister removes the region from all workers. It checks each of them first, so that a busy region stays valid
// everywhere.
func (m *MR) deregister() error {
	err := m.pd.dev.onEach(func(s *Shard) error {
		if one := m.mrs[s.index]; one != nil && s.table.InUse(one) {
			return verbs.ErrBusy
		}
		return nil
	})
	if err != nil {
		return err
	}
	return freeEach(m.pd.dev, m.mrs, (*ddp.Table).Deregister)
}

// RegionError reports that the memory of a region is inaccessible. The region is revoked and the connections that
// accessed it end; nothing else is affected.
type RegionError struct {
	STag ddp.STag
	Off  uint64 // offset of the byte that was accessed
	Len  int    // length of the region
}

func (e *RegionError) Error() string {
	return fmt.Sprintf("byte %d of the %d of memory region %#08x cannot be accessed: the file "+
		"behind it was shortened meanwhile, or its disk failed",
		e.Off, e.Len, uint32(e.STag))
}

// Failed returns a channel that is closed when the region's memory became inaccessible. Err returns the cause, and the
// STag is invalid then. A program that calls Failed reports the loss itself; the device logs the loss of all other
// regions.
func (m *MR) Failed() <-chan struct{} {
	m.followed.Store(true)
	return m.failed
}

// Err returns the error with which the region failed, or nil.
func (m *MR) Err() error {
	select {
	case <-m.failed:
		return m.err
	default:
		return nil
	}
}

// regionLost is called by a worker that could not access memory. SIGBUS becomes a panic on goroutines that call
// debug.SetPanicOnFault, and package rdmap recovers from it. The other workers revoke the STag in their next turn.
func (d *Device) regionLost(r *ddp.MR, off uint64) {
	m, ok := r.Owner().(*MR)
	if !ok {
		return
	}
	m.failing.Do(func() {
		m.err = &RegionError{r.STag(), off, len(m.mem)} // not m.at.STag: RegMR may not have set it yet
		d.contained.regions.Add(1)
		if !m.followed.Load() {
			d.log.Error("memory region lost: closing its connections, revoking its STag", "error",
				m.err, "next", "do not truncate registered files")
		}
		close(m.failed)
		for _, s := range d.shards {
			s.Post(func() {
				if r := m.mrs[s.index]; r != nil && r.Valid() {
					s.table.RevokeLost(r)
				}
			})
		}
	})
}

// Alloc implements verbs.Device.
func (d *Device) Alloc(n int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of memory: %w", n, err)
	}
	return mem, nil
}

// Free implements verbs.Device.
func (d *Device) Free(mem []byte) error { return unix.Munmap(mem) }
