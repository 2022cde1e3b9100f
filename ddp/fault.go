package ddp

import "unsafe"

// Registered memory may be the mapping of a file. If the file is truncated, or its disk fails, an access gets SIGBUS,
// which runtime/debug.SetPanicOnFault turns into a panic with the address. That revokes the STag of the region, and
// ends the streams that access it.

// Offset returns the offset of the address in the region, and whether the region contains it.
func (m *MR) Offset(addr uintptr) (off uint64, ok bool) {
	return OffsetIn(m.mem, addr)
}

// OffsetIn returns the offset of the address in mem, and whether mem contains it.
func OffsetIn(mem []byte, addr uintptr) (off uint64, ok bool) {
	at := addr - uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return uint64(at), at < uintptr(len(mem))
}

// RevokeMemory revokes the STags of all regions that contain addr, because the memory there cannot be accessed. Peers
// then get the error for an unknown STag. It returns one of the regions, or nil if there is none.
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

// RevokeLost revokes the STag of a region whose memory cannot be accessed, as RevokeMemory of another table found.
// Unlike after Invalidate, bytes that a peer has not acknowledged are still read from it while that is possible.
func (t *Table) RevokeLost(m *MR) {
	m.lost = true
	if m.state == mrValid {
		t.revoke(m, mrRevoked)
	}
}
