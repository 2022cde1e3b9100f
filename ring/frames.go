package ring

import (
	"bytes"
	"fmt"
	"unsafe"
)

// Owner is the party that may access a chunk.
type Owner uint8

// Owners of chunks.
const (
	OwnerFree       Owner = iota // no owner: the chunk is in the free list
	OwnerFill                    // the kernel, to receive into
	OwnerRx                      // the reader, from Recv until Release
	OwnerTx                      // the writer, from AllocTx until Flush passes the slot on
	OwnerCompletion              // the kernel, until the transmission is reported complete
	numOwners
)

var ownerNames = [numOwners]string{"free", "fill", "rx", "tx", "completion"}

// String returns the name of o.
func (o Owner) String() string {
	if o < numOwners {
		return ownerNames[o]
	}
	return fmt.Sprintf("Owner(%d)", uint8(o))
}

// Census is the number of chunks that each Owner has.
type Census [numOwners]uint32

// Total returns the number of chunks of all owners.
func (c Census) Total() (n uint32) {
	for _, v := range c {
		n += v
	}
	return n
}

// String lists the owners: "free 3 fill 5 ...".
func (c Census) String() string {
	var b []byte
	for o, v := range c {
		b = fmt.Appendf(b, "%s%v %d", " "[:min(o, 1)], Owner(o), v)
	}
	return string(b)
}

// frames tracks the owners of all chunks of a UMEM. Receive chunks and transmit slots are numbered from 0.
type frames struct {
	rx     []Owner
	tx     []Owner
	open   []uint8 // per slot: the constant queued, or the number of descriptors that the kernel has not completed
	rxFree []uint32
	txFree []uint32
	slot   uint32 // chunks per slot
	shift  uint8  // log2 of the bytes of a chunk
	count  Census

	misuse uint64 // refused operations on chunks of another owner
	first  string // first such operation
}

// queued marks in frames.open a slot that was sent and not yet flushed.
const queued = 0xff

func newFrames(c *Config, shift uint8) frames {
	f := frames{
		rx: make([]Owner, c.RxFrames), rxFree: make([]uint32, 0, c.RxFrames),
		tx: make([]Owner, c.TxSlots), txFree: make([]uint32, 0, c.TxSlots),
		open: make([]uint8, c.TxSlots), slot: c.TxSlot, shift: shift,
	}
	// the lists are stacks; low addresses are used first
	for i := c.RxFrames; i > 0; i-- {
		f.rxFree = append(f.rxFree, i-1)
	}
	for i := c.TxSlots; i > 0; i-- {
		f.txFree = append(f.txFree, i-1)
	}
	f.count[OwnerFree] = c.Frames()
	return f
}

// chunkAt returns the number of the chunk at an offset in the UMEM.
func (f *frames) chunkAt(offset uint64) uint64 { return offset >> (f.shift & 63) }

// fits reports whether the n bytes at offset in the UMEM lie within one chunk.
func (f *frames) fits(offset uint64, n uint32) bool {
	size := uint64(1) << (f.shift & 63)
	return offset&(size-1)+uint64(n) <= size
}

// moveRx gives receive chunk i from one owner to another. If from is not its owner, moveRx records a misuse and returns
// false.
func (f *frames) moveRx(i uint32, from, to Owner) bool {
	if i >= uint32(len(f.rx)) || f.rx[i] != from {
		f.reportMisuse("receive chunk", i, f.rx, from, to)
		return false
	}
	f.rx[i] = to
	f.count[from]--
	f.count[to]++
	return true
}

// moveTx gives transmit slot i from one owner to another. If from is not its owner, moveTx records a misuse and returns
// false.
func (f *frames) moveTx(i uint32, from, to Owner) bool {
	if i >= uint32(len(f.tx)) || f.tx[i] != from {
		f.reportMisuse("transmit slot", i, f.tx, from, to)
		return false
	}
	f.tx[i] = to
	f.count[from] -= f.slot
	f.count[to] += f.slot
	return true
}

// freeRx ends the reader's ownership of a receive chunk.
func (f *frames) freeRx(i uint32) {
	if f.moveRx(i, OwnerRx, OwnerFree) {
		f.rxFree = append(f.rxFree, i) // never grows: each chunk is in the list at most once
	}
}

// completeTx records that the kernel completed one descriptor of transmit slot i. After the last one it frees the slot
// and returns true. The caller must then update f.count.
func (f *frames) completeTx(i uint32) bool {
	if i >= uint32(len(f.tx)) || f.tx[i] != OwnerCompletion || f.open[i] == 0 {
		f.reportMisuse("transmit slot", i, f.tx, OwnerCompletion, OwnerFree)
		return false
	}
	if f.open[i]--; f.open[i] != 0 {
		return false
	}
	f.tx[i] = OwnerFree
	f.txFree = append(f.txFree, i)
	return true
}

func (f *frames) reportMisuse(what string, i uint32, owners []Owner, from, to Owner) {
	if f.misuse++; f.misuse > 1 {
		return
	}
	is := "out of range"
	if i < uint32(len(owners)) {
		is = owners[i].String()
	}
	f.first = fmt.Sprintf("%s %d was to go from %v to %v but is %s", what, i, from, to, is)
}

// countOwner returns how often o occurs in owners. bytes.Count is vectorised; a loop takes ten times as long.
func countOwner(owners []Owner, o Owner) uint32 {
	b := unsafe.Slice((*byte)(unsafe.SliceData(owners)), len(owners))
	return uint32(bytes.Count(b, []byte{byte(o)}))
}

// audit compares the owners of all chunks with the counts and the free lists.
func (f *frames) audit() error {
	var seen Census
	for o := range numOwners {
		seen[o] = countOwner(f.rx, o) + countOwner(f.tx, o)*f.slot
	}
	for i, o := range f.tx {
		if n := f.open[i]; (o == OwnerFree && n != 0) ||
			(o == OwnerCompletion && (n == 0 || n > MaxTxSlot)) {
			return fmt.Errorf("ring: audit: transmit slot %d is %v with %d open descriptors", i, o,
				n)
		}
	}
	free := uint32(len(f.rxFree)) + uint32(len(f.txFree))*f.slot
	all := uint32(len(f.rx)) + uint32(len(f.tx))*f.slot
	switch {
	case f.misuse != 0:
		return fmt.Errorf("ring: audit: %d operations on chunks of another owner, the first: %s",
			f.misuse, f.first)
	case seen != f.count:
		return fmt.Errorf("ring: audit: owners say %v, the count says %v", seen, f.count)
	case seen.Total() != all:
		return fmt.Errorf("ring: audit: %v is not %d chunks", seen, all)
	case free != seen[OwnerFree]:
		return fmt.Errorf("ring: audit: %d chunks in the free lists, %d are free", free,
			seen[OwnerFree])
	}
	for _, l := range []struct {
		what   string
		list   []uint32
		owners []Owner
	}{{"receive chunk", f.rxFree, f.rx}, {"transmit slot", f.txFree, f.tx}} {
		for _, i := range l.list {
			if o := l.owners[i]; o != OwnerFree {
				return fmt.Errorf("ring: audit: %s %d is in the free list but %v", l.what, i, o)
			}
		}
	}
	return nil
}
