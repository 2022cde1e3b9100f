package doctor

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"xwarp/ring"
)

var zeroCopyCheck = check{
	name: "af_xdp-zero-copy", nic: true,
	why: "with zero-copy the device reads and writes the frames itself; else the kernel copies each",
	look: func(e *env) finding {
		t := e.try()
		d, err := ring.QueryDriver(e.nic.Attrs().Index)
		return zeroCopy(t, e.nic.Type() == "veth", d, err)
	},
}

// zeroCopy judges the result of the trial, unless it was skipped, and the report of the driver, unless told is an
// error.
func zeroCopy(t *trial, veth bool, d ring.Driver, queryErr error) finding {
	tried := t.skipped == ""
	switch {
	case queryErr == nil && d.ZeroCopyFault() != nil && (!tried || t.zero == nil):
		return warn("frames are copied unless zero-copy is asked for: %v", d.ZeroCopyFault()).
			advise("leave ring_mode = \"auto\" in /etc/xwarp/xwarp.toml")
	case tried && t.zero == nil:
		return fine("bound to %s", t.where)
	case veth:
		return fine("veth copies always")
	case queryErr == nil && !d.ZeroCopy:
		return warn("the driver cannot: frames are copied").
			advise("use a driver with XDP_ACT_XSK_ZEROCOPY for more speed")
	case tried && queryErr == nil:
		return warn("the driver says that it can, but frames are copied: "+
			"bind on %s with zero-copy: %s", t.where, errno(t.zero)).
			advise("%s", zeroCopyRemedy(t.zero))
	case tried:
		return warn("frames are copied: bind on %s with zero-copy: %s; the "+
			"kernel does not tell what the driver can (%v)", t.where, errno(t.zero), queryErr).
			advise("%s", zeroCopyRemedy(t.zero))
	case queryErr == nil:
		return fine("the driver says that it can; not tried: %s", t.skipped)
	}
	return warn("unknown: the kernel does not tell (%v), and it was not "+
		"tried: %s", queryErr, t.skipped)
}

// errno names the error of the system call in err, as manual pages do.
func errno(err error) string {
	var e unix.Errno
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return "EOPNOTSUPP (" + err.Error() + ")" // which has a second name
	case errors.As(err, &e):
		return unix.ErrnoName(e) + " (" + err.Error() + ")"
	}
	return err.Error()
}

// zeroCopyRemedy returns the remedy for the errors that drivers return from a bind with zero-copy.
func zeroCopyRemedy(err error) string {
	switch {
	case errors.Is(err, unix.EBUSY):
		return "stop the program that has the queue, or serve another: xwarp doctor --queue N"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return fmt.Sprintf("an MTU of at most %d (ip link set DEVICE mtu %d), a queue below the "+
			"number of channels (ethtool -l DEVICE); the driver's own words: dmesg | tail",
			singleBuffer, singleBuffer)
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS):
		return "a shorter receive ring (ethtool -G DEVICE rx 512), LimitMEMLOCK=infinity; the " +
			"driver's own words: dmesg | tail"
	case errors.Is(err, unix.ENETDOWN):
		return "ip link set DEVICE up"
	}
	return "the driver's own words: dmesg | tail; ring_mode = \"copy\" in /etc/xwarp/xwarp.toml " +
		"asks for no more"
}
