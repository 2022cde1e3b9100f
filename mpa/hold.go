package mpa

// hold keeps octets of one stream in blocks of the pool. Block k holds the stream octets [k*blockSize,
// (k+1)*blockSize); a ring of block numbers finds it. Each octet is stored once and released once.
type hold struct {
	pool   *HoldPool
	tab    []int32 // power of two: the pool's block + 1 for stream block k at k&(len-1), 0 for none
	blocks int     // blocks taken
	limit  int     // blocks
	octets int     // octets held
}

// init makes h empty; its blocks must have been released.
func (h *hold) init(pool *HoldPool, limit int) {
	clear(h.tab)
	*h = hold{pool: pool, tab: h.tab, limit: max(1, limit/blockSize)}
}

func (h *hold) slot(k int64) *int32 { return &h.tab[k&int64(len(h.tab)-1)] }

// store keeps b, which begins at off, and returns how many octets found room. floor is at or before the first
// octet held. over lets the bounds be exceeded.
func (h *hold) store(off int64, b []byte, floor int64, over bool) int {
	n := 0
	for n < len(b) {
		k := off >> blockBits
		if !h.reach(k, floor>>blockBits) {
			break
		}
		s := h.slot(k)
		if *s == 0 {
			if h.blocks >= h.limit && !over {
				break
			}
			i, ok := h.pool.block(over)
			if !ok {
				break
			}
			h.blocks++
			*s = i + 1
		}
		c := copy(h.pool.data(*s - 1)[off&(blockSize-1):], b[n:])
		h.pool.held[*s-1] += uint16(c)
		n += c
		off += int64(c)
	}
	h.octets += n
	return n
}

// reach makes the table span the blocks from floor to k.
func (h *hold) reach(k, floor int64) bool {
	span := k - floor + 1
	if span <= int64(len(h.tab)) {
		return true
	}
	if span > maxSpan>>blockBits {
		return false
	}
	size := int64(max(16, 2*len(h.tab)))
	for size < span {
		size *= 2
	}
	old := h.tab
	h.tab = make([]int32, size)
	for b := floor; b < floor+int64(len(old)); b++ {
		*h.slot(b) = old[b&int64(len(old)-1)]
	}
	return true
}

// at returns the octets from off to the end of its block, or nil when that block holds nothing.
func (h *hold) at(off int64) []byte {
	if len(h.tab) == 0 {
		return nil
	}
	s := *h.slot(off >> blockBits)
	if s == 0 {
		return nil
	}
	return h.pool.data(s - 1)[off&(blockSize-1):]
}

// release forgets the octets [from, to), all of which are held.
func (h *hold) release(from, to int64) {
	for from < to {
		s := h.slot(from >> blockBits)
		c := min(to, (from|(blockSize-1))+1) - from
		if *s == 0 {
			return
		}
		h.octets -= int(c)
		h.pool.held[*s-1] -= uint16(c)
		if h.pool.held[*s-1] == 0 {
			h.pool.freeBlock(*s - 1)
			h.blocks--
			*s = 0
		}
		from += c
	}
}

// drop forgets everything.
func (h *hold) drop() {
	for i, s := range h.tab {
		if s != 0 {
			h.pool.held[s-1] = 0
			h.pool.freeBlock(s - 1)
			h.tab[i] = 0
		}
	}
	h.blocks, h.octets = 0, 0
}

// space returns how many octets h can still take within its bounds.
func (h *hold) space() int {
	return max(0, min(h.limit-h.blocks, h.pool.limit-h.pool.used)) * blockSize
}
