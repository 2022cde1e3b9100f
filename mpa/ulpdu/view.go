package ulpdu

// View is one received ULPDU: its octets in stream order, in pieces, without length field, markers, pad and CRC.
// The pieces alias receive buffers: a View and all that aliases it are valid only during the call that received it.
type View struct {
	pieces [][]byte
	n      int
}

// ViewOf returns a View over the given pieces, which it keeps.
func ViewOf(pieces ...[]byte) View {
	v := View{pieces: pieces}
	for _, p := range pieces {
		v.n += len(p)
	}
	return v
}

// Reset empties v and keeps its room for pieces.
func (v *View) Reset() { v.pieces, v.n = v.pieces[:0], 0 }

// Append adds p, which v aliases, behind the octets that v has. Empty pieces are left out.
func (v *View) Append(p []byte) {
	if len(p) > 0 {
		v.pieces = append(v.pieces, p)
		v.n += len(p)
	}
}

// Len returns the number of octets of the ULPDU, 0 to 64768.
func (v *View) Len() int { return v.n }

// Pieces returns the octets piece by piece; the caller must not change or keep them.
func (v *View) Pieces() [][]byte { return v.pieces }

// Header returns the first n octets in one piece, fewer when the ULPDU is shorter. It aliases the first piece when that
// is long enough, and is copied into scratch, which must hold n octets, otherwise.
func (v *View) Header(n int, scratch []byte) []byte {
	n = min(n, v.n)
	if n == 0 {
		return nil
	}
	if p := v.pieces[0]; len(p) >= n {
		return p[:n:n]
	}
	return scratch[:v.CopyTo(scratch[:min(n, len(scratch))], 0)]
}

// CopyTo copies the octets from off on into dst and returns how many: the smaller of len(dst) and Len()-off.
func (v *View) CopyTo(dst []byte, off int) int {
	if off < 0 || off >= v.n {
		return 0
	}
	if len(v.pieces) == 1 {
		return copy(dst, v.pieces[0][off:])
	}
	n := 0
	for _, p := range v.pieces {
		if off >= len(p) {
			off -= len(p)
			continue
		}
		n += copy(dst[n:], p[off:])
		off = 0
		if n == len(dst) {
			break
		}
	}
	return n
}
