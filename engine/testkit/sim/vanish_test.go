package sim

import (
	"fmt"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"xwarp/engine/stack"
)

// vanishing draws whether some regions of the scenario become inaccessible while in use, like the mapping of a
// truncated file. The streams that access them must end, and no others.
func (w *wide) vanishing(cfg *HostConfig) {
	drawn := w.rnd
	defer func() { w.rnd = drawn }()
	w.draws("vanishing memory")
	if w.vanish = w.one(6) && !w.off("vanishing memory"); w.vanish {
		debug.SetPanicOnFault(true) // of this goroutine
		cfg.Defect = func(d *stack.Defect) { w.world.Fail(fmt.Errorf("%v\n%s", d.Value, d.Trace)) }
	}
}

// memory returns n bytes for a region. They can vanish if that is how the connection is to end.
func (c *rdmaConn) memory(n int) []byte {
	if c.cfg.early != endVanish {
		return make([]byte, n)
	}
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	c.s.wide.mapped = append(c.s.wide.mapped, b)
	return b
}

// unmap unmaps the memory, which is no longer used.
func (w *wide) unmap() {
	for _, b := range w.mapped {
		if err := unix.Munmap(b); err != nil {
			panic(err)
		}
	}
	w.mapped = nil
}

// lose makes the memory of e inaccessible.
func (e *rdmaEnd) lose() {
	if err := unix.Mprotect(e.mem, unix.PROT_NONE); err != nil {
		e.fail("Mprotect: %v", err)
	}
	e.vanished = true
}

// find makes vanished memory accessible again, for checks after the end.
func (e *rdmaEnd) find() {
	if !e.vanished {
		return
	}
	if err := unix.Mprotect(e.mem, unix.PROT_READ); err != nil {
		e.fail("Mprotect: %v", err)
	}
	e.vanished = false
}
