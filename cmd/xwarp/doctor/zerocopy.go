package doctor

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"xwarp/ring"
)

var zeroCopyCheck = check{
	name: "af_xdp-zero-copy", nic: true,
	why: "with zero-copy the device accesses frames directly; otherwise the kernel copies each frame",
	look: func(e *env) finding {
		t := e.try()
		d, err := ring.QueryDriver(e.nic.Attrs().Index)
		return zeroCopy(t, e.nic.Type() == "veth", d, err)
	},
}

// zeroCopy checks the result of the trial, unless it was skipped, and the report of the driver, unless queryErr is set.
func zeroCopy(t *trial, veth bool, d ring.Driver, queryErr error) finding {
	tried := t.skipped == ""
	fault := t.fault
	if !tried && queryErr == nil {
		fault = d.ZeroCopyFault()
	}
	switch {
	case fault != nil:
		return warn("frames are copied unless zero-copy is forced: %v", fault).
			advise("keep ring_mode = \"auto\" in /etc/xwarp/xwarp.toml")
	case tried && t.zero == nil:
		return fine("bound to %s", t.where)
	case veth:
		return fine("veth always copies")
	case queryErr == nil && !d.ZeroCopy:
		return warn("the driver does not support zero-copy: frames are copied").
			advise("none; a driver with XDP_ACT_XSK_ZEROCOPY would be faster")
	case tried && queryErr == nil:
		return warn("the driver reports zero-copy support, but frames are copied: "+
			"bind on %s with zero-copy: %s", t.where, errno(t.zero)).
			advise("%s", zeroCopyRemedy(t.zero))
	case tried:
		return warn("frames are copied: bind on %s with zero-copy: %s; the "+
			"kernel does not report driver support (%v)", t.where, errno(t.zero), queryErr).
			advise("%s", zeroCopyRemedy(t.zero))
	case queryErr == nil:
		return fine("the driver reports support; not tested on the interface: %s", t.skipped)
	}
	return warn("unknown: the kernel does not report it (%v), and it was not "+
		"tested: %s", queryErr, t.skipped)
}

// errno formats the system call error in err by its name in errno(3).
func errno(err error) string {
	var e unix.Errno
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return "EOPNOTSUPP (" + err.Error() + ")" // unix.ErrnoName returns ENOTSUP
	case errors.As(err, &e):
		return unix.ErrnoName(e) + " (" + err.Error() + ")"
	}
	return err.Error()
}

// zeroCopyRemedy returns the remedy for an error of a bind with zero-copy.
func zeroCopyRemedy(err error) string {
	switch {
	case errors.Is(err, unix.EBUSY):
		return "stop the program that uses the queue, or serve another: xwarp doctor --queues N"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return fmt.Sprintf("use an MTU of at most %d (ip link set DEVICE mtu %d), or a queue below the "+
			"number of channels (ethtool -l DEVICE); see the driver's message: dmesg | tail",
			singleBuffer, singleBuffer)
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS):
		return "use a shorter receive ring (ethtool -G DEVICE rx 512) or LimitMEMLOCK=infinity; see " +
			"the driver's message: dmesg | tail"
	case errors.Is(err, unix.ENETDOWN):
		return "ip link set DEVICE up"
	}
	return "see the driver's message: dmesg | tail; or set ring_mode = \"copy\" in " +
		"/etc/xwarp/xwarp.toml"
}
