package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/ddp"
	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// Alloc implements verbs.Device.
func (d *Device) Alloc(n int) ([]byte, error) {
	if n <= 0 {
		return nil, fmt.Errorf("%d bytes of memory: %w", n, unix.EINVAL)
	}
	m, err := control.NewMemory("xwarp-mr", n)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.arenas = append(d.arenas, m)
	d.mu.Unlock()
	return m.Mem[:n:n], nil
}

// Free implements verbs.Device.
func (d *Device) Free(mem []byte) error {
	d.mu.Lock()
	i := slices.IndexFunc(d.arenas, func(a *control.Memory) bool {
		return len(mem) > 0 && &a.Mem[0] == &mem[0]
	})
	if i < 0 {
		d.mu.Unlock()
		return fmt.Errorf("%w: memory not allocated by Alloc of this device", verbs.ErrInvalid)
	}
	a := d.arenas[i]
	d.arenas = slices.Delete(d.arenas, i, i+1)
	d.mu.Unlock()
	return a.Close()
}

// locate finds the arena that contains mem. It returns a duplicate of its descriptor, which the caller closes.
func (d *Device) locate(mem []byte) (fd int, offset uint64, err error) {
	if len(mem) == 0 {
		return -1, 0, ddp.ErrAttr
	}
	at := uintptr(unsafe.Pointer(&mem[0]))
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.arenas {
		off := at - uintptr(unsafe.Pointer(&a.Mem[0]))
		if a.Holds(at) && uintptr(len(mem)) <= uintptr(len(a.Mem))-off {
			fd, err := unix.FcntlInt(uintptr(a.Fd), unix.F_DUPFD_CLOEXEC, 0)
			return fd, uint64(off), err
		}
	}
	return -1, 0, verbs.ErrNotShared
}

// PD is verbs.PD of a daemon.
type PD struct {
	object
}

// AllocPD implements verbs.Device.
func (d *Device) AllocPD() (verbs.PD, error) {
	var r control.Object
	if err := d.ask(control.OpAllocPD, nil, &r); err != nil {
		return nil, err
	}
	return &PD{object: object{dev: d, handle: r.Handle}}, nil
}

// Close implements verbs.PD.
func (p *PD) Close() error { return p.closeBy(control.OpFreePD) }

// MR is verbs.MR of a daemon.
type MR struct {
	object
	at  verbs.RemoteMR
	mem []byte
}

// RegMR implements verbs.PD. mem must be part of a buffer from Device.Alloc.
func (p *PD) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	fd, offset, err := p.dev.locate(mem)
	if err != nil {
		return nil, verbs.Wrap(fmt.Sprintf("ibv_reg_mr of %d bytes", len(mem)), err)
	}
	defer unix.Close(fd)
	if err := populate(fd, offset, uint64(len(mem))); err != nil {
		return nil, err
	}
	return p.register(fd, offset, uint64(len(mem)), access, mem)
}

// RegMRFd registers length bytes at offset of a memfd, or of a file on tmpfs or hugetlbfs, that is open for reading and
// writing. MR.Bytes returns nil. The file must not be truncated or punched before Close returns: that loses the region
// and the connections that access the missing part. It fails as RegMR does, and with EINVAL for any other descriptor.
func (p *PD) RegMRFd(fd int, offset, length uint64, access verbs.Access) (verbs.MR, error) {
	if err := populate(fd, offset, length); err != nil {
		return nil, err
	}
	return p.register(fd, offset, length, access, nil)
}

// populate fills holes of a file with pages, as the daemon requires, because a page is charged to the control group
// that touches it first. It makes the pages dirty, because the kernel may reclaim clean unmapped pages. For a
// descriptor that cannot be mapped it does nothing: the daemon refuses that.
func populate(fd int, offset, length uint64) error {
	var st unix.Stat_t
	page, err := control.PageSize(fd)
	if err != nil || unix.Fstat(fd, &st) != nil || length == 0 || offset > uint64(st.Size) ||
		length > uint64(st.Size)-offset {
		return nil
	}
	slack := offset % page
	whole := int(control.WholePages(slack+length, page))
	prot, advice := unix.PROT_READ|unix.PROT_WRITE, unix.MADV_POPULATE_WRITE
	mem, err := unix.Mmap(fd, int64(offset-slack), whole, prot, unix.MAP_SHARED)
	if errors.Is(err, unix.EPERM) { // sealed against writing: populate for reading
		prot, advice = unix.PROT_READ, unix.MADV_POPULATE_READ
		mem, err = unix.Mmap(fd, int64(offset-slack), whole, prot, unix.MAP_SHARED)
	}
	if err != nil {
		return nil
	}
	defer unix.Munmap(mem)
	if err := unix.Madvise(mem, advice); err != nil {
		return verbs.Wrap(fmt.Sprintf("ibv_reg_mr of %d bytes", length), err)
	}
	return nil
}

func (p *PD) register(fd int, offset, length uint64, access verbs.Access,
	mem []byte) (*MR, error) {
	var r control.RegMRResult
	args := control.RegMRArgs{PD: p.handle, Offset: offset, Length: length, Access: access}
	if err := p.dev.call(context.Background(), control.OpRegMR, args, &r, fd); err != nil {
		return nil, err
	}
	at := verbs.RemoteMR{
		Access: access & verbs.RemoteRights, STag: r.STag, Base: r.Base, Length: length,
	}
	return &MR{object: object{dev: p.dev, handle: r.Handle}, at: at, mem: mem}, nil
}

// STag implements verbs.MR.
func (m *MR) STag() verbs.STag { return m.at.STag }

// Remote implements verbs.MR.
func (m *MR) Remote() verbs.RemoteMR { return m.at }

// Bytes implements verbs.MR. It returns nil for a region made by RegMRFd.
func (m *MR) Bytes() []byte { return m.mem }

// SGE implements verbs.MR.
func (m *MR) SGE(off, n int) verbs.SGE {
	return verbs.SGE{STag: m.at.STag, TO: m.at.Base + verbs.TO(off), Len: uint32(n)}
}

// Err implements verbs.MR. It always returns nil: memory from Alloc is never lost, and the daemon does not report that
// a region of RegMRFd is.
func (m *MR) Err() error { return nil }

// Close implements verbs.MR.
func (m *MR) Close() error { return m.closeBy(control.OpDeregMR) }

// MW is verbs.MW of a daemon.
type MW struct {
	object
	stag verbs.STag
}

// AllocMW implements verbs.PD.
func (p *PD) AllocMW() (verbs.MW, error) {
	var r control.AllocMWResult
	args := control.AllocMWArgs{PD: p.handle}
	if err := p.dev.call(context.Background(), control.OpAllocMW, args, &r); err != nil {
		return nil, err
	}
	return &MW{object: object{dev: p.dev, handle: r.Handle}, stag: r.STag}, nil
}

// STag implements verbs.MW.
func (w *MW) STag() verbs.STag { return w.stag }

// Close implements verbs.MW.
func (w *MW) Close() error { return w.closeBy(control.OpDeallocMW) }
