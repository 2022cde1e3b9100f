// Package card simulates a NIC with n-tuple rules and RSS.
package card

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/ethtool"
)

// Card simulates an interface with its driver for tests of ntuple. Ioctl decodes the raw ethtool commands itself,
// without the code under test.
type Card struct {
	Room       uint32                       // maximum number of rules
	Special    bool                         // the driver chooses locations
	NoContexts bool                         // no RSS contexts
	FixedTable bool                         // the RSS table cannot be changed
	Never      bool                         // rules are not supported
	Refuse     func(rule []byte) unix.Errno // refuses a rule, a struct ethtool_rxnfc
	Killed     int                          // the Killed-th command from now and all later ones fail; 0: none fails

	Table    []uint32            // RSS table
	On       bool                // n-tuple filters are on
	Contexts map[uint32][]uint32 // tables of the RSS contexts, by ID

	name   string
	rules  map[uint32][]byte // by location
	queues uint32
}

// New returns a card with room for 16 rules, with n-tuple filters off and RSS over its queues.
func New(name string, queues uint32) *Card {
	f := &Card{name: name, rules: map[uint32][]byte{}, Room: 16, Contexts: map[uint32][]uint32{},
		queues: queues}
	f.Reset()
	return f
}

// Reset restores the kernel's default table.
func (f *Card) Reset() {
	f.Table = nil
	for i := range uint32(16) {
		f.Table = append(f.Table, i%f.queues)
	}
}

// Name implements ntuple.Card.
func (f *Card) Name() string { return f.name }

// NTuple implements ntuple.Card.
func (f *Card) NTuple() ethtool.Feature { return ethtool.Feature{On: f.On, Fixed: f.Never} }

// SetNTuple implements ntuple.Card.
func (f *Card) SetNTuple(on bool) error {
	f.On = on
	return f.life()
}

// life counts a command. It returns an error once the simulated process is killed.
func (f *Card) life() error {
	if f.Killed > 0 {
		if f.Killed--; f.Killed == 0 {
			f.Killed = -1
		}
	}
	if f.Killed < 0 {
		return unix.EINTR
	}
	return nil
}

func errno(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// Ioctl implements ntuple.Card. It uses the offsets of 64-bit CPUs: fs at 16, ring_cookie at 168, location at 176,
// rule_cnt at 184.
func (f *Card) Ioctl(b []byte) error {
	if err := f.life(); err != nil {
		return err
	}
	ne := binary.NativeEndian
	u32 := func(at int) uint32 { return ne.Uint32(b[at:]) }
	put := func(at int, v uint32) { ne.PutUint32(b[at:], v) }
	switch u32(0) {
	case unix.ETHTOOL_GRXCLSRLCNT, unix.ETHTOOL_GRXCLSRLALL, unix.ETHTOOL_GRXCLSRULE,
		unix.ETHTOOL_SRXCLSRLINS, unix.ETHTOOL_SRXCLSRLDEL:
		if f.Never {
			return unix.EOPNOTSUPP
		}
		return errno(f.rule(b, u32, put))
	case unix.ETHTOOL_GRXFHINDIR:
		if n := u32(4); n != 0 && int(n) != len(f.Table) {
			return unix.EINVAL
		} else if n != 0 {
			for i, q := range f.Table {
				put(8+4*i, q)
			}
		}
		put(4, uint32(len(f.Table)))
	case unix.ETHTOOL_SRXFHINDIR:
		if f.FixedTable {
			return unix.EOPNOTSUPP
		}
		if u32(4) == 0 {
			f.Reset()
			return nil
		}
		for i := range f.Table {
			f.Table[i] = u32(8 + 4*i)
		}
	case unix.ETHTOOL_GRSSH, unix.ETHTOOL_SRSSH:
		return errno(f.context(b, u32, put))
	default:
		return unix.EOPNOTSUPP
	}
	return nil
}

func (f *Card) rule(b []byte, u32 func(int) uint32, put func(int, uint32)) unix.Errno {
	at := u32(176)
	switch u32(0) {
	case unix.ETHTOOL_GRXCLSRLCNT:
		put(184, uint32(len(f.rules)))
		if f.Special {
			put(8, 0x80000000)
		}
	case unix.ETHTOOL_GRXCLSRLALL:
		if int(u32(184)) < len(f.rules) {
			return unix.EMSGSIZE
		}
		put(8, f.Room)
		put(184, uint32(len(f.rules)))
		i := 0
		for l := range f.rules {
			put(188+4*i, l)
			i++
		}
	case unix.ETHTOOL_GRXCLSRULE:
		if f.rules[at] == nil {
			return unix.ENOENT
		}
		copy(b[16:], f.rules[at][16:])
	case unix.ETHTOOL_SRXCLSRLINS:
		if f.Refuse != nil {
			if e := f.Refuse(b); e != 0 {
				return e
			}
		}
		if !f.On {
			return unix.EOPNOTSUPP
		}
		for l := uint32(0); at == 0xffffffff && l < f.Room; l++ {
			if f.rules[l] == nil {
				at = l
			}
		}
		if at >= f.Room {
			return unix.ENOSPC
		}
		put(176, at)
		if u32(16)&0x20000000 != 0 && f.Contexts[u32(184)] == nil {
			return unix.EINVAL
		}
		f.rules[at] = slices.Clone(b)
	case unix.ETHTOOL_SRXCLSRLDEL:
		if f.rules[at] == nil {
			return unix.ENOENT
		}
		delete(f.rules, at)
	}
	return 0
}

func (f *Card) context(b []byte, u32 func(int) uint32, put func(int, uint32)) unix.Errno {
	id := u32(4)
	if id != 0 && f.NoContexts {
		return unix.EOPNOTSUPP
	}
	if u32(0) == unix.ETHTOOL_GRSSH {
		table := f.Contexts[id]
		if id == 0 {
			table = f.Table
		} else if table == nil {
			return unix.ENOENT
		}
		if int(u32(8)) == len(table) {
			for i, q := range table {
				put(24+4*i, q)
			}
		}
		put(8, uint32(len(table)))
		put(12, 40)
		return 0
	}
	switch {
	case id == 0xffffffff:
		id = 1
		for f.Contexts[id] != nil {
			id++
		}
		put(4, id)
	case f.Contexts[id] == nil:
		return unix.ENOENT
	}
	if u32(8) == 0 {
		for _, r := range f.rules {
			if binary.NativeEndian.Uint32(r[16:])&0x20000000 != 0 &&
				binary.NativeEndian.Uint32(r[184:]) == id {
				return unix.EBUSY
			}
		}
		delete(f.Contexts, id)
		return 0
	}
	f.Contexts[id] = nil
	for i := range int(u32(8)) {
		f.Contexts[id] = append(f.Contexts[id], u32(24+4*i))
	}
	return 0
}
