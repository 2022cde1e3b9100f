package mpa

// reassembly keeps octets of one stream in blocks of the pool. Block k holds the stream octets [k*blockSize,
// (k+1)*blockSize); a ring of block numbers finds it. Each octet is stored once and released once.
type reassembly struct {
	pool   *Pool
	tab    []int32 // power of two: the pool's block + 1 for stream block k at k&(len-1), 0 for none
	blocks int     // blocks taken
	limit  int     // blocks
	octets int     // octets held
}

// init makes m empty; its blocks must have been released.
func (m *reassembly) init(pool *Pool, limit int) {
	clear(m.tab)
	*m = reassembly{pool: pool, tab: m.tab, limit: max(1, limit/blockSize)}
}

func (m *reassembly) slot(k int64) *int32 { return &m.tab[k&int64(len(m.tab)-1)] }

// store keeps b, which begins at off, and returns how many octets found room. floor is at or before the first
// octet held. over lets the bounds be exceeded.
func (m *reassembly) store(off int64, b []byte, floor int64, over bool) int {
	n := 0
	for n < len(b) {
		k := off >> blockBits
		if !m.reach(k, floor>>blockBits) {
			break
		}
		s := m.slot(k)
		if *s == 0 {
			if m.blocks >= m.limit && !over {
				break
			}
			i, ok := m.pool.block(over)
			if !ok {
				break
			}
			m.blocks++
			*s = i + 1
		}
		c := copy(m.pool.data(*s - 1)[off&(blockSize-1):], b[n:])
		m.pool.inUse[*s-1] += uint16(c)
		n += c
		off += int64(c)
	}
	m.octets += n
	return n
}

// reach makes the table span the blocks from floor to k.
func (m *reassembly) reach(k, floor int64) bool {
	span := k - floor + 1
	if span <= int64(len(m.tab)) {
		return true
	}
	if span > maxSpan>>blockBits {
		return false
	}
	size := int64(max(16, 2*len(m.tab)))
	for size < span {
		size *= 2
	}
	old := m.tab
	m.tab = make([]int32, size)
	for b := floor; b < floor+int64(len(old)); b++ {
		*m.slot(b) = old[b&int64(len(old)-1)]
	}
	return true
}

// at returns the octets from off to the end of its block, or nil when that block holds nothing.
func (m *reassembly) at(off int64) []byte {
	if len(m.tab) == 0 {
		return nil
	}
	s := *m.slot(off >> blockBits)
	if s == 0 {
		return nil
	}
	return m.pool.data(s - 1)[off&(blockSize-1):]
}

// release forgets the octets [from, to), all of which are held.
func (m *reassembly) release(from, to int64) {
	for from < to {
		s := m.slot(from >> blockBits)
		c := min(to, (from|(blockSize-1))+1) - from
		if *s == 0 {
			return
		}
		m.octets -= int(c)
		m.pool.inUse[*s-1] -= uint16(c)
		if m.pool.inUse[*s-1] == 0 {
			m.pool.freeBlock(*s - 1)
			m.blocks--
			*s = 0
		}
		from += c
	}
}

// drop forgets everything.
func (m *reassembly) drop() {
	for i, s := range m.tab {
		if s != 0 {
			m.pool.inUse[s-1] = 0
			m.pool.freeBlock(s - 1)
			m.tab[i] = 0
		}
	}
	m.blocks, m.octets = 0, 0
}

// space returns how many octets m can still take within its bounds.
func (m *reassembly) space() int {
	return max(0, min(m.limit-m.blocks, m.pool.limit-m.pool.used)) * blockSize
}
