package ulpdu

// View is one received ULPDU: its bytes in stream order, in pieces, without length field, markers, pad and CRC. The
// pieces alias receive buffers. A View, and everything that aliases it, is valid only during the call that received it.
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

// Reset empties v and keeps its capacity for pieces.
func (v *View) Reset() { v.pieces, v.n = v.pieces[:0], 0 }

// Append adds p, which v aliases, behind the bytes of v. An empty p is ignored.
func (v *View) Append(p []byte) {
	if len(p) > 0 {
		v.pieces = append(v.pieces, p)
		v.n += len(p)
	}
}

// Len returns the number of bytes of the ULPDU, 0 to 64768.
func (v *View) Len() int { return v.n }

// Pieces returns the bytes piece by piece; the caller must not change or keep them.
func (v *View) Pieces() [][]byte { return v.pieces }

// Header returns the first n bytes in one piece, or fewer if the ULPDU is shorter. The result aliases the first piece
// if that is long enough. Otherwise it is copied into scratch, which must hold n bytes.
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

// CopyTo copies the bytes from off on into dst and returns how many: the smaller of len(dst) and Len()-off. It returns
// 0 if off is not in the ULPDU.
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
