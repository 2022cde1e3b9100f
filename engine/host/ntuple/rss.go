package ntuple

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/ethtool"
)

// rxfh is struct ethtool_rxfh. A table of indirSize entries follows it.
type rxfh struct{ cmd, context, indirSize, keySize uint32 }

// encode returns the structure, the hash functions (0 keeps them) and the table.
func (h rxfh) encode(table []uint32) []byte {
	head := []uint32{h.cmd, h.context, h.indirSize, h.keySize, 0, 0}
	return ethtool.Words(0, append(head, table...)...)
}

// Table returns the RSS indirection table: the queues for packets without a rule. It is nil if the driver does not
// report it.
func Table(c Card) []uint32 {
	b := ethtool.Words(4, unix.ETHTOOL_GRXFHINDIR)
	if c.Ioctl(b) != nil || ethtool.Word(b, 1) == 0 || ethtool.Word(b, 1) > maxTable {
		return nil
	}
	b = ethtool.Words(4*int(ethtool.Word(b, 1)), unix.ETHTOOL_GRXFHINDIR, ethtool.Word(b, 1))
	if c.Ioctl(b) != nil {
		return nil
	}
	table := make([]uint32, len(b)/4-2)
	for i := range table {
		table[i] = ethtool.Word(b, 2+i)
	}
	return table
}

// setTable replaces the table; an empty one restores the kernel's default.
func setTable(c Card, table []uint32) error {
	b := setIndirection(table)
	if err := c.Ioctl(b); err != nil {
		return fmt.Errorf("ethtool -X %s (table of %d entries): %w", c.Name(), len(table), err)
	}
	return nil
}

// setIndirection returns the command that replaces the table: struct ethtool_rxfh_indir.
func setIndirection(table []uint32) []byte {
	head := []uint32{unix.ETHTOOL_SRXFHINDIR, uint32(len(table))}
	return ethtool.Words(0, append(head, table...)...)
}

// spread fills a table of the given size with queues in rotation.
func spread(size int, queues []int) []uint32 {
	table := make([]uint32, size)
	for i := range table {
		table[i] = uint32(queues[i%len(queues)])
	}
	return table
}

// newContext creates an RSS context over queues.
func newContext(c Card, queues []int) (id uint32, err error) {
	b := rxfh{cmd: unix.ETHTOOL_GRSSH}.encode(nil)
	if err = c.Ioctl(b); err == nil && (ethtool.Word(b, 2) == 0 || ethtool.Word(b, 2) > maxTable) {
		err = unix.EOPNOTSUPP
	}
	if err == nil {
		b = creation(spread(int(ethtool.Word(b, 2)), queues))
		err = c.Ioctl(b)
	}
	if err != nil {
		return 0, fmt.Errorf("ethtool -X %s context new (queues %v): %w", c.Name(), queues, err)
	}
	return ethtool.Word(b, 1), nil
}

func creation(table []uint32) []byte {
	return rxfh{unix.ETHTOOL_SRSSH, contextAlloc, uint32(len(table)), 0}.encode(table)
}

func deletion(id uint32) []byte { return rxfh{cmd: unix.ETHTOOL_SRSSH, context: id}.encode(nil) }

func deleteContext(c Card, id uint32) error {
	if err := c.Ioctl(deletion(id)); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("ethtool -X %s context %d delete: %w", c.Name(), id, err)
	}
	return nil
}

// context returns the queues of an RSS context; nil if it does not exist.
func context(c Card, id uint32) (queues []int) {
	b := rxfh{cmd: unix.ETHTOOL_GRSSH, context: id}.encode(nil)
	if c.Ioctl(b) != nil || ethtool.Word(b, 2) > maxTable {
		return nil
	}
	size, key := ethtool.Word(b, 2), ethtool.Word(b, 3)
	b = rxfh{unix.ETHTOOL_GRSSH, id, size, key}.encode(make([]uint32, size+key/4+1))
	if c.Ioctl(b) != nil {
		return nil
	}
	for i := range int(size) {
		queues = append(queues, int(ethtool.Word(b, 6+i)))
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}

// contexts returns the RSS contexts over exactly these queues. It probes each number, because older kernels do not list
// them.
func contexts(c Card, queues []int) (ids []uint32) {
	for id := uint32(1); id <= maxContext; id++ {
		if slices.Equal(context(c, id), queues) {
			ids = append(ids, id)
		}
	}
	return ids
}
