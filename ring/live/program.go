package live

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	metaLen  = 8
	magic    = 0x78776c66 // LIVE_MAGIC of bpf/live.h
	runLive  = 1 << 1     // BPF_F_TEST_XDP_LIVE_FRAMES
	maxBatch = 32         // frames at a time: pages come back within the call, and stay in the cache
)

// Program runs a steering program over live frames. It belongs to one worker.
type Program struct {
	attr runAttr
	ctx  xdpContext
	page [metaLen + Room]byte // what each page of the pool begins as
}

// runAttr is the part of union bpf_attr that is for BPF_PROG_RUN.
type runAttr struct {
	program, retval, sizeIn, sizeOut uint32
	dataIn, dataOut                  uint64
	repeat, duration                 uint32
	ctxSizeIn, ctxSizeOut            uint32
	ctxIn, ctxOut                    uint64
	flags, cpu, batch, _             uint32
}

// xdpContext is struct xdp_md: where data and metadata lie in the page.
type xdpContext struct {
	data, end, meta, ifindex, queue, egress uint32
}

// NewProgram returns the Program of a worker; fd is the program's descriptor.
func NewProgram(fd int, worker uint32) *Program {
	p := &Program{ctx: xdpContext{data: metaLen, end: uint32(metaLen + Room)}}
	binary.NativeEndian.PutUint32(p.page[:], magic)
	binary.NativeEndian.PutUint32(p.page[4:], worker)
	p.attr = runAttr{
		program: uint32(fd), sizeIn: uint32(len(p.page)),
		dataIn:    uint64(uintptr(unsafe.Pointer(&p.page))),
		ctxSizeIn: uint32(unsafe.Sizeof(p.ctx)), ctxIn: uint64(uintptr(unsafe.Pointer(&p.ctx))),
		flags: runLive,
	}
	return p
}

// Run implements Runner.
func (p *Program) Run(n int) unix.Errno {
	p.attr.repeat, p.attr.batch = uint32(n), min(uint32(n), maxBatch)
	// A system call without notice to the Go scheduler, as Socket.Flush's in package ring.
	_, _, e := unix.RawSyscall(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN,
		uintptr(unsafe.Pointer(&p.attr)), unsafe.Sizeof(p.attr))
	return e
}
