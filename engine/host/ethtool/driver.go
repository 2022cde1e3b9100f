package ethtool

import (
	"golang.org/x/sys/unix"
)

// Driver is what `ethtool -i` shows.
type Driver struct{ Name, Version, Firmware, Bus string }

// ReadDriver asks which driver an interface of the calling thread's namespace has.
func ReadDriver(name string) (Driver, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Driver{}, err
	}
	defer unix.Close(fd)
	d, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		return Driver{}, err
	}
	text := func(b []byte) string { return unix.ByteSliceToString(b) }
	return Driver{text(d.Driver[:]), text(d.Version[:]), text(d.Fw_version[:]),
		text(d.Bus_info[:])}, nil
}
