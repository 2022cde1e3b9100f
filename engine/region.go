package engine

import (
	"fmt"

	"xwarp/ddp"
)

// RegionError says that the memory of a region cannot be accessed. It ends the region, and the connections
// that came to touch that memory, and nothing else.
type RegionError struct {
	STag ddp.STag
	Off  uint64 // of the octet that was asked for
	Len  int    // of the region
}

func (e *RegionError) Error() string {
	return fmt.Sprintf("octet %d of the %d of memory region %#08x cannot be accessed: the file "+
		"behind it was shortened meanwhile, or its disk failed",
		e.Off, e.Len, uint32(e.STag))
}

// Failed is closed when the region's memory could not be accessed; Err says more. Its STag is invalid then.
func (m *MR) Failed() <-chan struct{} { return m.failed }

// Err returns why the region failed, nil while it has not.
func (m *MR) Err() error {
	select {
	case <-m.failed:
		return m.err
	default:
		return nil
	}
}

// own makes l one of the device's loops.
func (d *Device) own(l *loop) {
	l.dev = d
	l.table.OnFault = d.regionLost
	d.loops = append(d.loops, l)
}

// regionLost hears from a worker that memory could not be accessed: the kernel's SIGBUS is a panic on the
// goroutines that call debug.SetPanicOnFault, and package rdmap takes it from there. The other workers hear
// of it in their own time.
func (d *Device) regionLost(r *ddp.MR, off uint64) {
	m, ok := r.Owner().(*MR)
	if !ok {
		return
	}
	m.failing.Do(func() {
		m.err = &RegionError{r.STag(), off, len(m.mem)} // RegMR may still be at work on m
		d.contained.regions.Add(1)
		d.log.Error("memory region lost; its connections end, and its STag is revoked", "error",
			m.err,
			"next", "do not shorten files that are registered; open the export again with a reload")
		close(m.failed)
		for i, l := range d.loops {
			l.post(func() {
				if r := m.mrs[i]; r != nil && r.Valid() {
					l.table.Lose(r)
				}
			})
		}
	})
}
