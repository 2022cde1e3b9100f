package dispatcher

import (
	"encoding/binary"
	"fmt"
	"slices"
)

const (
	maxPrograms = 10
	magic       = 236 // first byte of the configuration
	oldest      = 2   // first supported version of the protocol, that of libxdp 1.3 to 1.5
	newest      = 3   // last supported version, that of libxdp 1.6, which adds config.bound

	// actionPass and actionNone are bits of slot.actions. actionPass stands for XDP_PASS, actionNone for the value 31
	// that a function returns to which no program is attached.
	actionPass = 1 << 2
	actionNone = 1 << 31
)

// config is the configuration of a dispatcher, struct config of dispatcher.c.
type config struct {
	version byte
	frags   bool   // the dispatcher accepts frames of several buffers
	slots   []slot // of its programs, in the order in which they run
	bound   bool   // its programs are bound to one device
}

// slot is the part of config that belongs to one program.
type slot struct {
	actions  uint32 // bitmap of the actions after which the next program runs
	priority uint32
	flags    uint32 // with which the program was loaded
}

// size returns the length of an encoded configuration of a version. libxdp refuses other lengths.
func size(version byte) int {
	n := 4 + 3*4*maxPrograms
	if version >= 3 {
		n += 4 // bound, padded
	}
	return n
}

func (c *config) encode() []byte {
	b := make([]byte, size(c.version))
	b[0], b[1], b[2] = magic, c.version, byte(len(c.slots))
	if c.frags {
		b[3] = 1
	}
	for i, s := range c.slots {
		for part, v := range []uint32{s.actions, s.priority, s.flags} {
			binary.NativeEndian.PutUint32(b[4+4*(part*maxPrograms+i):], v)
		}
	}
	return b
}

// decode returns the configuration b of the dispatcher of interface nic.
func decode(nic string, b []byte) (c config, err error) {
	if len(b) < 2 || b[0] != magic {
		return c, &VersionError{Interface: nic, Version: 1} // version 1 has no magic byte
	}
	if c.version = b[1]; c.version < oldest || c.version > newest {
		return c, &VersionError{Interface: nic, Version: int(c.version)}
	}
	if len(b) != size(c.version) || b[2] > maxPrograms {
		return c, fmt.Errorf("bpf: %s has a dispatcher of version %d whose configuration of %d bytes "+
			"is invalid: unload it (xdp-loader unload %s --all)", nic, c.version, len(b), nic)
	}
	c.frags = b[3] != 0
	for i := range int(b[2]) {
		part := func(n int) uint32 {
			return binary.NativeEndian.Uint32(b[4+4*(n*maxPrograms+i):])
		}
		c.slots = append(c.slots, slot{part(0), part(1), part(2)})
	}
	c.bound = c.version >= 3 && slices.Max(b[size(2):]) != 0
	return c, nil
}

// VersionError is returned for a dispatcher with an unsupported version of the protocol. The dispatcher is not changed.
type VersionError struct {
	Interface string
	Version   int
}

// Error says what the user can do.
func (e *VersionError) Error() string {
	next := "install a newer xwarp, or load the programs with libxdp 1.6 or older"
	if e.Version < oldest {
		next = "load its programs with libxdp 1.3 or newer"
	}
	return fmt.Sprintf("bpf: %s has libxdp's dispatcher of version %d, and xwarp knows %d to %d: "+
		"unload it (xdp-loader unload %s --all), then %s", e.Interface, e.Version, oldest, newest,
		e.Interface, next)
}
