package mpa

// MULPDU returns the largest ULPDU whose FPDU fits one segment wherever it begins (RFC 5044, 4.5), never
// below MinMULPDU.
func (s *Sender) MULPDU() int { return s.cfg.MULPDU(s.emss) }

// MULPDU returns the largest ULPDU whose FPDU fits room bytes wherever it begins (RFC 5044, 4.5), never
// below MinMULPDU.
func (f Framing) MULPDU(room int) int {
	n := room - (lengthLen + crcLen + room%4)
	if f.Markers {
		n -= MarkerLen * ((room + MarkerInterval - 1) / MarkerInterval)
	}
	return min(max(n, MinMULPDU), MaxULPDU)
}
