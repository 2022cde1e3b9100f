package ddp

import "unsafe"

// Registered memory may be the mapping of a file. When the file is cut off, or its disk fails, an access gets
// SIGBUS, which runtime/debug.SetPanicOnFault makes a panic with the address. That ends the region, and the
// streams that came to touch it.

// Offset returns where in the region the address lies.
func (m *MR) Offset(addr uintptr) (off uint64, ok bool) {
	return OffsetIn(m.mem, addr)
}

// OffsetIn returns where in mem the address lies.
func OffsetIn(mem []byte, addr uintptr) (off uint64, ok bool) {
	at := addr - uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return uint64(at), at < uintptr(len(mem))
}

// RevokeMemory says that the memory at addr cannot be accessed. Every STag that leads to it is revoked: peers hear
// that there is no such STag. It returns one of the regions, nil when there is none.
func (t *Table) RevokeMemory(addr uintptr) (found *MR) {
	var hit []*MR
	for i := range t.slots {
		if m := t.slots[i].mr; m != nil {
			if _, ok := m.Offset(addr); ok {
				hit = append(hit, m)
			}
		}
	}
	for _, m := range hit {
		found = m
		t.RevokeLost(m)
		if t.OnFault != nil {
			off, _ := m.Offset(addr)
			t.OnFault(m, off)
		}
	}
	return found
}

// RevokeLost revokes the STag of a region whose memory cannot be accessed, as another table's Fault found out.
// Unlike after Invalidate, octets that a peer has not acknowledged yet are still read from there, for as long
// as that is possible.
func (t *Table) RevokeLost(m *MR) {
	m.lost = true
	if m.state == mrValid {
		t.revoke(m, mrRevoked)
	}
}
