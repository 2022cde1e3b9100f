package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/ddp"
	"xwarp/engine"
	"xwarp/engine/daemon/control"
)

// Access rights of a memory region.
const (
	LocalWrite   = engine.LocalWrite
	RemoteRead   = engine.RemoteRead
	RemoteWrite  = engine.RemoteWrite
	RemoteAtomic = engine.RemoteAtomic
)

// arena is memory that the daemon can map.
type arena struct {
	fd  int
	mem []byte
}

// ErrNotShared is wrapped when memory for a region is not from Device.Alloc.
var ErrNotShared = errors.New(
	"the memory is not from this device's Alloc, so the daemon cannot map it")

// Alloc returns n octets of zeroed, page-aligned memory for regions.
func (d *Device) Alloc(n int) ([]byte, error) {
	if n <= 0 {
		return nil, fmt.Errorf("%d octets of memory: there must be one at least", n)
	}
	m, err := control.NewMemory("xwarp-mr", n)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.arenas = append(d.arenas, &arena{m.Fd, m.Mem})
	d.mu.Unlock()
	return m.Mem[:n:n], nil
}

// Free gives memory back that Alloc returned. No region may be in it any more.
func (d *Device) Free(mem []byte) error {
	d.mu.Lock()
	i := slices.IndexFunc(d.arenas, func(a *arena) bool {
		return len(mem) > 0 && &a.mem[0] == &mem[0]
	})
	if i < 0 {
		d.mu.Unlock()
		return ErrNotShared
	}
	a := d.arenas[i]
	d.arenas = slices.Delete(d.arenas, i, i+1)
	d.mu.Unlock()
	return errors.Join(unix.Munmap(a.mem), unix.Close(a.fd))
}

// locate finds the arena that mem is in. A duplicate of its descriptor is the caller's.
func (d *Device) locate(mem []byte) (fd int, offset uint64, err error) {
	if len(mem) == 0 {
		return -1, 0, ddp.ErrAttr
	}
	at := uintptr(unsafe.Pointer(&mem[0]))
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.arenas {
		base := uintptr(unsafe.Pointer(&a.mem[0]))
		if at >= base && at-base < uintptr(len(a.mem)) &&
			uintptr(len(mem)) <= uintptr(len(a.mem))-(at-base) {
			fd, err := unix.FcntlInt(uintptr(a.fd), unix.F_DUPFD_CLOEXEC, 0)
			return fd, uint64(at - base), err
		}
	}
	return -1, 0, ErrNotShared
}

// PD is a protection domain: the queue pairs in it reach the memory regions in it and no others.
type PD struct {
	dev    *Device
	handle control.Handle
}

// AllocPD makes a protection domain.
func (d *Device) AllocPD() (*PD, error) {
	var r control.Object
	if err := d.ask(control.OpAllocPD, nil, &r); err != nil {
		return nil, err
	}
	return &PD{d, r.Handle}, nil
}

// Close gives the domain back; it fails while regions or queue pairs are in it.
func (p *PD) Close() error {
	return p.dev.ask(control.OpFreePD, control.Object{Handle: p.handle}, nil)
}

// MR is a registered memory region. Its STag and base are what a peer needs to reach it.
type MR struct {
	dev    *Device
	handle control.Handle
	stag   ddp.STag
	base   ddp.TO
	mem    []byte
}

// RegMR registers mem, which is a piece of what Device.Alloc returned. The caller keeps mem and must not free
// it before Close returned.
func (p *PD) RegMR(mem []byte, access ddp.Access) (*MR, error) {
	fd, offset, err := p.dev.locate(mem)
	if err != nil {
		return nil, fmt.Errorf("ibv_reg_mr of %d octets: %w", len(mem), err)
	}
	defer unix.Close(fd)
	if err := populate(fd, offset, uint64(len(mem))); err != nil {
		return nil, err
	}
	return p.register(fd, offset, uint64(len(mem)), access, mem)
}

// RegMRFd registers length octets at offset of a memfd of the caller's own, which has F_SEAL_SHRINK. Bytes of
// the region is nil. Nobody may punch holes into it before Close returned: the region would be lost, and the
// connections that come to touch the hole.
func (p *PD) RegMRFd(fd int, offset, length uint64, access ddp.Access) (*MR, error) {
	if err := populate(fd, offset, length); err != nil {
		return nil, err
	}
	return p.register(fd, offset, length, access, nil)
}

// populate makes pages where a memfd has holes, as the daemon wants it: pages belong to the control group of
// who touches them first. What cannot be mapped is the daemon's to refuse.
func populate(fd int, offset, length uint64) error {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || length == 0 || offset > uint64(st.Size) ||
		length > uint64(st.Size)-offset {
		return nil
	}
	slack := offset % uint64(os.Getpagesize())
	mem, err := unix.Mmap(fd, int64(offset-slack), int(length+slack), unix.PROT_READ,
		unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	defer unix.Munmap(mem)
	if err := unix.Madvise(mem, unix.MADV_POPULATE_READ); err != nil {
		return fmt.Errorf("ibv_reg_mr of %d octets: %w", length, err)
	}
	return nil
}

func (p *PD) register(fd int, offset, length uint64, access ddp.Access, mem []byte) (*MR, error) {
	var r control.RegMRResult
	args := control.RegMRArgs{PD: p.handle, Offset: offset, Length: length, Access: access}
	files, err := p.dev.call(context.Background(), control.OpRegMR, args, &r, fd)
	control.CloseAll(files)
	if err != nil {
		return nil, err
	}
	return &MR{dev: p.dev, handle: r.Handle, stag: r.STag, base: r.Base, mem: mem}, nil
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
	return m.dev.ask(control.OpDeregMR, control.Object{Handle: m.handle}, nil)
}
